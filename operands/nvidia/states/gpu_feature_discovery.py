"""State `gpu-feature-discovery`: labels of nodes that describe their devices, by a NodeFeature of each node.

The containers of config-manager run the device plugin's image, as upstream's do.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices import plugin_configuration
from operands.nvidia.devices.access import set_device_access
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import (
    add_pull_secrets,
    finish_policy,
    image_of,
    set_block,
    set_image,
)
from operands.nvidia.states import operator_validation
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of, set_env, without_volume

if TYPE_CHECKING:
    from operands.nvidia.own_pods import OwnOperands

NAME: Final = "gpu-feature-discovery"
_MAIN: Final = "gpu-feature-discovery"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    objects = load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    plugin_configuration.set_mig_strategy(container_of(daemon_set, _MAIN), settings)
    plugin_configuration.set_configuration(daemon_set, _MAIN, settings)
    set_device_access(daemon_set, _MAIN, settings)
    set_block(daemon_set, _MAIN, settings.spec.gfd, field="gfd", settings=settings)
    if settings.spec.device_plugin.config.name:
        _set_config_managers(daemon_set, settings)
    if settings.own is None:
        objects.remove(object_of(objects, "VerticalPodAutoscaler"))
    else:
        objects = _with_directories(daemon_set, objects, settings.own)
    return finish_policy(NAME, objects, settings)


def _set_config_managers(daemon_set: dict[str, Any], settings: PolicyOperands) -> None:
    block = settings.spec.device_plugin
    image = image_of(block, "devicePlugin", settings)
    for name in plugin_configuration.CONFIG_MANAGERS:
        set_image(container_of(daemon_set, name), image, block)
    add_pull_secrets(daemon_set, block)


def _with_directories(
    daemon_set: dict[str, Any], objects: list[dict[str, Any]], own: "OwnOperands"
) -> list[dict[str, Any]]:
    """Have the node's directories that the server's settings say; a file of features takes no right on NodeFeatures."""
    for volume in pod_spec_of(daemon_set)["volumes"]:
        if volume["name"] == "host-sys":
            volume["hostPath"]["path"] = own.host_sys_path
        elif volume["name"] == "output-dir":
            volume["hostPath"]["path"] = own.features_dir
    if not own.features_dir:
        without_volume(daemon_set, "output-dir")
        return objects
    set_env(container_of(daemon_set, _MAIN), {"USE_NODE_FEATURE_API": "false"})
    return [object_ for object_ in objects if object_["kind"] not in {"Role", "RoleBinding"}]


STATE: Final = OperandState(
    name=NAME,
    needs=(operator_validation.NAME,),
    why_off=switched_by("gfd"),
    deploy_label="gpu-feature-discovery",
    build=_build,
)
