"""State `state-mig-manager`: NVIDIA's MIG manager, which partitions the devices of a node by its label.

A node with a device in a GPUPool does not have its deploy label: the node agent partitions there. Without a ConfigMap of
the policy the layouts are those that the devices of the node offer, and ours where it cannot ask them.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices.access import cdi_environment, set_device_access
from operands.nvidia.devices.mig_layouts import LAYOUTS_KEY, layouts_text
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import operator_validation
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of, set_content_hash, set_env

if TYPE_CHECKING:
    from api.kinds.nvidia.container_operands import MIGManagerSpec

Json = dict[str, Any]

NAME: Final = "state-mig-manager"
_MAIN: Final = "nvidia-mig-manager"
_LAYOUTS: Final = "default-mig-parted-config"
_CLIENTS: Final = "default-gpu-clients"
_DIRECTORY: Final = "/mig-parted-config"


def _build(settings: PolicyOperands) -> list[Json]:
    manager = settings.spec.mig_manager
    left_out = _replaced_config_maps(manager)
    objects = [asset for asset in load_assets(NAME) if asset["metadata"]["name"] not in left_out]
    for object_ in objects:
        if object_["metadata"]["name"] == _LAYOUTS:
            object_["data"] = {LAYOUTS_KEY: layouts_text()}
    daemon_set = object_of(objects, "DaemonSet")
    main = container_of(daemon_set, _MAIN)
    set_env(main, _layouts_file(left_out))
    set_env(main, cdi_environment(settings))
    _set_volumes(daemon_set, manager)
    set_device_access(daemon_set, _MAIN, settings)
    _set_content_hash(daemon_set, objects)
    set_block(daemon_set, _MAIN, manager, field="migManager", settings=settings)
    return finish_policy(NAME, objects, settings)


def _replaced_config_maps(manager: "MIGManagerSpec") -> dict[str, str]:
    """Return the ConfigMaps of the policy by the names of ours whose place they take."""
    names = {_LAYOUTS: manager.config.name, _CLIENTS: manager.gpu_clients_config.name}
    return {ours: given for ours, given in names.items() if given and given != ours}


def _layouts_file(left_out: dict[str, str]) -> dict[str, str]:
    """Return the variable of the file: ours counts only where the manager finds no layouts by itself."""
    if _LAYOUTS in left_out:
        return {"CONFIG_FILE": f"{_DIRECTORY}/{LAYOUTS_KEY}"}
    return {"DEFAULT_CONFIG_FILE": f"{_DIRECTORY}/config-default.yaml"}


def _set_volumes(daemon_set: Json, manager: "MIGManagerSpec") -> None:
    left_out = _replaced_config_maps(manager)
    for volume in pod_spec_of(daemon_set)["volumes"]:
        source = volume.get("configMap")
        if source is None:
            continue
        if source["name"] == _LAYOUTS and _LAYOUTS not in left_out:
            # By this name the manager tells our layouts from an administrator's.
            source["items"] = [{"key": LAYOUTS_KEY, "path": "config-default.yaml"}]
        source["name"] = left_out.get(source["name"], source["name"])


def _set_content_hash(daemon_set: Json, objects: list[Json]) -> None:
    brought = {
        object_["metadata"]["name"]: object_["data"]
        for object_ in objects
        if object_["kind"] == "ConfigMap"
    }
    set_content_hash(daemon_set, {"data": brought})


STATE: Final = OperandState(
    name=NAME,
    needs=(operator_validation.NAME,),
    why_off=switched_by("mig_manager"),
    deploy_label="mig-manager",
    workloads=(),
    build=_build,
)
