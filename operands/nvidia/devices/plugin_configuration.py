"""What the pods of the device plugin, of MPS and of feature discovery share: all three are of one project.

They know the MIG strategy, and one of several configurations of a ConfigMap: config-manager chooses it by the node label
`nvidia.com/device-plugin.config`, and tells the program when the label changes. Pods without a ConfigMap have no
config-manager.
"""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.nvidia.container_operands import MigStrategy
from operands import transforms

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

Json = dict[str, Any]

CONFIG_MANAGERS: Final = ("config-manager-init", "config-manager")
_CONFIGURATIONS: Final = "available-configs"
_VOLUMES: Final = (_CONFIGURATIONS, "config")
_MPS_ROOT: Final = "/run/nvidia/mps"


def set_configuration(daemon_set: Json, main: str, settings: "PolicyOperands") -> None:
    """Give the program a configuration of the ConfigMap, or remove all that is for one."""
    config = settings.spec.device_plugin.config
    if not config.name:
        for name in CONFIG_MANAGERS:
            transforms.without_container(daemon_set, name)
        for name in _VOLUMES:
            transforms.without_volume(daemon_set, name)
        return
    transforms.set_env(
        transforms.container_of(daemon_set, main), {"CONFIG_FILE": "/config/config.yaml"}
    )
    for name in CONFIG_MANAGERS:
        manager = transforms.container_of(daemon_set, name)
        transforms.set_env(manager, {"DEFAULT_CONFIG": config.default})
        # It makes a link in a volume of the pod, and signals a process of its own user.
        manager["securityContext"] = dict(transforms.RESTRICTED)
    spec = transforms.pod_spec_of(daemon_set)
    if not spec.get("hostPID"):
        # config-manager signals a process of another container.
        spec["shareProcessNamespace"] = True
    for volume in spec["volumes"]:
        if volume["name"] == _CONFIGURATIONS:
            volume["configMap"]["name"] = config.name


def set_mig_strategy(container: Json, settings: "PolicyOperands") -> None:
    """Tell the program how MIG instances are shown, and let it see them; without a strategy it decides by itself."""
    strategy = settings.spec.mig.strategy
    if strategy is not None:
        transforms.set_env(container, {"MIG_STRATEGY": strategy.value})
    if strategy is not MigStrategy.NONE:
        transforms.set_env(container, {"NVIDIA_MIG_MONITOR_DEVICES": "all"})


def mps_root_of(settings: "PolicyOperands") -> str:
    """Return the directory of the node for the sockets, logs and shared memory of MPS."""
    return settings.spec.device_plugin.mps.root.rstrip("/") or _MPS_ROOT


def set_mps_root(daemon_set: Json, settings: "PolicyOperands") -> None:
    """Put the directory of MPS into the volumes."""
    root = mps_root_of(settings)
    paths = {"mps-root": root, "mps-shm": f"{root}/shm"}
    for volume in transforms.pod_spec_of(daemon_set)["volumes"]:
        if volume["name"] in paths:
            volume["hostPath"]["path"] = paths[volume["name"]]
