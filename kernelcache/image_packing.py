"""The image of a kernel cache from a listing of its files: type, targets, labels, the layer's entries, config and manifest.

The format is the one that `kernelcache.image_format` reads: MCV's variant "compat" (GKM, mcv/docs/spec-compat.md).
The same files give the same bytes: everything is sorted, and no time is written. Files are read and written
elsewhere; here are their names, their sizes and the few that describe the cache.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.field_errors import UNDECODABLE
from api.kinds.gkmcache import KernelTarget
from api.text import listed
from kernelcache.image_format import (
    MAX_TARGETS,
    OCI_MANIFEST,
    BlobDescriptor,
    CacheType,
    descriptor_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.image_reference import Digest

MAX_DESCRIBING_BYTES: Final = 1024 * 1024
"""Most bytes of a JSON file that is looked into; Triton's have a few kilobytes."""
_EPOCH: Final = "1970-01-01T00:00:00Z"
_VLLM_ROOT: Final = "torch_compile_cache"
_VLLM_AHEAD_OF_TIME: Final = "torch_aot_compile"
_VLLM_FACTORS: Final = "cache_key_factors.json"
_TRITON_GROUP: Final = "__grp__"
_TRITON_SUFFIXES: Final = (".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco")
_SECRET_NAME: Final = re.compile("(API_KEY|TOKEN|SECRET|PASSWORD)$")
_KERNEL_FIELDS: Final = ("ptx_version", "num_stages", "num_warps", "debug")


class PackingError(ValueError):
    """The directory is no kernel cache that can be packed; the message says why."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CacheFile:
    """A regular file of the directory."""

    path: str
    """Relative to the directory, with slashes."""
    size: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCache:
    """What goes into the image, but for the content of the files."""

    type: CacheType
    targets: tuple[KernelTarget, ...]
    files: "tuple[CacheFile, ...]"
    manifest_json: bytes
    """Content of the type's `manifest_file`."""
    labels: "Mapping[str, str]"

    def path_of(self, file: CacheFile) -> str:
        """Return where a file is in the layer."""
        return self.type.cache_directory + file.path


class _Target(msgspec.Struct):
    backend: str
    arch: str | int
    warp_size: int


class _Kernel(msgspec.Struct):
    """Triton's metadata of one kernel; other files have no `hash` and no `target`."""

    hash: str
    target: _Target
    ptx_version: int | None = None
    num_stages: int | None = None
    num_warps: int | None = None
    debug: bool | None = None


class _Factors(msgspec.Struct):
    env: dict[str, Any] = {}


def describing_files(files: "Iterable[CacheFile]") -> list[CacheFile]:
    """Return the files whose content `pack_cache` needs."""
    return sorted(
        file
        for file in files
        if file.path.endswith(".json")
        and not _name(file.path).startswith(_TRITON_GROUP)
        and file.size <= MAX_DESCRIBING_BYTES
    )


def pack_cache(
    files: "Iterable[CacheFile]",
    contents: "Mapping[str, bytes]",
    *,
    title: str,
    targets: "Sequence[KernelTarget]" = (),
) -> PackedCache:
    """Return the image's parts for a directory.

    Args:
        files: all files of the directory.
        contents: of the `describing_files`, by path.
        title: the image's name for people.
        targets: what the kernels were compiled for, where the files do not say it (vLLM's binary form).

    Raises:
        PackingError: the directory is no cache, does not say what it was compiled for, or holds a secret.
    """
    ordered = tuple(sorted(files))
    type_ = detect_type(item.path for item in ordered)
    _check_secrets(contents)
    kernels = {
        path: kernel
        for path, content in sorted(contents.items())
        if (kernel := _kernel(content)) is not None
    }
    found = sorted({_target(item.target) for item in kernels.values()} | set(targets))
    if not found:
        raise PackingError(
            f"none of {len(contents)} JSON files has Triton's hash and target {{backend, arch, warp_size}}:"
            " say what the kernels were compiled for with --target, as --target cuda:90:32"
        )
    if len(found) > MAX_TARGETS:
        raise PackingError(f"it is for {len(found)} targets; at most {MAX_TARGETS} are possible")
    if type_ is CacheType.TRITON:
        entries = [_entry(kernel) for kernel in kernels.values()]
    else:
        entries = _vllm_entries(ordered, kernels)
    labels = {
        type_.entry_count_label: str(len(entries)),
        type_.summary_label: _json({"targets": [_summary(item) for item in found]}).decode(),
        type_.size_label: str(sum(item.size for item in ordered)),
        "org.opencontainers.image.title": title,
    }
    if type_ is CacheType.VLLM:
        formats = sorted({entry["cacheFormat"] for entry in entries})
        labels["cache.vllm.image/format"] = ",".join(formats)
    return PackedCache(
        type=type_,
        targets=tuple(found),
        files=ordered,
        manifest_json=_json({type_.value: entries}),
        labels=dict(sorted(labels.items())),
    )


