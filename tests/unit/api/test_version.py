"""The version has one number, wherever it is written."""

import tomllib
from pathlib import Path

from api.version import VERSION

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


def test_the_project_file_has_the_version_of_the_program():
    assert tomllib.loads(PROJECT.read_text())["project"]["version"] == VERSION
