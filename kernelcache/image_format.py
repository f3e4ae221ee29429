"""The format of a kernel cache's image (MCV's variant "compat"): labels of the configuration, one layer, its directories.

The kind of the manifest does not matter: OCI's, Docker's schema 2, or OCI's with Docker's layers. The layer's
media type decides. The labels say what the cache is for; the configuration that holds them is the one that the
manifest names by digest, so that a signature of the manifest covers them.

What the layer's archive holds is checked where it is extracted.
"""

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, final

import msgspec
from msgspec import Meta

from api.field_errors import UNDECODABLE
from api.image_reference import DIGEST_PATTERN, Digest
from api.kinds.gkmcache import CacheImageFacts, KernelTarget
from api.text import listed, truncate

OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
OCI_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"

MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a manifest, as registries limit manifests (OCI distribution specification)."""
MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
MAX_TARGETS: Final = 256
"""Architectures that one image names; compilers know some 20."""
_MAX_WORD: Final = 64
_MAX_INT64: Final = 2**63 - 1


@final
class CacheType(Enum):
    """What compiled the kernels."""

    TRITON = "triton"
    VLLM = "vllm"

    @property
    def cache_directory(self) -> str:
        """Return the prefix of the cache's files in the layer."""
        return f"io.{self.value}.cache/"

    @property
    def manifest_file(self) -> str:
        """Return the file of the layer that lists the cache's entries."""
        return f"io.{self.value}.manifest/manifest.json"

    @property
    def legacy_layer(self) -> str:
        """Return the media type of the layer in images of the older variant; a tar+gzip all the same."""
        return f"application/cache.{self.value}.content.layer.v1+{self.value}"

    @property
    def summary_label(self) -> str:
        return f"cache.{self.value}.image/summary"

    @property
    def entry_count_label(self) -> str:
        return f"cache.{self.value}.image/entry-count"

    @property
    def size_label(self) -> str:
        return f"cache.{self.value}.image/cache-size-bytes"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlobDescriptor:
    """A blob of a registry."""

    media_type: str
    digest: Digest
    size: int
    """Bytes of the blob, which is compressed."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheImage:
    """What an image says about its kernel cache."""

    type: CacheType
    targets: tuple[KernelTarget, ...]
    """Targets of the image: at least one, each once, in the image's order."""
    layer: BlobDescriptor
    size_bytes: int | None
    """Bytes of the extracted files, where the image says them; a claim, not a limit."""
    entry_count: int | None
    """Kernels of the cache, where the image says it."""


def descriptor_json(blob: BlobDescriptor) -> dict[str, Any]:
    """Return a descriptor as manifests and indices have it."""
    return {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}


class CacheImageError(ValueError):
    """The image is no kernel cache; the message says why."""


_DigestText = Annotated[str, Meta(pattern=DIGEST_PATTERN, max_length=71)]
"""With a length, since `$` also matches before a line feed."""


class _Blob(msgspec.Struct, rename="camel"):
    media_type: Annotated[str, Meta(max_length=255)]
    digest: _DigestText
    size: Annotated[int, Meta(ge=0, le=_MAX_INT64)]


class _Manifest(msgspec.Struct, rename="camel"):
    config: _Blob
    layers: list[_Blob]