def detect_type(paths: "Iterable[str]") -> CacheType:
    """Return the type by the directory's shape.

    Raises:
        PackingError: it has neither shape, or both side by side.
    """
    parts = [path.split("/") for path in paths]
    if not parts:
        raise PackingError("the directory has no files: give the directory of a compiled cache")
    is_vllm = any(part[0] == _VLLM_ROOT and len(part) > 2 for part in parts)
    is_triton = any(len(part) == 2 and _is_of_triton(part[1]) for part in parts)
    match is_triton, is_vllm:
        case True, False:
            return CacheType.TRITON
        case False, True:
            return CacheType.VLLM
        case True, True:
            raise PackingError(
                f"the directory has Triton's <hash>/ and vLLM's {_VLLM_ROOT}/: pack each by itself"
            )
        case _:
            top = listed({part[0] for part in parts})
            raise PackingError(
                f"the directory is no kernel cache: it has {top}, and neither Triton's"
                f" <hash>/<kernel>.json with its objects nor vLLM's {_VLLM_ROOT}/"
            )


def image_config(packed: PackedCache, *, architecture: str, diff_id: "Digest") -> bytes:
    """Return the image's configuration.

    Args:
        packed: the cache.
        architecture: of the CPU, since launchers are shared objects; as OCI names it.
        diff_id: digest of the layer before it was compressed.
    """
    return _json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": _EPOCH,
            "config": {"Labels": packed.labels},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created": _EPOCH, "created_by": "gpu-control-plane cache pack"}],
        }
    )


def image_manifest(config: BlobDescriptor, layer: BlobDescriptor) -> bytes:
    """Return the manifest of the image."""
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor_json(config),
            "layers": [descriptor_json(layer)],
        }
    )


def parse_target(text: str) -> KernelTarget:
    """Return the target of `BACKEND:ARCH:WARP_SIZE`, as `cuda:90:32` or `hip:gfx942:64`.

    Raises:
        PackingError: it is none.
    """
    match = re.fullmatch(r"([a-z]{1,64}):([A-Za-z0-9_]{1,64}):([0-9]{1,4})", text)
    if match is None or not 1 <= int(match[3]) <= 1024:
        raise PackingError(
            f'"{text}" is no target: write BACKEND:ARCH:WARP_SIZE, as cuda:90:32 or hip:gfx942:64'
        )
    return KernelTarget(backend=match[1], arch=match[2], warp_size=int(match[3]))


def _is_of_triton(name: str) -> bool:
    return name.startswith(_TRITON_GROUP) or name.endswith(_TRITON_SUFFIXES)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _kernel(content: bytes) -> _Kernel | None:
    try:
        kernel = msgspec.json.decode(content, type=_Kernel)
    except UNDECODABLE:
        return None  # another file, whose form is its program's own
    is_usable = kernel.hash and kernel.target.backend and 1 <= kernel.target.warp_size <= 1024
    return kernel if is_usable else None


def _target(target: _Target) -> KernelTarget:
    return KernelTarget(backend=target.backend, arch=str(target.arch), warp_size=target.warp_size)


def _summary(target: KernelTarget) -> dict[str, Any]:
    return {"backend": target.backend, "arch": target.arch, "warp_size": target.warp_size}


def _entry(kernel: _Kernel) -> dict[str, Any]:
    options = {name: getattr(kernel, name) for name in _KERNEL_FIELDS}
    set_options = {name: value for name, value in options.items() if value is not None}
    return {"hash": kernel.hash, **_summary(_target(kernel.target)), **set_options}


def _vllm_entries(
    files: "Sequence[CacheFile]", kernels: "Mapping[str, _Kernel]"
) -> list[dict[str, Any]]:
    """Return an entry for each hash of vLLM, and each form in which it is there."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        parts = file.path.split("/")
        if parts[0] != _VLLM_ROOT or len(parts) < 3:
            continue
        if parts[1] == _VLLM_AHEAD_OF_TIME:
            if len(parts) > 3:
                found[parts[2], "aot_compile"]
        elif "triton_cache" in parts:
            found[parts[1], "triton"] += (
                [_entry(kernels[file.path])] if file.path in kernels else []
            )
        elif "inductor_cache" not in parts:
            found[parts[1], "binary"]
    unpacked = {vllm_hash for vllm_hash, form in found if form == "triton"}
    return [
        {"vllmHash": vllm_hash, "cacheFormat": form, **({"triton": triton} if triton else {})}
        for (vllm_hash, form), triton in sorted(found.items(), key=lambda item: item[0])
        # Beside unpacked kernels, the other files of the same hash are their index.
        if form != "binary" or vllm_hash not in unpacked
    ]


def _check_secrets(contents: "Mapping[str, bytes]") -> None:
    """Refuse what vLLM writes of its environment, if there is a secret in it.

    Raises:
        PackingError: there is one; the message has its name only.
    """
    for path, content in sorted(contents.items()):
        if _name(path) != _VLLM_FACTORS:
            continue
        try:
            env = msgspec.json.decode(content, type=_Factors).env
        except UNDECODABLE as error:
            raise PackingError(f"{path} is malformed: compile the cache again") from error
        secrets = [name for name, value in env.items() if value and _SECRET_NAME.search(name)]
        if secrets:
            raise PackingError(
                f"{path} holds {listed(secrets)}, which everyone who may pull the image could read:"
                " compile the cache without it in the environment"
            )


def _json(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
