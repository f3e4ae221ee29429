"""Files that are replaced at once, only where something changed, and whole whatever happens."""

from pathlib import Path

import pytest

from agent.files import read_bytes, remove_file, replace_file


def test_a_file_is_made_with_its_directory_and_may_be_read_by_all(tmp_path: Path):
    path = tmp_path / "run" / "gpu" / "cards.json"
    assert replace_file(path, b"one")
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o055 == 0o055


def test_the_same_content_is_not_written(tmp_path: Path):
    path = tmp_path / "cards.json"
    replace_file(path, b"one")
    before = path.stat()
    assert not replace_file(path, b"one")
    assert path.stat().st_ino == before.st_ino


def test_another_content_is_another_file(tmp_path: Path):
    path = tmp_path / "cards.json"
    replace_file(path, b"one")
    with path.open("rb") as held:
        assert replace_file(path, b"two")
        # An open reader reads the old one to its end.
        assert held.read() == b"one"
    assert path.read_bytes() == b"two"


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path):
    path = tmp_path / "cards.json"
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"one")
    assert [item.name for item in tmp_path.iterdir()] == ["cards.json"]


def test_where_no_directory_can_be_made_the_error_names_it(tmp_path: Path):
    (tmp_path / "run").touch()
    with pytest.raises(OSError, match="run"):
        replace_file(tmp_path / "run" / "cards.json", b"one")


def test_no_scan_takes_an_unfinished_file_for_a_specification(tmp_path: Path, monkeypatch):
    seen = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(self.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    replace_file(tmp_path / "gpu.json", b"one")
    (name,) = seen
    assert name.startswith(".")
    assert not name.endswith((".json", ".yaml"))


def test_removing_returns_whether_it_existed(tmp_path: Path):
    path = tmp_path / "cards.json"
    assert not remove_file(path)
    replace_file(path, b"one")
    assert remove_file(path)
    assert read_bytes(path) is None
