"""The image of a kernel cache from a directory: its files are read, and the image is pushed or written as a layout."""

import asyncio
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from api.kinds.gkmcache import KernelTarget
from cli.registry_access import RegistryAccess
from http_edge.system_clock import SystemClock
from kernelcache.image_format import OCI_CONFIG, OCI_MANIFEST
from kernelcache.image_packing import (
    CacheFile,
    PackingError,
    describing_files,
    image_config,
    image_manifest,
    pack_cache,
)
from oci.blob_source import BlobSource
from oci.image_layout import write_image_layout
from oci.layer_archive import write_layer
from oci.registry_client import RegistryClient
from oci.registry_connections import RegistryConnections
from oci.registry_push import RegistryPush
from oci.signature_push import SignaturePush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.image_reference import Digest, ImageReference
    from kernelcache.signatures.signing_keys import SigningKey
    from oci.docker_config import DockerConfig


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheImageRequest:
    """What becomes an image, and how its registry is reached."""

    directory: Path
    reference: "ImageReference"
    targets: tuple[KernelTarget, ...]
    architecture: str
    access: RegistryAccess
    signing_key: "SigningKey | None"
    """Whose signature is pushed behind the image."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    blobs: tuple[BlobSource, ...]
    manifest: BlobSource


def push_cache_image(request: CacheImageRequest) -> "Digest":
    """Pack, push, sign where there is a key, and return the digest of the manifest.

    Raises:
        PackingError: the directory is no cache.
        SignatureListError: what is there of signatures is malformed, or full.
        RegistryError: the registry, or the credentials.
        OSError: a file cannot be read.
    """
    credentials = request.access.credentials()
    with _packed(request) as image:
        return asyncio.run(_push(request, credentials, image))


def write_cache_layout(request: CacheImageRequest, out: Path) -> "Digest":
    """Pack, write an OCI layout, and return the digest of the manifest.

    Raises:
        PackingError: the directory is no cache.
        LayoutExistsError: the directory of the layout has files.
        OSError: a file cannot be read or written.
    """
    with _packed(request) as image:
        write_image_layout(out, request.reference, blobs=image.blobs, manifest=image.manifest)
    return image.manifest.descriptor.digest


async def _push(request: CacheImageRequest, credentials: "DockerConfig", image: _Image) -> "Digest":
    async with RegistryConnections(request.access.settings(request.reference)) as connections:
        push = RegistryPush(connections, credentials, SystemClock())
        pushed = await push.push(request.reference, image.blobs, image.manifest)
        if request.signing_key is not None:
            client = RegistryClient(connections, credentials, SystemClock())
            signing = SignaturePush(client, push)
            await signing.sign(request.reference, pushed, request.signing_key)
    return pushed.digest


@contextmanager
def _packed(request: CacheImageRequest) -> "Iterator[_Image]":
    """Return the image; its layer is a temporary file until the context ends."""
    files = _files_of(request.directory)
    contents = {
        item.path: (request.directory / item.path).read_bytes() for item in describing_files(files)
    }
    title = request.reference.repository.rpartition("/")[2]
    packed = pack_cache(files, contents, title=title, targets=request.targets)
    sources: dict[str, bytes | Path] = {
        packed.path_of(item): request.directory / item.path for item in packed.files
    }
    sources[packed.type.manifest_file] = packed.manifest_json
    with tempfile.NamedTemporaryFile(prefix="kernel-cache-", suffix=".tar.gz") as file:
        layer = write_layer(file, sources)
        file.flush()
        config = BlobSource.of(
            OCI_CONFIG,
            image_config(packed, architecture=request.architecture, diff_id=layer.diff_id),
        )
        manifest = image_manifest(config.descriptor, layer.descriptor)
        yield _Image(
            blobs=(BlobSource(descriptor=layer.descriptor, content=Path(file.name)), config),
            manifest=BlobSource.of(OCI_MANIFEST, manifest),
        )


def _files_of(directory: Path) -> list[CacheFile]:
    """Return all files; links and special files are refused, since a cache has none."""
    found: list[CacheFile] = []
    waiting = [directory]
    while waiting:
        for entry in sorted(waiting.pop().iterdir()):
            status = entry.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting.append(entry)
                continue
            path = entry.relative_to(directory).as_posix()
            if not stat.S_ISREG(status.st_mode):
                kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
                raise PackingError(
                    f"{path} is {kind}: a cache has files and directories only;"
                    " remove it, or copy what it leads to"
                )
            found.append(CacheFile(path=path, size=status.st_size))
    return found