class _Versions(msgspec.Struct, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    manifests: msgspec.Raw = msgspec.Raw()


class _Settings(msgspec.Struct):
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Config(msgspec.Struct):
    config: _Settings | None = None


_Word = Annotated[str, Meta(min_length=1, max_length=_MAX_WORD)]


class _Target(msgspec.Struct):
    backend: _Word
    arch: _Word
    warp_size: Annotated[int, Meta(ge=1, le=1024)]


class _Summary(msgspec.Struct):
    targets: Annotated[list[_Target], Meta(min_length=1, max_length=MAX_TARGETS)]


_versions = msgspec.json.Decoder(_Versions)
_manifests = msgspec.json.Decoder(_Manifest)
_configs = msgspec.json.Decoder(_Config)
_summaries = msgspec.json.Decoder(_Summary)


def config_descriptor(manifest: bytes) -> BlobDescriptor:
    """Return the blob of the image's configuration, which `read_cache_image` wants beside the manifest.

    Raises:
        CacheImageError: the manifest is none of an image.
    """
    return _descriptor(_manifest(manifest).config)


def read_cache_image(manifest: bytes, config: bytes) -> CacheImage:
    """Return what an image says about its kernel cache.

    Args:
        manifest: the image's manifest, of one platform.
        config: the configuration that the manifest names; its digest is checked.

    Raises:
        CacheImageError: the image is no kernel cache.
    """
    parts = _manifest(manifest)
    labels = _labels(parts.config, config)
    type_ = _type(labels)
    return CacheImage(
        type=type_,
        targets=_targets(type_.summary_label, labels[type_.summary_label]),
        layer=_layer(type_, parts.layers),
        size_bytes=_figure(type_.size_label, labels),
        entry_count=_figure(type_.entry_count_label, labels),
    )


def _manifest(manifest: bytes) -> _Manifest:
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise CacheImageError(
            f"the manifest has {len(manifest)} bytes; at most {MAX_MANIFEST_BYTES} are read"
        )
    try:
        versions = _versions.decode(manifest)
        if versions.media_type in {OCI_INDEX, DOCKER_INDEX} or bytes(versions.manifests):
            raise CacheImageError(
                "the manifest is an index of images: read the one of the node's platform"
            )
        if versions.schema_version != 2:
            raise CacheImageError(
                f"the manifest has schemaVersion {versions.schema_version}; only 2 is read:"
                " push the image again with a present tool"
            )
        return _manifests.decode(manifest)
    except UNDECODABLE as error:
        raise CacheImageError(f"the manifest is malformed: {truncate(str(error))}") from error


def _labels(blob: _Blob, config: bytes) -> dict[str, str]:
    if len(config) > MAX_CONFIG_BYTES:
        raise CacheImageError(
            f"the configuration has {len(config)} bytes; at most {MAX_CONFIG_BYTES} are read"
        )
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    if digest != blob.digest:
        raise CacheImageError(f"the configuration is {digest}; the manifest names {blob.digest}")
    try:
        found = _configs.decode(config)
    except UNDECODABLE as error:
        raise CacheImageError(f"the configuration is malformed: {truncate(str(error))}") from error
    return (found.config.labels if found.config is not None else None) or {}


def _type(labels: dict[str, str]) -> CacheType:
    found = [type_ for type_ in CacheType if type_.summary_label in labels]
    if not found:
        summary_labels = " nor ".join(type_.summary_label for type_ in CacheType)
        raise CacheImageError(
            f"the image is no kernel cache: it has neither label {summary_labels}"
        )
    if len(found) > 1:
        both = " and ".join(type_.summary_label for type_ in found)
        raise CacheImageError(f"the image has {both}: build an image for each type of cache")
    return found[0]


def _targets(label: str, text: str) -> tuple[KernelTarget, ...]:
    try:
        summary = _summaries.decode(text)
    except UNDECODABLE as error:
        raise CacheImageError(f"label {label} is malformed: {truncate(str(error))}") from error
    return tuple(
        dict.fromkeys(
            KernelTarget(backend=target.backend, arch=target.arch, warp_size=target.warp_size)
            for target in summary.targets
        )
    )


def _layer(type_: CacheType, layers: list[_Blob]) -> BlobDescriptor:
    if len(layers) != 1:
        raise CacheImageError(
            f"the image has {len(layers)} layers; a kernel cache is one layer: squash the image"
        )
    layer = _descriptor(layers[0])
    accepted = (OCI_LAYER, DOCKER_LAYER, type_.legacy_layer)
    if layer.media_type not in accepted:
        raise CacheImageError(
            f'the layer has media type "{layer.media_type}"; a {type_.value} cache is one of'
            f" {listed(accepted)}"
        )
    if layer.size == 0:
        raise CacheImageError("the layer has 0 bytes: pack the cache again")
    return layer


def _descriptor(blob: _Blob) -> BlobDescriptor:
    return BlobDescriptor(media_type=blob.media_type, digest=Digest(blob.digest), size=blob.size)


def _figure(label: str, labels: dict[str, str]) -> int | None:
    text = labels.get(label)
    if text is None:
        return None
    # 19 digits: the longest number below 2^63.
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > _MAX_INT64:
        raise CacheImageError(f'label {label} is "{truncate(text)}"; it must be a whole number')
    return int(text)


def facts_of(image: CacheImage) -> CacheImageFacts:
    """Return what the image says, as an object keeps it."""
    return CacheImageFacts(
        type=image.type.value,
        targets=list(image.targets),
        layer_bytes=image.layer.size,
        size_bytes=image.size_bytes,
    )
