"""The baseline of a pool: what a pod may not have that reaches devices which it was not given.

Rules of Kubernetes' pod security concern namespaces; these concern all pods with units of a pool, in every namespace.
"""

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admission.decision import Denied
from api.field_errors import UNDECODABLE
from api.kinds.gpupool import PodBaseline
from api.meta import Model
from api.text import listed, truncate
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.pods.request import AdmittedContainer, PodRequest
    from api.kinds.gpupool import GPUPool

_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_NAME: Final = _VISIBLE_DEVICES.encode()
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


_decode_env: Final = msgspec.json.Decoder(list[_Variable] | None).decode


def baseline_denial(request: "PodRequest", pool: "GPUPool") -> Denied | None:
    """Deny a pod that breaks the baseline of a pool which enforces it."""
    if pool.spec.pod_baseline is not PodBaseline.DENY:
        return None
    faults = _faults(request)
    if isinstance(faults, Denied):
        return faults
    if not faults:
        return None
    text = (
        f"pods of pool {pool.name} may not reach devices that they were not given (spec.podBaseline):"
        f" leave out {listed(faults)}"
    )
    return Denied(RefusalReason.POD_BASELINE, text)


def baseline_warnings(request: "PodRequest", pool: "GPUPool") -> tuple[str, ...]:
    """Warn of a pod that breaks the baseline of a pool which warns."""
    if pool.spec.pod_baseline is not PodBaseline.WARN:
        return ()
    faults = _faults(request)
    if not faults or isinstance(faults, Denied):
        return ()
    # The cure comes first: a warning of more than 120 characters is cut.
    return (f"spec.podBaseline of pool {pool.name}: leave out {listed(faults)}",)


def _faults(request: "PodRequest") -> list[str] | Denied:
    spec, faults = request.pod.spec, []
    if spec.host_pid:
        faults.append("hostPID")
    if spec.host_ipc:
        faults.append("hostIPC")
    if spec.host_network:
        faults.append("hostNetwork")
    if spec.runtime_class_name and spec.runtime_class_name.startswith(_NVIDIA_RUNTIMES):
        faults.append(f"runtimeClassName {truncate(spec.runtime_class_name)}")
    for volume in spec.volumes or ():
        if volume.host_path is not None and _reaches_devices(volume.host_path.path):
            path = truncate(volume.host_path.path)
            faults.append(f"volume {truncate(volume.name)} (hostPath {path})")
    try:
        return [*faults, *_faults_of((*(spec.init_containers or ()), *(spec.containers or ())))]
    except UNDECODABLE as error:
        text = f"the environment of a container cannot be read: {error}"
        return Denied(RefusalReason.MALFORMED_REQUEST, text)


def _faults_of(containers: "Sequence[AdmittedContainer]") -> list[str]:
    faults = []
    for container in containers:
        context, env = container.security_context, bytes(container.env)
        if context is not None and context.privileged:
            faults.append(f"privileged of container {truncate(container.name)}")
        # An environment without the name, written with escapes or not, is not decoded.
        if (b"\\" in env or _NAME in env) and _asks_for_devices(env):
            faults.append(f"{_VISIBLE_DEVICES} of container {truncate(container.name)}")
    return faults


def _asks_for_devices(env: bytes) -> bool:
    return any(
        variable.name == _VISIBLE_DEVICES
        and (variable.value_from is not None or variable.value not in _NO_DEVICES)
        for variable in _decode_env(env) or ()
    )


def _reaches_devices(path: str) -> bool:
    plain = "/" + "/".join(part for part in path.split("/") if part not in {"", "."})
    return _DEVICES.fullmatch(plain) is not None
