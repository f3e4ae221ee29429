"""What a call of CSI's Node service asks for, or why it is refused: pure.

A pod mounts GKMCaches of its own namespace, and ClusterGKMCaches. Its namespace is the one that kubelet adds to the
volume's attributes. A user can write such a key too, and it would count where the CSIDriver object does not make
kubelet overwrite it. So the pod's UID, which cannot be known before the pod exists, has to be that of the target path.

kubelet asks for access mode SINGLE_NODE_WRITER for every inline volume; what is mounted is read-only all the same.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, final

from grpc import StatusCode

from api.cache_name import CacheName, CacheNameError, parse_cache_name
from api.csi import names
from api.csi.proto import csi_pb2
from api.text import listed, truncate

if TYPE_CHECKING:
    from collections.abc import Mapping


ATTRIBUTES: Final = frozenset({names.CACHE_ATTRIBUTE, names.NAMESPACE_ATTRIBUTE})

_Mode = csi_pb2.VolumeCapability.AccessMode
ACCESS_MODES: Final = frozenset(
    {_Mode.SINGLE_NODE_WRITER, _Mode.SINGLE_NODE_READER_ONLY, _Mode.MULTI_NODE_READER_ONLY}
)

_VOLUMES: Final = ("volumes", "kubernetes.io~csi")
_PARTS: Final = 5
# <uid>/volumes/kubernetes.io~csi/<volume>/mount


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRefused:
    """The status of a call that is refused; the text becomes that of the pod's Event."""

    code: StatusCode
    text: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishVolume:
    """Mount a cache for a pod."""

    volume: str
    target: Path
    cache: CacheName
    pod: str
    """`namespace/name`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVolume:
    """A volume that exists already, and its path."""

    volume: str
    target: Path


def plan_publish(
    request: "csi_pb2.NodePublishVolumeRequest", pods: Path
) -> "PublishVolume | VolumeRefused":
    """Decide on NodePublishVolume; `pods` is kubelet's directory of pods, as kubelet names it."""
    attributes = request.volume_context
    refused = (
        _missing(volume_id=request.volume_id, target_path=request.target_path)
        or _capability_fault(request)
        or _unknown_attributes(attributes)
        or _pod_fault(attributes)
    )
    if refused is not None:
        return refused
    cache = _cache_of(attributes)
    if isinstance(cache, VolumeRefused):
        return cache
    pod = f"{attributes[names.POD_NAMESPACE]}/{attributes[names.POD_NAME]}"
    if cache.namespace not in {"", attributes[names.POD_NAMESPACE]}:
        text = (
            f"pod {truncate(pod)} cannot mount {cache}: a pod mounts the GKMCaches of its own namespace,"
            " and ClusterGKMCaches"
        )
        return VolumeRefused(code=StatusCode.PERMISSION_DENIED, text=text)
    target = _target_below(pods, request.target_path)
    if target is None or target.relative_to(pods).parts[0] != attributes[names.POD_UID]:
        return _misplaced(request.target_path, f"{pods}/{truncate(attributes[names.POD_UID])}")
    return PublishVolume(volume=request.volume_id, target=target, cache=cache, pod=pod)


def plan_unpublish(
    request: "csi_pb2.NodeUnpublishVolumeRequest", pods: Path
) -> "PublishedVolume | VolumeRefused":
    """Decide on NodeUnpublishVolume."""
    refused = _missing(volume_id=request.volume_id, target_path=request.target_path)
    if refused is not None:
        return refused
    target = _target_below(pods, request.target_path)
    if target is None:
        return _misplaced(request.target_path, f"{pods}/<uid>")
    return PublishedVolume(volume=request.volume_id, target=target)


def plan_stats(
    request: "csi_pb2.NodeGetVolumeStatsRequest", pods: Path
) -> "PublishedVolume | VolumeRefused":
    """Decide on NodeGetVolumeStats; a path where no volume of ours can be is not found."""
    refused = _missing(volume_id=request.volume_id, volume_path=request.volume_path)
    if refused is not None:
        return refused
    target = _target_below(pods, request.volume_path)
    if target is None:
        return not_published(request.volume_id, request.volume_path)
    return PublishedVolume(volume=request.volume_id, target=target)


def not_published(volume: str, path: str) -> VolumeRefused:
    """Return the refusal of a call about a volume that is not mounted at the path."""
    text = f"volume {_quoted(volume)} is not mounted at {_quoted(path)}"
    return VolumeRefused(code=StatusCode.NOT_FOUND, text=text)


