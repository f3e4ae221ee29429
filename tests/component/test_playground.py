"""What `make playground` says where it cannot start, and `make playground-down` where nothing runs."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.environment import binaries


def test_without_go_one_line_says_so(tmp_path: Path):
    # Away from the tree, whose virtual environment may have Go.
    folder = tmp_path / "tests" / "cluster" / "components"
    folder.mkdir(parents=True)
    for name in ("build.sh", "go.mod", "go.sum"):
        shutil.copy(binaries.COMPONENTS / name, folder)
    done = subprocess.run(
        [folder / "build.sh", tmp_path / "out", "etcd", "kubectl"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.startswith("build.sh: Go is missing, which builds etcd kubectl: install")


def test_what_does_not_run_may_be_ended_twice_and_its_files_go(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "bin").mkdir()
    # The number of a process that is not a playground.
    (tmp_path / "pid").write_text("1")
    for _ in range(2):
        command = [sys.executable, "-m", "tests.playground", "down", "--folder", str(tmp_path)]
        done = subprocess.run(
            command, cwd=binaries.ROOT, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("", "")
        assert [entry.name for entry in tmp_path.iterdir()] == ["logs"]
