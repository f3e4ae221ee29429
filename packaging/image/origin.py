"""Where an image comes from: the commit and its time, and the labels that say so."""

import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PREFIX: Final = "org.opencontainers.image."
_SOURCES: Final = ("source", "repository")
"""Names under which a project file may have the address of its repository, in lower case."""


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """The commit that an image is built from, as far as it is known."""

    revision: str | None
    created: str | None
    """RFC 3339: the commit's time, or that of SOURCE_DATE_EPOCH; never the build's."""


def origin_of(project: "Path", files: "Sequence[str]") -> Origin:
    """Read the origin of a checkout; `-dirty` marks a revision whose files were changed.

    Args:
        project: top directory of the checkout; another directory has no origin.
        files: that the image is made of, relative to it.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    top = _git(project, "rev-parse", "--show-toplevel")
    if top is None or not project.samefile(top):
        return Origin(None, _rfc3339(epoch))
    revision = _git(project, "rev-parse", "HEAD")
    if revision is not None and _git(project, "status", "--porcelain", "--", *files):
        revision = f"{revision}-dirty"
    return Origin(revision, _rfc3339(epoch or _git(project, "log", "-1", "--format=%ct")))


def labels(project: "Mapping[str, Any]", origin: Origin) -> dict[str, str]:
    """Return the image's labels, which are also its annotations.

    github.com/opencontainers/image-spec: annotations.md.

    Args:
        project: table `project` of pyproject.toml.
        origin: of the image; what is not known has no label.
    """
    urls = {name.lower(): url for name, url in project.get("urls", {}).items()}
    license_ = project.get("license")
    values = {
        "title": project["name"],
        "description": project["description"],
        "version": project["version"],
        "revision": origin.revision,
        "created": origin.created,
        "licenses": license_ if isinstance(license_, str) else None,
        "source": next((urls[name] for name in _SOURCES if name in urls), None),
    }
    return {f"{_PREFIX}{name}": value for name, value in values.items() if value}


def _rfc3339(seconds: str | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(directory: "Path", *arguments: str) -> str | None:
    """Return the output of git, or nothing where there is no git or no checkout."""
    try:
        done = subprocess.run(  # noqa: S603  # a command of the build's own
            ["git", "-C", str(directory), *arguments],  # noqa: S607  # the machine's git
            capture_output=True,
            check=False,
            text=True,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
