"""The image of an index that is for a platform, and other things that indices list. Pure."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec
from msgspec import Meta

from api.field_errors import UNDECODABLE
from api.image_reference import DIGEST_PATTERN, Digest
from api.text import listed
from kernelcache.image_format import DOCKER_INDEX, OCI_INDEX, BlobDescriptor
from oci.errors import PlatformMissing, UnusableContent
from oci.registry_settings import MAX_INDEX_ENTRIES, MAX_LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping

_CURE: Final = "push the image again with a present tool"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlatform:
    """What an image runs on, in Go's words."""

    os: str = "linux"
    architecture: str = "amd64"

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """What an index or a list of referrers says of a manifest."""

    descriptor: BlobDescriptor
    platform: ImagePlatform | None = None
    artifact_type: str = ""
    """What the list says; go-containerregistry gives the type of the configuration, and the manifest decides."""
    annotations: "Mapping[str, str]" = field(default_factory=dict)


class _Platform(msgspec.Struct, frozen=True):
    os: str = ""
    architecture: str = ""


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    digest: Annotated[str, Meta(pattern=DIGEST_PATTERN, max_length=71)]
    size: Annotated[int, Meta(ge=0)]
    media_type: str = ""
    artifact_type: str = ""
    platform: _Platform | None = None
    annotations: dict[str, str] | None = None


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""
    manifests: list[_Entry] | None = None
    layers: list[msgspec.Raw] | None = None


_DECODER: Final = msgspec.json.Decoder(_Manifest)


def read_index(name: str, media_type: str, content: bytes) -> tuple[IndexEntry, ...] | None:
    """Return the entries of an index, or None where the manifest is one of an image.

    Raises:
        UnusableContent: it is neither, or larger than what is read.
    """
    try:
        manifest = _DECODER.decode(content)
    except UNDECODABLE as error:
        raise UnusableContent(name, f"the manifest is malformed: {error}", _CURE) from error
    if manifest.manifests is None:
        if (manifest.media_type or media_type) in {OCI_INDEX, DOCKER_INDEX}:
            raise UnusableContent(name, "the index has no list of manifests", _CURE)
        _check_count(name, "layers", len(manifest.layers or ()), limit=MAX_LAYERS)
        return None
    if manifest.layers is not None:
        raise UnusableContent(name, "the manifest is both an index and an image", _CURE)
    _check_count(name, "entries", len(manifest.manifests), limit=MAX_INDEX_ENTRIES)
    return tuple(map(_entry, manifest.manifests))


def choose_platform(
    name: str, entries: tuple[IndexEntry, ...], platform: ImagePlatform
) -> BlobDescriptor:
    """Return the image for the platform: the first of those that name it, else a single one that names none.

    Raises:
        PlatformMissing: the index has none.
    """
    found = [entry for entry in entries if entry.platform == platform]
    unnamed = [entry for entry in entries if entry.platform is None]
    if not found and len(unnamed) == 1 == len(entries):
        found = unnamed
    if not found:
        there = listed({str(entry.platform or "no platform") for entry in entries}) or "nothing"
        raise PlatformMissing(
            name, f"the index has no image for {platform}; it has {there}", "build one for it"
        )
    return found[0].descriptor


def _entry(entry: _Entry) -> IndexEntry:
    platform = entry.platform
    return IndexEntry(
        descriptor=BlobDescriptor(
            media_type=entry.media_type, digest=Digest(entry.digest), size=entry.size
        ),
        platform=ImagePlatform(os=platform.os, architecture=platform.architecture)
        if platform is not None
        else None,
        artifact_type=entry.artifact_type,
        annotations=entry.annotations or {},
    )


def _check_count(name: str, noun: str, count: int, *, limit: int) -> None:
    if count > limit:
        raise UnusableContent(
            name,
            f"it has {count} {noun}; at most {limit} are read",
            "check that this is the image meant",
        )
