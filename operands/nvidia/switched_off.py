"""Why a state of a ClusterPolicy is off: the field that says so, for people."""

from typing import TYPE_CHECKING, Final

from api.kinds.nvidia.sandbox_operands import SandboxMode

if TYPE_CHECKING:
    from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec

_FIELDS: Final = {
    "state-driver": ("driver", "driver"),
    "state-container-toolkit": ("toolkit", "toolkit"),
    "state-device-plugin": ("devicePlugin", "device_plugin"),
    "state-mps-control-daemon": ("devicePlugin", "device_plugin"),
    "state-dcgm": ("dcgm", "dcgm"),
    "state-dcgm-exporter": ("dcgmExporter", "dcgm_exporter"),
    "gpu-feature-discovery": ("gfd", "gfd"),
    "state-mig-manager": ("migManager", "mig_manager"),
    "state-node-status-exporter": ("nodeStatusExporter", "node_status_exporter"),
    "state-vgpu-manager": ("vgpuManager", "vgpu_manager"),
    "state-vgpu-device-manager": ("vgpuDeviceManager", "vgpu_device_manager"),
    "state-vfio-manager": ("vfioManager", "vfio_manager"),
    "state-sandbox-device-plugin": ("sandboxDevicePlugin", "sandbox_device_plugin"),
    "state-kata-device-plugin": ("kataSandboxDevicePlugin", "kata_sandbox_device_plugin"),
    "state-cc-manager": ("ccManager", "cc_manager"),
}
"""State -> its block with `enabled`, as the spec and as the model spell it."""
_OF_VIRTUAL_MACHINES: Final = frozenset(
    {
        "state-vgpu-manager",
        "state-vgpu-device-manager",
        "state-sandbox-validation",
        "state-vfio-manager",
        "state-sandbox-device-plugin",
        "state-kata-device-plugin",
        "state-cc-manager",
    }
)
_MODES: Final = {
    "state-sandbox-device-plugin": SandboxMode.KUBEVIRT,
    "state-kata-device-plugin": SandboxMode.KATA,
    "state-cc-manager": SandboxMode.KATA,
}


def why_off(state: str, spec: "ClusterPolicySpec") -> str:
    """Return which field keeps a state off that is off."""
    if state == "state-kata-manager":
        return "it never runs, as in the GPU Operator since v26.3"
    if state == "pre-requisites":
        return "spec.cdi.nriPluginEnabled is true: no RuntimeClass is needed"
    if state == "state-driver" and spec.driver.is_left_to_driver_objects:
        return "spec.driver.useNvidiaDriverCRD is true: NVIDIADrivers describe the drivers"
    sandbox = spec.sandbox_workloads
    if state in _OF_VIRTUAL_MACHINES and not sandbox.is_enabled:
        return "spec.sandboxWorkloads.enabled is false"
    mode = _MODES.get(state, sandbox.mode)
    if mode is not sandbox.mode:
        return f"spec.sandboxWorkloads.mode is {sandbox.mode.value}, and it serves {mode.value}"
    if state not in _FIELDS:
        return "the server's tls.source decides, and no spec: it runs with SelfSigned"
    field, attribute = _FIELDS[state]
    left_out = getattr(spec, attribute).enabled is None
    return f"spec.{field}.enabled is {'left out, which is off' if left_out else 'false'}"
