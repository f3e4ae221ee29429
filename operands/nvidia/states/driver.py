"""State `state-driver` of a ClusterPolicy: the driver, by one DaemonSet for each system among the nodes.

A precompiled driver has one for each system and kernel. NVIDIADriver objects have the same of their own
(`operands.nvidia.driver_daemonsets`); with `driver.useNvidiaDriverCRD` the ClusterPolicy has none.
"""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.drivers.config_files import config_maps_of
from operands.nvidia.drivers.description import DriverDescription, LicenceFiles
from operands.nvidia.drivers.groups import (
    DriverGroup,
    driver_groups,
    software_without_driver,
)
from operands.nvidia.drivers.objects import (
    KERNEL_VERSION,
    OS_VERSION,
    driver_daemon_set,
    finish_driver,
)
from operands.nvidia.node_software import RUNTIME_LABEL, HostSoftware
from operands.nvidia.object_names import object_name
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import object_of

NAME: Final = "state-driver"
_DAEMON_SET: Final = "nvidia-driver-daemonset"
_switched_off: Final = switched_by("driver")


def description_of(settings: PolicyOperands) -> DriverDescription:
    """Return the driver of a ClusterPolicy."""
    spec, driver = settings.spec, settings.spec.driver
    licence = driver.licensing_config
    return DriverDescription(
        spec_path=settings.path("driver"),
        add_ons_path=f"ClusterPolicy {settings.name}: spec",
        namespace=settings.namespace,
        spec=driver,
        args=tuple(driver.args or ("init",)),
        gds=spec.gds,
        gdrcopy=spec.gdrcopy,
        repo_config=driver.repo_config.config_map_name,
        licence=LicenceFiles(
            config_map=licence.config_map_name,
            secret=licence.secret_name,
            has_token=bool(licence.nls_enabled),
        ),
        topology_config=driver.virtual_topology.config,
        environment=settings.environment,
        config_keys=settings.config_keys,
    )


def config_maps_of_policy(settings: PolicyOperands) -> frozenset[str]:
    """Return the ConfigMaps whose keys the driver's DaemonSets depend on."""
    return frozenset() if _why_off(settings) else config_maps_of(description_of(settings))


def nodes_without_driver(settings: PolicyOperands) -> dict[HostSoftware, str]:
    """Return which of the nodes' software gets no driver though the state is on, and why, with the cure."""
    if _why_off(settings):
        return {}
    return software_without_driver(settings.software, description_of(settings).grouping)


def _why_off(settings: PolicyOperands) -> str:
    if settings.spec.driver.is_left_to_driver_objects:
        return "spec.driver.useNvidiaDriverCRD is true: NVIDIADrivers describe the drivers"
    return _switched_off(settings)


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    driver, objects = description_of(settings), load_assets(NAME)
    driver.check()
    groups = driver_groups(settings.software, driver.grouping, spec_path=driver.spec_path)
    manifest = object_of(objects, "DaemonSet")
    objects.remove(manifest)
    daemon_sets = [
        _daemon_set(driver_daemon_set(manifest, driver, group, name=_name(group)), group)
        for group in groups
    ]
    found = finish_policy(NAME, [*objects, *daemon_sets], settings)
    for set_ in daemon_sets:
        finish_driver(set_)
    return found


def _name(group: DriverGroup) -> str:
    return object_name(_DAEMON_SET, *group.name_parts())


def _daemon_set(daemon_set: dict[str, Any], group: DriverGroup) -> dict[str, Any]:
    """Have it select pods of its own: `app` is the same for all groups, as users know it."""
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    if group.runtime:
        labels[RUNTIME_LABEL] = group.runtime
    naming = (OS_VERSION, KERNEL_VERSION, RUNTIME_LABEL)
    daemon_set["spec"]["selector"]["matchLabels"] |= {
        key: labels[key] for key in naming if key in labels
    }
    return daemon_set


STATE: Final[OperandState[PolicyOperands]] = OperandState(
    name=NAME,
    why_off=_why_off,
    deploy_label="driver",
    build=_build,
)
