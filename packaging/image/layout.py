"""Layers and the OCI image layout, reproducible byte by byte.

github.com/opencontainers/image-spec: image-layout.md, manifest.md, config.md, layer.md. Layers are
not compressed, since the output of a compressor depends on its version; registries and clients
compress them.
"""

import hashlib
import io
import stat
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
EPOCH: Final = "1970-01-01T00:00:00Z"
"""Time of an image whose time is not known."""


@final
@dataclass(frozen=True, slots=True)
class Blob:
    """A content-addressed part of the image."""

    media_type: str
    content: bytes
    digest: str

    @classmethod
    def of(cls, media_type: str, content: bytes) -> "Blob":
        return cls(media_type, content, f"sha256:{hashlib.sha256(content).hexdigest()}")

    def descriptor(self, **more: object) -> dict[str, Any]:
        """Return the descriptor by which other parts refer to the blob."""
        return {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": len(self.content),
            **more,
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image for one architecture."""

    architecture: str
    manifest: Blob
    config: Blob
    layers: "tuple[Blob, ...]"

    @property
    def size(self) -> int:
        """Bytes of the layers, which are not compressed."""
        return sum(len(layer.content) for layer in self.layers)

    def platform(self) -> dict[str, str]:
        """Return the platform as an index names it."""
        variant = {"variant": "v8"} if self.architecture == "arm64" else {}
        return {"architecture": self.architecture, "os": "linux", **variant}


@final
@dataclass(frozen=True, slots=True)
class Tree:
    """A directory whose content goes into a layer."""

    source: "Path"
    at: str = ""
    """Path in the image, without slashes at its ends; the root by default."""
    is_selected: "Callable[[str], bool]" = lambda _: True
    """Called for each path relative to the source; an unwanted directory is not entered."""


def build_layer(trees: "Iterable[Tree]", *, directories: "Sequence[str]" = ()) -> Blob:
    """Return a layer of directory contents, and of further empty directories.

    Owner root, time 0, modes 0755 or 0644; hard links become files.
    """
    found: dict[str, Path | None] = dict.fromkeys(directories)
    for tree in trees:
        found |= _files_of(tree)
    parents = {str(parent) for path in found for parent in _parents(path)}
    for parent in parents - found.keys():
        found[parent] = None
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(found):
            _add(archive, path, found[path])
    return Blob.of(_LAYER, out.getvalue())


def build_image(
    layers: "Mapping[str, Blob]",
    *,
    architecture: str,
    run: "Mapping[str, Any]",
    labels: "Mapping[str, str]",
    created: str = EPOCH,
) -> Image:
    """Return an image of layers, lowest first, by the text that its history says of each.

    Args:
        layers: by description.
        architecture: as OCI names it.
        run: the configuration of processes.
        labels: also the annotations of the manifest.
        created: RFC 3339.
    """
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {**run, "Labels": dict(labels)},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers.values()]},
        "history": [{"created": created, "created_by": layer} for layer in layers],
    }
    described = Blob.of(_CONFIG, msgspec.json.encode(config))
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": described.descriptor(),
        "layers": [layer.descriptor() for layer in layers.values()],
        "annotations": dict(labels),
    }
    return Image(
        architecture=architecture,
        manifest=Blob.of(_MANIFEST, msgspec.json.encode(manifest)),
        config=described,
        layers=tuple(layers.values()),
    )


def build_index(images: "Sequence[Image]", *, annotations: "Mapping[str, str]") -> Blob:
    """Return the index from which a runtime takes the image of its architecture."""
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [image.manifest.descriptor(platform=image.platform()) for image in images],
        "annotations": dict(annotations),
    }
    return Blob.of(_INDEX, msgspec.json.encode(index))


def write_layout(out: "Path", images: "Sequence[Image]", *, name: str) -> Blob:
    """Write images as a tar of an OCI layout, under one full name, atomically.

    Return what the name stands for: the manifest of a single image, or the index of several. The
    index has the annotations of the first image.
    """
    blobs = [blob for image in images for blob in (image.manifest, image.config, *image.layers)]
    if len(images) == 1:
        named = images[0].manifest
        platform: dict[str, Any] = {"platform": images[0].platform()}
    else:
        manifest = msgspec.json.decode(images[0].manifest.content)
        named = build_index(images, annotations=manifest["annotations"])
        platform = {}
        blobs.append(named)
    annotations = {
        # containerd takes the whole name from the first, others the tag from the second.
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [named.descriptor(**platform, annotations=annotations)],
    }
    files = {
        "oci-layout": msgspec.json.encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": msgspec.json.encode(index),
    } | {f"blobs/{item.digest.replace(':', '/')}": item.content for item in blobs}
    part = out.with_name(f".{out.name}.part")
    try:
        with tarfile.open(part, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for directory in ("blobs", "blobs/sha256"):
                _add(archive, directory, None)
            for path, content in sorted(files.items()):
                _add_file(archive, path, content)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return named


def _files_of(tree: Tree) -> "dict[str, Path | None]":
    found: dict[str, Path | None] = {}
    waiting = [tree.source]
    while waiting:
        for entry in waiting.pop().iterdir():
            path = entry.relative_to(tree.source).as_posix()
            if not tree.is_selected(path):
                continue
            found[f"{tree.at}/{path}".lstrip("/")] = entry
            if entry.is_dir() and not entry.is_symlink():
                waiting.append(entry)
    return found


def _parents(path: str) -> "list[str]":
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _add(archive: tarfile.TarFile, path: str, source: "Path | None") -> None:
    """Add the file at the source, or a directory if there is none."""
    if source is not None and source.is_symlink():
        link = tarfile.TarInfo(path)
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, str(source.readlink()), 0o777
        archive.addfile(link)
    elif source is None or source.is_dir():
        directory = tarfile.TarInfo(path)
        directory.type = tarfile.DIRTYPE
        directory.mode = 0o1777 if path in {"tmp", "var/tmp"} else 0o755
        archive.addfile(directory)
    else:
        is_program = bool(source.stat().st_mode & stat.S_IXUSR)
        _add_file(archive, path, source.read_bytes(), is_program=is_program)


def _add_file(
    archive: tarfile.TarFile, path: str, content: bytes, *, is_program: bool = False
) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(content)
    info.mode = 0o755 if is_program else 0o644
    archive.addfile(info, io.BytesIO(content))
