"""The baseline of a pool: what a pod may not have that reaches devices which it was not given.

Rules of Kubernetes' pod security concern namespaces; these concern whoever is given a pool's units, in every namespace.
Fields that nothing else reads are decoded here, for pools with a baseline only.
"""

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admission.decision import Denied
from admission.object_decoder import ObjectDecoder
from admission.pods.request import POD_BOUNDS, POD_KIND
from api.kinds.gpupool import PodBaseline
from api.meta import Model
from api.text import MAX_WARNING_LENGTH, listed, truncate
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.pods.request import PodRequest
    from api.kinds.gpupool import GPUPool

_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES: Final = ("", "none", "void")
_DEVICES: Final = re.compile(
    # Device files; other processes' files; sockets of the runtime and of kubelet, and a driver's own root.
    r"/dev/(nvidia|dri|vfio).*|/(proc|run|var/run|var/lib/kubelet)(/.*)?|/|/dev|/var|/var/lib"
)
_NVIDIA_RUNTIMES: Final = "nvidia"
"""Begin of the names of RuntimeClasses whose runtime obeys the environment of any image."""


class _Variable(Model, frozen=True):
    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class _SecurityContext(Model, frozen=True):
    privileged: bool | None = None


class _Container(Model, frozen=True):
    name: str = ""
    env: list[_Variable] | None = None
    security_context: _SecurityContext | None = None


class _HostPath(Model, frozen=True):
    path: str = ""


class _Volume(Model, frozen=True):
    name: str = ""
    host_path: _HostPath | None = None


class _Spec(Model, frozen=True):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    runtime_class_name: str | None = None
    host_network: bool = False
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_pid: bool = msgspec.field(default=False, name="hostPID")


class _Pod(Model, frozen=True):
    spec: _Spec


_decoder: "Final[ObjectDecoder[_Pod]]" = ObjectDecoder(_Pod, POD_KIND, bounds=POD_BOUNDS)


def baseline_denial(request: "PodRequest", pool: "GPUPool") -> Denied | None:
    """Deny a pod that breaks the baseline of a pool which enforces it."""
    if pool.spec.pod_baseline is not PodBaseline.DENY:
        return None
    faults = _faults(request)
    if isinstance(faults, Denied):
        return faults
    return Denied(RefusalReason.POD_BASELINE, _text(pool, faults)) if faults else None


def baseline_warnings(request: "PodRequest", pool: "GPUPool") -> "Iterator[str]":
    """Warn of a pod that breaks the baseline of a pool which warns."""
    if pool.spec.pod_baseline is not PodBaseline.WARN:
        return
    faults = _faults(request)
    if faults and not isinstance(faults, Denied):
        yield truncate(_text(pool, faults), MAX_WARNING_LENGTH)


def _text(pool: "GPUPool", faults: list[str]) -> str:
    return (
        f"pods of pool {pool.name} may not reach devices that they were not given (spec.podBaseline):"
        f" leave out {listed(faults)}"
    )


def _faults(request: "PodRequest") -> list[str] | Denied:
    pod = _decoder.decode(request.request.object_)
    return pod if isinstance(pod, Denied) else list(_faults_of(pod.spec))


def _faults_of(spec: _Spec) -> "Iterator[str]":
    shared = {"hostPID": spec.host_pid, "hostIPC": spec.host_ipc, "hostNetwork": spec.host_network}
    yield from (name for name, is_shared in shared.items() if is_shared)
    if (spec.runtime_class_name or "").startswith(_NVIDIA_RUNTIMES):
        yield f"runtimeClassName {truncate(spec.runtime_class_name or '')}"
    for volume in spec.volumes or ():
        if volume.host_path is not None and _reaches_devices(volume.host_path.path):
            yield f"volume {truncate(volume.name)} (hostPath {truncate(volume.host_path.path)})"
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        name = truncate(container.name)
        if container.security_context is not None and container.security_context.privileged:
            yield f"privileged of container {name}"
        for variable in container.env or ():
            is_value = variable.value_from is None and variable.value in _NO_DEVICES
            if variable.name == _VISIBLE_DEVICES and not is_value:
                yield f"{_VISIBLE_DEVICES} of container {name}"


def _reaches_devices(path: str) -> bool:
    plain = "/" + "/".join(part for part in path.split("/") if part not in {"", "."})
    return _DEVICES.fullmatch(plain) is not None
