"""Images without a registry: OCI layout tars made by hand.

Names need a registry's part, or containerd takes them for Docker Hub's: `localhost/busybox:1`. A pod
that uses one says `imagePullPolicy: Never`.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

from image import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"

_EMPTY = ("dev", "etc", "proc", "run", "sys", "tmp", "var")
_ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def applets_of(busybox: "Path") -> list[str]:
    """Return the programs that a busybox plays, but for itself."""
    listed = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name != "busybox"]


def write_busybox_image(
    tar: "Path",
    busybox: "Path",
    *,
    name: str,
    applets: "Sequence[str]",
    command: "Sequence[str]",
    files: "Mapping[str, bytes] | None" = None,
    env: "Mapping[str, str] | None" = None,
) -> None:
    """Write an image of a static busybox: /bin with a link for each applet, accounts, mount points.

    `files` are added, those in bin/ as programs, and `env` to its environment.
    """
    layer = _layer(
        {"bin/busybox": busybox.read_bytes(), **_ACCOUNTS, **(files or {})},
        links={f"bin/{applet}": "busybox" for applet in applets},
    )
    variables = {"PATH": "/bin", **(env or {})}
    settings = {"Env": [f"{key}={value}" for key, value in variables.items()]}
    write_image(tar, layer, name=name, settings={**settings, "Cmd": list(command)})


def write_program_image(tar: "Path", program: "Path", *, name: str, scratch: "Path") -> None:
    """Write an image of one static program, found in its path, without anything else in it.

    Args:
        tar: OCI layout.
        program: taken as it is.
        name: of the image.
        scratch: an empty directory on the file system of the program.
    """
    path = f"usr/local/bin/{program.name}"
    (scratch / path).parent.mkdir(parents=True)
    (scratch / path).hardlink_to(program)
    image = layout.build_image(
        {program.name: layout.build_layer([layout.Tree(scratch)], directories=_EMPTY)},
        architecture=_ARCHITECTURES[platform.machine()],
        run={"Env": ["PATH=/usr/local/bin"], "Entrypoint": [program.name]},
        labels={},
    )
    layout.write_layout(tar, [image], name=name)


def write_image(tar: "Path", layer: bytes, *, name: str, settings: "Mapping[str, Any]") -> None:
    """Write an OCI layout of one uncompressed layer; `settings` are the `config` of its config."""
    blobs: dict[str, bytes] = {}

    def add(content: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    layer_descriptor = add(layer, _LAYER)
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": dict(settings),
        "rootfs": {"type": "layers", "diff_ids": [layer_descriptor["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": add(_json(config), _CONFIG),
        "layers": [layer_descriptor],
    }
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                **add(_json(manifest), _MANIFEST),
                # The full name: `ctr images import` takes it as it is.
                "annotations": {"io.containerd.image.name": name},
            }
        ],
    }
    with tarfile.open(tar, "w") as archive:
        for path, content in {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json(index),
            **blobs,
        }.items():
            _add_file(archive, path, content, mode=0o644)


def _layer(files: "Mapping[str, bytes]", *, links: "Mapping[str, str]") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in ("bin", *_EMPTY):
            directory = tarfile.TarInfo(path)
            directory.type = tarfile.DIRTYPE
            directory.mode = 0o1777 if path == "tmp" else 0o755
            archive.addfile(directory)
        for path, content in files.items():
            _add_file(archive, path, content, mode=0o755 if path.startswith("bin/") else 0o644)
        for path, target in links.items():
            link = tarfile.TarInfo(path)
            link.type = tarfile.SYMTYPE
            link.linkname = target
            archive.addfile(link)
    return buffer.getvalue()


def _add_file(archive: tarfile.TarFile, path: str, content: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def _json(value: "Mapping[str, Any]") -> bytes:
    return json.dumps(value, sort_keys=True).encode()