def _invalid(text: str) -> VolumeRefused:
    return VolumeRefused(code=StatusCode.INVALID_ARGUMENT, text=text)


def _unmet(text: str) -> VolumeRefused:
    return VolumeRefused(code=StatusCode.FAILED_PRECONDITION, text=text)


def _missing(**arguments: str) -> VolumeRefused | None:
    for name, value in arguments.items():
        if not value:
            return _invalid(f"the request has no {name}")
    return None


def _capability_fault(request: "csi_pb2.NodePublishVolumeRequest") -> VolumeRefused | None:
    if not request.HasField("volume_capability"):
        return _invalid("the request has no volume_capability")
    capability = request.volume_capability
    mode = capability.access_mode.mode
    if capability.HasField("block"):
        return _unmet("a kernel cache is a directory: volumeMode Block is not supported")
    if not capability.HasField("mount"):
        return _invalid("volume_capability has no access type: mount is supported")
    if mode not in ACCESS_MODES:
        name = _Mode.Mode.Name(mode) if mode in _Mode.Mode.values() else str(mode)
        return _unmet(
            f"access mode {name} is not supported: a kernel cache is mounted read-only, as an inline volume"
            " of a pod"
        )
    if capability.mount.fs_type:
        fs_type = truncate(capability.mount.fs_type)
        return _invalid(f'fsType "{fs_type}" is not supported: remove it from the pod\'s volume')
    if capability.mount.mount_flags:
        flags = listed(capability.mount.mount_flags)
        return _invalid(f"mount options are not supported: {flags}")
    return None


def _unknown_attributes(attributes: "Mapping[str, str]") -> VolumeRefused | None:
    unknown = [
        attribute
        for attribute in attributes
        if attribute not in ATTRIBUTES and not attribute.startswith(names.KUBELET_PREFIX)
    ]
    if not unknown:
        return None
    return _invalid(f"unknown volume attributes: {listed(unknown)}; known are {listed(ATTRIBUTES)}")


def _cache_of(attributes: "Mapping[str, str]") -> CacheName | VolumeRefused:
    name = attributes.get(names.CACHE_ATTRIBUTE)
    if name is None:
        return _invalid(
            f"the volume has no attribute {names.CACHE_ATTRIBUTE}: the name of a GKMCache, or of a ClusterGKMCache"
            f" if there is no {names.NAMESPACE_ATTRIBUTE}"
        )
    try:
        of_cluster = parse_cache_name("", name)
    except CacheNameError:
        return _invalid(f"{names.CACHE_ATTRIBUTE} is {_quoted(name)}, which no cache can be called")
    namespace = attributes.get(names.NAMESPACE_ATTRIBUTE)
    if namespace is None:
        return of_cluster
    # An empty one is a mistake, such as of a template, and must not turn into a cluster-wide cache.
    with contextlib.suppress(CacheNameError):
        if namespace:
            return parse_cache_name(namespace, name)
    return _invalid(
        f"{names.NAMESPACE_ATTRIBUTE} is {_quoted(namespace)}, which no namespace can be called;"
        " remove it for a ClusterGKMCache"
    )


def _pod_fault(attributes: "Mapping[str, str]") -> VolumeRefused | None:
    if any(
        not attributes.get(item)
        for item in (names.EPHEMERAL, names.POD_NAMESPACE, names.POD_NAME, names.POD_UID)
    ):
        return _unmet(
            f"kubelet does not say which pod the volume is for: the CSIDriver {names.DRIVER_NAME} needs"
            " podInfoOnMount: true"
        )
    if attributes[names.EPHEMERAL] != "true":
        return _unmet(
            f"{names.DRIVER_NAME} serves inline volumes of pods, not PersistentVolumes: set the volume's csi source"
            " in the pod"
        )
    return None


def _target_below(pods: Path, text: str) -> Path | None:
    """Return the path of a pod's CSI volume in kubelet's directory; None for any other path."""
    path = PurePosixPath(text)
    if "\0" in text or ".." in path.parts or not path.is_relative_to(pods):
        return None
    parts = path.relative_to(pods).parts
    return pods.joinpath(*parts) if len(parts) == _PARTS and parts[1:3] == _VOLUMES else None


def _misplaced(text: str, pod: str) -> VolumeRefused:
    place = "/".join((pod, *_VOLUMES, "<volume>", "mount"))
    return _invalid(
        f"target_path is {_quoted(text)}, not {place}: is that kubelet's root directory?"
    )


def _quoted(text: str) -> str:
    """Return foreign text in one line, short."""
    return truncate(ascii(text))
