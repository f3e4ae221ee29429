"""The files that a reader, a packager or a scanner looks for at the top of the repository."""

import hashlib
import re
import tomllib
from pathlib import Path

from api.version import VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the text that apache.org publishes."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_license_is_the_whole_of_apache_2_0():
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_0
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_the_changelog_has_the_version_that_the_program_says():
    changelog = text_of("CHANGELOG.md")
    headings = re.findall(r"^## \[(.+?)\]", changelog, flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    unreleased = changelog.partition("## [Unreleased]")[2].partition("\n## [")[0]
    assert VERSION in headings or f"This becomes {VERSION}." in unreleased


def test_a_relative_link_at_the_top_leads_to_a_file():
    links = [
        (path.name, target)
        for path in ROOT.glob("*.md")
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert {name for name, _ in links} >= {"README.md", "SECURITY.md", "CONTRIBUTING.md"}
    assert [link for link in links if not (ROOT / link[1]).exists()] == []
