"""The page's own files: read once, compressed once. They hold no data, so that nobody has to log in for them."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Self, final

from console.edge.console_answers import answer
from http_edge.exposition import accepts_gzip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Ends of the names of files that are served -> their types."""
_INDEX: Final = "index.html"
_SCRIPT: Final = "console.js"
"""Loads the other scripts, whose names change with what is in them."""
_LASTING: Final = re.compile(r"-[0-9A-Z]{8}\.js$")
"""Names that say what is in the file."""
_DIRECTORY: Final = "static"


class PageMissingError(Exception):
    """The page's files are not in this installation."""


@final
@dataclass(frozen=True, slots=True)
class _StaticFile:
    content_type: str
    content: bytes
    compressed: bytes
    digest: str

    @classmethod
    def of(cls, content_type: str, content: bytes) -> Self:
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(content_type, content, gzip.compress(content, mtime=0), digest)


@final
class StaticFiles:
    """Files by path; those whose names stay are asked for again every time, and sent again where they are others."""

    def __init__(self, contents: "Mapping[str, bytes]") -> None:
        self._files = {
            "/" if name == _INDEX else f"/{name}": _StaticFile.of(
                _TYPES[PurePath(name).suffix], content
            )
            for name, content in contents.items()
        }

    @classmethod
    def of_package(cls) -> Self:
        """Read the files that `make console` made.

        Raises:
            PageMissingError: they were not made, or not packed.
        """
        directory = resources.files("console.edge").joinpath(_DIRECTORY)
        found = {
            file.name: file.read_bytes()
            for file in (directory.iterdir() if directory.is_dir() else ())
            if PurePath(file.name).suffix in _TYPES
        }
        if missing := sorted({_INDEX, _SCRIPT} - found.keys()):
            raise PageMissingError(
                f"the page of the console is not in this installation: {', '.join(missing)} of"
                " console/edge/static; `make console` makes them in a source checkout"
            )
        return cls(found)

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def respond(self, path: str, headers: "Mapping[str, str]") -> "web.Response":
        """Answer a GET of one of the paths."""
        file = self._files[path]
        is_gzip = accepts_gzip(headers.get("Accept-Encoding", ""))
        tag = f'"{file.digest}{"-gzip" if is_gzip else ""}"'
        kept = "max-age=31536000, immutable" if _LASTING.search(path) else "no-cache"
        sent = {"Cache-Control": kept, "ETag": tag, "Vary": "Accept-Encoding"}
        if _etag_matches(tag, headers.get("If-None-Match", "")):
            return answer(HTTPStatus.NOT_MODIFIED, headers=sent)
        if is_gzip:
            sent["Content-Encoding"] = "gzip"
        content = file.compressed if is_gzip else file.content
        return answer(HTTPStatus.OK, content, file.content_type, headers=sent)


def _etag_matches(tag: str, if_none_match: str) -> bool:
    """Compare weakly, as RFC 9110 wants it here: proxies that compress make weak tags of strong ones."""
    tags = {part.strip().removeprefix("W/") for part in if_none_match.split(",")}
    return tag in tags or "*" in tags
