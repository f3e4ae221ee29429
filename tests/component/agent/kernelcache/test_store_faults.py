"""The store is killed, or its disk refuses, at each single change of the file system: no content is ever half there."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.kernelcache.content.store_layout import remove_tree
from tests.support.cache_layers import HASH
from tests.support.file_system_faults import NAME, NEW, OLD

KILLED = -9
REFUSED = 1
HARMLESS = 3
WHOLE = {
    OLD: [f"{HASH}0/kernel.ptx=old"],
    NEW: [f"{HASH}0/kernel.ptx=kernel", f"{HASH}1/kernel.ptx=kernel"],
}
DONE = {"files": {NEW: WHOLE[NEW]}, "names": {str(NAME): NEW}, "damaged": [], "left": []}
FEWEST_CHANGES = 30


def run_with(fault: str, root: Path) -> tuple[list[dict[str, Any]], str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.file_system_faults", str(root), fault],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def assert_whole(lines: list[dict[str, Any]]) -> None:
    assert len(lines) > FEWEST_CHANGES
    for line in lines:
        assert {digest: WHOLE[digest] for digest in line["files"]} == line["files"]
        assert line["names"][str(NAME)] in line["files"], "a name without its content"
        assert (line["damaged"], line["left"]) == ([], [])
        assert line["again"] == DONE
    assert {key: lines[-1][key] for key in DONE} == DONE
    assert any(NEW not in line["files"] for line in lines)
    assert any(line["files"].keys() == {OLD, NEW} for line in lines)
    assert any(line["names"][str(NAME)] == NEW and OLD in line["files"] for line in lines)


def test_a_process_killed_at_any_change_leaves_whole_contents_and_names(tmp_path: Path):
    """C8: what is written is there as a whole, or not at all."""
    lines, _ = run_with("kill", tmp_path / "store")
    assert {line["code"] for line in lines[:-1]} == {KILLED}
    assert_whole(lines)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param(
            "ENOSPC",
            "FULL: the store of kernel caches {root} cannot be used: No space left on device; free"
            " space or inodes on its file system, or lower the quota of the caches",
            id="a full disk",
        ),
        pytest.param(
            "EROFS",
            "READ_ONLY: the store of kernel caches {root} cannot be used: Read-only file system;"
            " mount it writable",
            id="a disk that became read-only",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "EIO",
            "FAILED: the store of kernel caches {root} cannot be used: Input/output error; its disk"
            " fails: see the node's kernel log",
            id="a disk that fails",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_disk_that_refuses_any_change_has_one_message(tmp_path: Path, fault: str, text: str):
    root = tmp_path / "store"
    lines, errors = run_with(fault, root)
    codes = [line["code"] for line in lines[:-1]]
    # A directory that is there already need not be made.
    assert codes.count(HARMLESS) <= 1
    assert {*codes} - {HARMLESS} == {REFUSED}
    assert set(errors.splitlines()) == {text.format(root=root)}
    assert_whole(lines)


def test_several_may_remove_the_same_at_once(tmp_path: Path):
    """A store that opens again empties its directory while a cancelled extraction of before cleans up after itself."""
    for round_ in range(10):
        root = tmp_path / str(round_)
        for number in range(100):
            file = root / str(number % 10) / f"{number}.cubin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(remove_tree, [root] * 4))
        assert not root.exists()
