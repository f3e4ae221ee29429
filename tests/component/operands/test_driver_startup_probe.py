"""The startup probe of a driver's container, run by a shell: it passes once the driver works, and then tells the validator."""

import subprocess
from pathlib import Path

import pytest

from operands.asset_files import load_assets

FEATURES = ("GDRCOPY_ENABLED", "GDS_ENABLED", "GPU_DIRECT_RDMA_ENABLED")


@pytest.fixture(name="node")
def a_node(tmp_path: Path) -> Path:
    """A directory with a kernel module that is loaded and an nvidia-smi that works."""
    (tmp_path / "refcnt").write_text("1\n", encoding="utf-8")
    a_program(tmp_path, "exit 0")
    return tmp_path


def a_program(node: Path, script: str) -> None:
    program = node / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def run(node: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    (text,) = (
        asset["data"]["startup-probe.sh"]
        for asset in load_assets("state-driver")
        if asset["kind"] == "ConfigMap"
    )
    validations = node / "validations"
    text = text.replace("/run/nvidia/validations", str(validations))
    script = node / "startup-probe.sh"
    script.write_text(text.replace("/sys/module/nvidia", str(node)), encoding="utf-8")
    return subprocess.run(
        ["/bin/sh", str(script)],
        env={"PATH": f"{node}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def ready(node: Path) -> dict[str, str]:
    """What the validator reads; empty before the probe has passed."""
    file = node / "validations" / ".driver-ctr-ready"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return dict(line.split(": ") for line in text.splitlines())


def test_its_file_says_which_features_the_driver_was_started_with(node: Path):
    assert run(node, GDS_ENABLED="true").returncode == 0
    assert ready(node) == {**dict.fromkeys(FEATURES, "false"), "GDS_ENABLED": "true"}


def test_the_file_is_whole_or_absent(node: Path):
    run(node)
    assert [path.name for path in (node / "validations").iterdir()] == [".driver-ctr-ready"]


def test_a_driver_that_is_not_loaded_is_not_ready(node: Path):
    (node / "refcnt").unlink()
    done = run(node)
    assert done.returncode == 1
    assert "kernel module" in done.stdout
    assert ready(node) == {}


def test_a_driver_whose_nvidia_smi_fails_is_not_ready(node: Path):
    a_program(node, "echo no devices were found; exit 6")
    done = run(node)
    assert done.returncode == 1
    assert "no devices were found" in done.stdout
    assert ready(node) == {}


@pytest.mark.parametrize(("status", "code"), [("Ready", 0), ("Starting", 1)])
def test_daemons_of_the_driver_must_be_ready_where_they_say_what_they_are(
    node: Path, status: str, code: int
):
    (node / "validations").mkdir()
    (node / "validations" / ".driver-daemons-status").write_text(status, encoding="utf-8")
    done = run(node)
    assert done.returncode == code
    assert bool(ready(node)) is (code == 0)
    assert code == 0 or status in done.stdout
