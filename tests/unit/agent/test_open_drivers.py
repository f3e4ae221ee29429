"""Processes with device files of the driver open or mapped, in directories as the kernel shows them.

The null device, of major number 1, is the driver's device file here: making device files needs root.
"""

import os
from pathlib import Path

import pytest

from agent.driver_processes.open_drivers import OpenProcess, driver_majors, processes_with_driver

DEVICES = """Character devices:
  1 mem
195 nvidia
195 nvidiactl
235 nvidia-caps
236 aspeed
237 gdrdrv
510 nvidia-uvm

Block devices:
  7 loop
195 nvidia-not
259 blkext
"""
MAJORS = {os.major(Path("/dev/null").stat().st_rdev)}


def a_process(procfs: Path, pid: int, *files: str, maps: str = "", command: str = "app") -> Path:
    """A process with these files open."""
    directory = procfs / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "map_files").mkdir()
    (directory / "comm").write_text(f"{command}\n")
    (directory / "maps").write_text(maps)
    for number, file in enumerate(files):
        (directory / "fd" / str(number)).symlink_to(file)
    return directory


def found(procfs: Path) -> list[int]:
    return [process.pid for process in processes_with_driver(MAJORS, procfs)]


def test_the_kernel_names_the_numbers(tmp_path: Path):
    (tmp_path / "devices").write_text(DEVICES)
    assert driver_majors(tmp_path) == {195, 235, 237, 510}


@pytest.mark.parametrize(
    "text", [None, "", "Block devices:\n195 nvidia\n", "Character devices:\nx nvidia\n"]
)
def test_no_module_no_numbers(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "devices").write_text(text)
    assert driver_majors(tmp_path) == frozenset()


def test_open_device_file_is_found_among_others(tmp_path: Path):
    a_process(tmp_path, 7, "/dev/zero/x", "socket:[1]", "/dev/null", command="python3")
    a_process(tmp_path, 8, "/etc/passwd", "pipe:[2]")
    (tmp_path / "sys").mkdir()
    assert processes_with_driver(MAJORS, tmp_path) == [OpenProcess(7, "python3")]


def test_mapped_device_file_is_found(tmp_path: Path):
    line = "7f0000000000-7f0000001000 rw-s 00000000 00:06 400 /dev/nvidia0\n"
    process = a_process(tmp_path, 7, maps=f"0000-1000 r--p 0 00:00 0\n{line}")
    (process / "map_files" / "7f0000000000-7f0000001000").symlink_to("/dev/null")
    assert found(tmp_path) == [7]


def test_file_that_is_named_like_a_device_and_is_none_does_not_count(tmp_path: Path):
    (tmp_path / "nvidia0").touch()
    a_process(tmp_path, 7, str(tmp_path / "nvidia0"))
    assert found(tmp_path) == []


def test_process_that_cannot_be_read_has_nothing_open(tmp_path: Path):
    (tmp_path / "7").mkdir()
    assert found(tmp_path) == []


def test_nothing_is_read_without_a_driver(tmp_path: Path):
    a_process(tmp_path, 7, "/dev/null")
    assert processes_with_driver([], tmp_path / "missing") == []
    assert processes_with_driver(MAJORS, tmp_path, but={7}) == []


@pytest.mark.parametrize(("most_files", "count"), [(4, 0), (5, 1)])
def test_search_ends_after_the_most_files(tmp_path: Path, most_files: int, count: int):
    a_process(tmp_path, 7, *["/etc/passwd"] * 4)
    a_process(tmp_path, 8, "/dev/null")
    assert len(processes_with_driver(MAJORS, tmp_path, most_files=most_files)) == count


def test_name_of_a_process_has_no_control_characters(tmp_path: Path):
    a_process(tmp_path, 7, "/dev/null", command="a\x1bb\nc")
    assert [process.command for process in processes_with_driver(MAJORS, tmp_path)] == ["a?b?c"]
