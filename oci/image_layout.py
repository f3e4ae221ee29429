"""An image as an OCI image layout: a directory, or a tar of it.

github.com/opencontainers/image-spec, image-layout.md. The tar is the same for the same image.
"""

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kernelcache.image_format import OCI_INDEX, descriptor_json
from oci.tar_entries import add_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.image_reference import ImageReference
    from oci.blob_source import BlobSource

_TAR: Final = ".tar"


class LayoutExistsError(Exception):
    """The directory has files already."""


def write_image_layout(
    out: Path,
    reference: "ImageReference",
    *,
    blobs: "Sequence[BlobSource]",
    manifest: "BlobSource",
) -> None:
    """Write an image under its name, atomically: as a tar where the path ends in .tar, else as a directory.

    Raises:
        LayoutExistsError: the directory is there and is not empty. A tar is replaced.
        OSError: it cannot be written, or a blob cannot be read.
    """
    files = _files(reference, blobs, manifest)
    if out.suffix == _TAR:
        _write_tar(out, files)
    else:
        _write_directory(out, files)


def _files(
    reference: "ImageReference", blobs: "Sequence[BlobSource]", manifest: "BlobSource"
) -> "dict[str, bytes | Path]":
    annotations = {
        # containerd takes the whole name from the first, others the tag from the second.
        "io.containerd.image.name": str(reference),
        "org.opencontainers.image.ref.name": reference.tag_or_digest,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{**descriptor_json(manifest.descriptor), "annotations": annotations}],
    }
    return {
        "oci-layout": msgspec.json.encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": msgspec.json.encode(index, order="sorted"),
    } | {
        f"blobs/{blob.descriptor.digest.replace(':', '/')}": blob.content
        for blob in (*blobs, manifest)
    }


def _write_tar(out: Path, files: "Mapping[str, bytes | Path]") -> None:
    part = out.with_name(f".{out.name}.part")
    try:
        with tarfile.open(part, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, content in sorted(files.items()):
                add_file(tar, path, content)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _write_directory(out: Path, files: "Mapping[str, bytes | Path]") -> None:
    if out.exists() and any(out.iterdir()):
        raise LayoutExistsError(f"{out} is there and has files: name another directory")
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for path, content in files.items():
            target = part / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                target.write_bytes(content)
            else:
                shutil.copyfile(content, target)
        part.chmod(0o755)
        # Over an empty directory a rename is possible.
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
