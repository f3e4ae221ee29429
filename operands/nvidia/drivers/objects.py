"""The DaemonSet of a driver for one group of nodes, from the manifest that both kinds share."""

import copy
from typing import TYPE_CHECKING, Any, Final

from api.well_known_labels import APP_COMPONENT_LABEL
from operands.nvidia.drivers import containers
from operands.nvidia.drivers.config_digest import set_config_digest
from operands.nvidia.drivers.config_files import add_config_files, driver_files
from operands.nvidia.drivers.manager import CONTAINER as MANAGER
from operands.nvidia.drivers.manager import put_driver_manager
from operands.nvidia.policy_transforms import select_nodes
from operands.transforms import container_of, set_env

if TYPE_CHECKING:
    from operands.nvidia.drivers.description import DriverDescription
    from operands.nvidia.drivers.groups import DriverGroup

Json = dict[str, Any]

PRECOMPILED: Final = "nvidia.com/precompiled"
OS_VERSION: Final = "nvidia.com/node.os-version"
KERNEL_VERSION: Final = "nvidia.com/precompiled.kernel-version"
_WITH_DIGEST: Final = frozenset({MANAGER, containers.DRIVER})


def driver_daemon_set(
    manifest: Json, driver: "DriverDescription", group: "DriverGroup", *, name: str
) -> Json:
    """Return the DaemonSet of a group of nodes, without what concerns the pods of all operands.

    Raises:
        StateSettingsError: an image is given in half, or nowhere, or a ConfigMap is not there.
    """
    found = copy.deepcopy(manifest)
    found["metadata"]["name"] = name
    set_env(container_of(found, MANAGER), containers.rdma_variables(driver))
    put_driver_manager(found, driver.spec.manager, driver.manager_image())
    containers.set_driver(found, driver, group)
    containers.set_peermem(found, driver, group)
    containers.set_gds(found, driver, group)
    containers.set_gdrcopy(found, driver, group)
    add_config_files(found, driver_files(driver, group))
    containers.set_pod_fields(found, driver.spec)
    _label(found, driver, group)
    select_nodes(found, group.node_labels())
    return found


def _label(daemon_set: Json, driver: "DriverDescription", group: "DriverGroup") -> None:
    labels = {
        OS_VERSION: group.os_tag,
        PRECOMPILED: str(driver.is_precompiled).lower(),
        **({KERNEL_VERSION: group.kernel} if group.kernel else {}),
    }
    daemon_set["metadata"]["labels"] |= labels
    daemon_set["spec"]["template"]["metadata"]["labels"] |= labels


def finish_driver(daemon_set: Json) -> None:
    """Set what depends on the DaemonSet's final form; no spec changes what its pods are."""
    component = daemon_set["metadata"]["labels"][APP_COMPONENT_LABEL]
    daemon_set["spec"]["template"]["metadata"]["labels"][APP_COMPONENT_LABEL] = component
    set_config_digest(daemon_set, _WITH_DIGEST)
