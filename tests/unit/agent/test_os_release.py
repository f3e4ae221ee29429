"""The operating system of the node, read below the mount of its root."""

from pathlib import Path

import pytest

from agent.inventory.os_release import OperatingSystem, read_operating_system

UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nID=ubuntu\nVERSION_ID="22.04"\nID_LIKE=debian\n'


def put(root: Path, text: str, place: str = "etc/os-release") -> Path:
    file = root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(UBUNTU, ("ubuntu", "22.04"), id="quoted and bare"),
        pytest.param("ID='rhel'\nVERSION_ID=9.4\n", ("rhel", "9.4"), id="single quotes"),
        pytest.param("ID=arch\nBUILD_ID=rolling\n", ("arch", ""), id="no version"),
        pytest.param('ID=\nVERSION_ID=""\n', ("", ""), id="empty values"),
        pytest.param('# a comment\nID="broken\nVERSION_ID=1\n', ("", "1"), id="an open quote"),
        pytest.param("nothing of it", ("", ""), id="other text"),
    ],
)
def test_id_and_version_are_read(tmp_path: Path, text: str, expected: tuple[str, str]):
    put(tmp_path, text)
    assert read_operating_system(tmp_path) == OperatingSystem(*expected)


@pytest.mark.parametrize("target", ["../usr/lib/os-release", "/usr/lib/os-release"])
def test_link_is_followed_in_the_nodes_root(tmp_path: Path, target: str):
    put(tmp_path, UBUNTU, "usr/lib/os-release")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").symlink_to(target)
    assert read_operating_system(tmp_path).id == "ubuntu"


def test_link_that_leads_nowhere_falls_back(tmp_path: Path):
    put(tmp_path, UBUNTU, "usr/lib/os-release")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").symlink_to("/static/os-release")
    assert read_operating_system(tmp_path).id == "ubuntu"


def test_node_without_the_file_is_unknown(tmp_path: Path):
    (tmp_path / "etc" / "os-release").mkdir(parents=True)
    assert read_operating_system(tmp_path) == OperatingSystem()
