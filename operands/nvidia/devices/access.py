"""How the pods of operands get the devices of their node: by a RuntimeClass, or by the toolkit's plugin of the runtime.

With the plugin (NRI) an annotation of the pod names the container that gets all devices, and no RuntimeClass is needed.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.transforms import pod_spec_of

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

Json = dict[str, Any]

DEFAULT_RUNTIME_CLASS: Final = "nvidia"
_TOOLKIT_DIRECTORY: Final = "/usr/local/nvidia"
_NRI_DOMAIN: Final = "nvidia.cdi.k8s.io"
_ALL_DEVICES: Final = "management.nvidia.com/gpu=all"


def runtime_class_of(settings: "PolicyOperands") -> str:
    """Return the name of the RuntimeClass with the devices' runtime; empty: the node's default, of the built-in policy."""
    name = settings.spec.operator.runtime_class
    return name if settings.own is not None else name or DEFAULT_RUNTIME_CLASS


def set_device_access(daemon_set: Json, container: str, settings: "PolicyOperands") -> None:
    """Give a container of the DaemonSet the devices of its node."""
    if not settings.spec.cdi.nri_plugin_enabled:
        if name := runtime_class_of(settings):
            pod_spec_of(daemon_set)["runtimeClassName"] = name
        return
    metadata = daemon_set["spec"]["template"]["metadata"]
    metadata.setdefault("annotations", {})[f"{_NRI_DOMAIN}/container.{container}"] = _ALL_DEVICES


def toolkit_directory(settings: "PolicyOperands") -> str:
    """Return the directory of the node in which the container toolkit is installed."""
    return settings.spec.toolkit.install_dir.rstrip("/") or _TOOLKIT_DIRECTORY


def cdi_environment(settings: "PolicyOperands") -> dict[str, str]:
    """Return the variables of an operand that writes specifications of the Container Device Interface."""
    spec = settings.spec
    if not spec.cdi.enabled:
        return {}
    hook = f"{toolkit_directory(settings)}/toolkit/nvidia-cdi-hook"
    return {
        "CDI_ENABLED": "true",
        **({"NVIDIA_CDI_HOOK_PATH": hook} if spec.toolkit.is_enabled else {}),
    }
