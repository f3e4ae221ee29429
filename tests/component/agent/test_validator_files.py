"""The validator's files: atomic, never through a link, with one message where they cannot be written."""

import errno
import os
import stat
from pathlib import Path

import pytest

from agent.errors import ReadyFilesError
from agent.validator.ready_files import ReadyFiles
from agent.validator.steps import ValidationStep
from agent.validator.termination_log import write_termination_message


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "validations"


def test_a_file_has_its_content_and_everybody_may_read_it(directory: Path):
    files = ReadyFiles(directory)
    files.write(ValidationStep.DRIVER, {"IS_HOST_DRIVER": "true", "NVIDIA_DRIVER_ROOT": "/"})
    path = directory / "driver-ready"
    assert path.read_text() == "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names_in(directory) == ["driver-ready"]
    assert files.has(ValidationStep.DRIVER)
    files.remove([ValidationStep.DRIVER, ValidationStep.CUDA])
    assert not files.has(ValidationStep.DRIVER)


def test_what_a_killed_process_left_is_replaced(directory: Path):
    directory.mkdir()
    (directory / ".cuda-ready.new").write_text("half")
    ReadyFiles(directory).write(ValidationStep.CUDA, {})
    assert names_in(directory) == ["cuda-ready"]


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(directory: Path, tmp_path: Path):
    victim = tmp_path / "shadow"
    victim.write_text("secret")
    directory.mkdir()
    for name in ("driver-ready", ".driver-ready.new"):
        (directory / name).symlink_to(victim)
    files = ReadyFiles(directory)
    assert not files.has(ValidationStep.DRIVER)
    files.write(ValidationStep.DRIVER, {})
    assert victim.read_text() == "secret"
    assert files.has(ValidationStep.DRIVER)
    assert not (directory / "driver-ready").is_symlink()


def test_a_directory_that_is_a_link_is_refused(directory: Path, tmp_path: Path):
    (tmp_path / "etc").mkdir()
    directory.symlink_to("etc")
    files = ReadyFiles(directory)
    with pytest.raises(ReadyFilesError, match="it is a symbolic link: remove it"):
        files.write(ValidationStep.DRIVER, {})
    with pytest.raises(ReadyFilesError, match="it is a symbolic link: remove it"):
        files.remove([ValidationStep.DRIVER])
    assert names_in(tmp_path / "etc") == []
    assert not files.has(ValidationStep.DRIVER)


def test_a_file_in_place_of_the_directory_is_explained(directory: Path):
    directory.touch()
    with pytest.raises(ReadyFilesError, match=f"{directory} cannot be written .*: remove it"):
        ReadyFiles(directory).write(ValidationStep.DRIVER, {})


def test_a_directory_in_place_of_a_file_is_explained(directory: Path):
    (directory / "driver-ready").mkdir(parents=True)
    with pytest.raises(ReadyFilesError, match="there is a directory of this name: remove it"):
        ReadyFiles(directory).write(ValidationStep.DRIVER, {})


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EROFS, "Read-only file system.*: mount it writable"),
        (errno.ENOSPC, "No space left on device.*: free space on its file system"),
        (errno.EIO, "Input/output error.*: see the node's file system"),
    ],
)
def test_a_read_only_or_full_directory_is_explained(
    directory: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
):
    files = ReadyFiles(directory)
    files.write(ValidationStep.TOOLKIT, {})

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(
        ReadyFilesError, match=f"{directory}/toolkit-ready cannot be written.*{cure}"
    ):
        files.write(ValidationStep.TOOLKIT, {})
    assert not files.has(ValidationStep.TOOLKIT)
    assert names_in(directory) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_directory_that_takes_no_new_file_is_explained(
    directory: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    """A read-only file system, or one without an inode, refuses the file before it has a byte."""
    directory.mkdir()
    opened = os.open

    def refuse(path: str, flags: int, *arguments: int, **options: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadyFilesError, match=f"{directory}/cuda-ready cannot be written"):
        ReadyFiles(directory).write(ValidationStep.CUDA, {})
    assert names_in(directory) == []


def test_the_termination_message_is_one_line_and_short(tmp_path: Path):
    path = tmp_path / "termination-log"
    assert not write_termination_message(path, "no file of kubelet's")
    path.write_text("old, and longer than the new one")
    assert write_termination_message(path, "cuda:\n it fails")
    assert path.read_text() == "cuda: it fails"
    assert write_termination_message(path, "x" * 4000)
    assert len(path.read_text()) == 512
