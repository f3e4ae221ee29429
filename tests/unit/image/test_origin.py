"""The commit and the time that an image says it is from."""

import os
import subprocess
from pathlib import Path

import pytest
from image.build import write_revision
from image.errors import ImageBuildError
from image.origin import Origin, labels, origin_of

COMMITTED = "2026-01-02T03:04:05Z"
FILES = ("api", "pyproject.toml")
PREFIX = "org.opencontainers.image."


@pytest.fixture(autouse=True)
def no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "api").mkdir()
    for name in ("api/x.py", "pyproject.toml", "README.md"):
        (tmp_path / name).write_text("one")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def git(directory: Path, *arguments: str) -> str:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        **{f"GIT_{who}_NAME": "A Name" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "name@example.com" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_DATE": COMMITTED for who in ("AUTHOR", "COMMITTER")},
    }
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_checkout_is_from_its_commit_at_its_time(checkout: Path):
    assert origin_of(checkout, FILES) == Origin(git(checkout, "rev-parse", "HEAD"), COMMITTED)


def test_a_changed_file_of_the_image_is_said_and_another_is_not(checkout: Path):
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "README.md").write_text("two")
    assert origin_of(checkout, FILES).revision == commit
    (checkout / "api/new.py").write_text("two")
    assert origin_of(checkout, FILES).revision == f"{commit}-dirty"


def test_a_given_time_is_instead_of_the_commits(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert origin_of(checkout, FILES).created == "1970-01-01T00:00:00Z"


def test_a_directory_within_a_checkout_is_not_the_checkout(checkout: Path):
    assert origin_of(checkout / "api", ()) == Origin(None, None)


def test_labels_say_what_is_known_and_nothing_else():
    project = {
        "name": "thing",
        "description": "does it",
        "version": "1.0",
        "license": "Apache-2.0",
        "urls": {"Documentation": "https://example.com/docs", "Source": "https://example.com/it"},
    }
    assert labels(project, Origin("0a1b", COMMITTED)) == {
        f"{PREFIX}{name}": value
        for name, value in {
            "title": "thing",
            "description": "does it",
            "version": "1.0",
            "revision": "0a1b",
            "created": COMMITTED,
            "licenses": "Apache-2.0",
            "source": "https://example.com/it",
        }.items()
    }
    bare = {name: project[name] for name in ("name", "description", "version")}
    assert labels(bare, Origin(None, None)).keys() == {
        f"{PREFIX}title",
        f"{PREFIX}description",
        f"{PREFIX}version",
    }


def test_a_module_without_a_place_for_the_revision_is_named(tmp_path: Path):
    module = tmp_path / "version.py"
    module.write_text('REVISION: Final = "0a1b"\n')
    with pytest.raises(ImageBuildError, match=r"version.py has no line REVISION"):
        write_revision(module, "2c3d")
