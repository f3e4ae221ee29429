"""References of OCI images, in the grammar of containerd and Docker: `[registry/]repository[:tag][@digest]`.

One grammar for the API server's pattern (`IMAGE_PATTERN`) and for the parser, which also says what is wrong.
A colon belongs to a tag only behind the last slash: `host:5000/img` has a registry with a port, and no tag.
"""

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Final, NewType, final

from api.text import truncate

Digest = NewType("Digest", str)
"""`sha256:` and 64 lower-case hex digits."""

MAX_IMAGE_LENGTH: Final = 525
"""Greatest length of the whole reference, as GKM's kinds accept it: 255 of the name, 128 of the tag, a digest of
71 and its
separators fit."""
MAX_REPOSITORY_LENGTH: Final = 255
DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"

_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST: Final = rf"({_LABEL}([.]{_LABEL})*|\[[0-9A-Fa-f:.]+\])"
_REGISTRY: Final = rf"{_HOST}(:[0-9]{{1,5}})?"
_COMPONENT: Final = "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = f"{_COMPONENT}(/{_COMPONENT})*"
_TAG: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
DIGEST_PATTERN: Final = "^sha256:[0-9a-f]{64}$"
IMAGE_PATTERN: Final = f"^({_REGISTRY}/)?{_REPOSITORY}(:{_TAG})?(@{DIGEST_PATTERN[1:-1]})?$"
"""Pattern of every reference that `parse_image_reference` accepts; RE2, as the API server reads it."""

_MAX_PORT: Final = 65_535
_DEFAULT_NAMESPACE: Final = "library"
_ALIASES: Final = frozenset({"docker.io", "index.docker.io"})


class ImageReferenceError(ValueError):
    """The text names no image; the message says why."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """An image in a registry. A digest decides where it is set; the tag then is for people only."""

    registry: str
    """Host and perhaps port, such as `ghcr.io` or `[::1]:5000`."""
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag is not None else ""
        digest = f"@{self.digest}" if self.digest is not None else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"

    @property
    def tag_or_digest(self) -> str:
        """Return the distribution API's `<reference>`: the digest, or the tag, or `latest`."""
        return self.digest or self.tag or DEFAULT_TAG

    def with_digest(self, digest: Digest) -> "ImageReference":
        """Return the same image at this digest, in place of another."""
        return replace(self, digest=digest)


def parse_digest(text: str) -> Digest | None:
    """Return the text as a digest, or None where it is none."""
    return Digest(text) if re.fullmatch(DIGEST_PATTERN[1:-1], text, re.ASCII) else None


def parse_image_reference(text: str) -> ImageReference:
    """Return the image that a reference names, with Docker Hub's defaults as containerd applies them.

    Raises:
        ImageReferenceError: the text is outside the grammar.
    """
    if not text:
        raise ImageReferenceError(
            "the image is empty: name one, as registry.example.com/team/cache:1.0"
        )
    if len(text) > MAX_IMAGE_LENGTH:
        raise _fault(
            text, f"it has {len(text)} characters; at most {MAX_IMAGE_LENGTH} are possible"
        )
    if "://" in text:
        raise _fault(text, "a reference has no scheme: remove everything up to ://")
    name, has_digest, digest_text = text.partition("@")
    digest = _digest(text, digest_text) if has_digest else None
    registry, path = _split_registry(name)
    _check_registry(text, registry)
    repository, has_tag, tag = path.partition(":")
    _check_repository(text, repository)
    if has_tag and not re.fullmatch(_TAG, tag):
        raise _fault(
            text,
            f'"{truncate(tag)}" is no tag: up to 128 letters, digits, "_", "." and "-" are possible,'
            ' with no "." or "-" in front',
        )
    if registry in _ALIASES:
        registry = DEFAULT_REGISTRY
        repository = repository if "/" in repository else f"{_DEFAULT_NAMESPACE}/{repository}"
    return ImageReference(
        registry=registry, repository=repository, tag=tag if has_tag else None, digest=digest
    )


def _fault(text: str, cause: str) -> ImageReferenceError:
    return ImageReferenceError(f'"{truncate(text)}" names no image: {cause}')


def _digest(text: str, digest: str) -> Digest:
    found = parse_digest(digest)
    if found is None:
        raise _fault(
            text, f'"{truncate(digest)}" is no digest: write sha256: and 64 lower-case hex digits'
        )
    return found


def _split_registry(name: str) -> tuple[str, str]:
    """Return the registry and what follows it; a first part without a dot, port or capital is none."""
    first, has_slash, remaining = name.partition("/")
    is_registry = has_slash and (
        "." in first or ":" in first or first == "localhost" or first != first.lower()
    )
    return (first, remaining) if is_registry else (DEFAULT_REGISTRY, name)


def _check_registry(text: str, registry: str) -> None:
    if not re.fullmatch(_REGISTRY, registry):
        raise _fault(text, f'"{truncate(registry)}" is no registry: write a host and perhaps :port')
    host, _, port = registry.rpartition(":") if registry[-1] != "]" else (registry, "", "")
    if port and host and not 0 < int(port) <= _MAX_PORT:
        raise _fault(text, f"port {port} is not between 1 and {_MAX_PORT}")
    if registry[0] == "[":
        try:
            ipaddress.IPv6Address(registry[1 : registry.index("]")])
        except ValueError:
            raise _fault(text, f'"{truncate(registry)}" is no IPv6 address') from None


def _check_repository(text: str, repository: str) -> None:
    if len(repository) > MAX_REPOSITORY_LENGTH:
        raise _fault(
            text,
            f"its repository has {len(repository)} characters; at most {MAX_REPOSITORY_LENGTH}"
            " are possible",
        )
    if not re.fullmatch(_REPOSITORY, repository):
        raise _fault(
            text,
            f'"{truncate(repository)}" is no repository: lower-case letters and digits are possible,'
            ' with single ".", "_", "__" or "-" between them, in parts separated by "/"',
        )
    if re.fullmatch("[0-9a-f]{64}", repository):
        raise _fault(text, "64 hex digits alone look like an id of an image: add its repository")
