"""State `state-device-plugin`: NVIDIA's device plugin, which offers devices to kubelet.

A node with a device in a GPUPool does not have its deploy label: the pool has a plugin of its own.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices import plugin_configuration
from operands.nvidia.devices.access import cdi_environment, set_device_access
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import operator_validation
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, set_content_hash, set_env

if TYPE_CHECKING:
    from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec

NAME: Final = "state-device-plugin"
_MAIN: Final = "nvidia-device-plugin"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block, objects = settings.spec.device_plugin, load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    main = container_of(daemon_set, _MAIN)
    set_env(main, {"MPS_ROOT": plugin_configuration.mps_root_of(settings)})
    set_env(main, _modules(settings.spec))
    set_env(main, _cdi(settings))
    plugin_configuration.set_mig_strategy(main, settings)
    plugin_configuration.set_mps_root(daemon_set, settings)
    plugin_configuration.set_configuration(daemon_set, _MAIN, settings)
    set_device_access(daemon_set, _MAIN, settings)
    set_content_hash(daemon_set, object_of(objects, "ConfigMap"))
    set_block(daemon_set, _MAIN, block, field="devicePlugin", settings=settings)
    return finish_policy(NAME, objects, settings)


def _modules(spec: "ClusterPolicySpec") -> dict[str, str]:
    """Return the variables by which pods get the devices of further kernel modules."""
    of_gds = {"GDS_ENABLED": "true", "MOFED_ENABLED": "true"} if spec.gds.is_enabled else {}
    of_gdrcopy = {"GDRCOPY_ENABLED": "true"} if spec.gdrcopy.is_enabled else {}
    return of_gds | of_gdrcopy


def _cdi(settings: PolicyOperands) -> dict[str, str]:
    if not settings.spec.cdi.enabled:
        return {}
    return {
        **cdi_environment(settings),
        "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
        "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
    }


STATE: Final = OperandState(
    name=NAME,
    needs=(operator_validation.NAME,),
    why_off=switched_by("device_plugin"),
    deploy_label="device-plugin",
    build=_build,
)
