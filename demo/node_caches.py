"""The node agents' roles caches and csi on the demo's nodes: the real ones, each with a folder as its node's files.

A demo needs no root: links stand in for mounts, and the devices are those of the table.
"""

from typing import TYPE_CHECKING, Any, Final, final

from agent.context import AgentContext
from agent.driver.port import DriverDevice, DriverSnapshot
from agent.roles.caches_role import CachesRole
from agent.settings import AgentRole, AgentSettings
from demo.linked_volumes import LinkedVolumes
from demo.objects import device_table
from manifests import constants
from simulator.node.inline_volumes import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from api.clock import Clock
    from kube.client import KubeClient

ROLES: Final = frozenset({AgentRole.INVENTORY, AgentRole.CACHES, AgentRole.CSI})
DRIVER_VERSION: Final = "570.86.15"


def _known_devices(node: str) -> DriverSnapshot:
    return DriverSnapshot(
        driver_version=DRIVER_VERSION,
        cuda_version="12.8",
        devices=tuple(
            DriverDevice(
                address=item.address,
                uuid=item.uuid,
                minor=number,
                product=item.product,
                compute_capability=item.compute_capability,
            )
            for number, item in enumerate(device_table(node))
        ),
    )


@final
class NodeCaches:
    """The two roles of one node."""

    def __init__(self, client: "KubeClient", clock: "Clock", settings: AgentSettings) -> None:
        self._context = AgentContext(settings, client, clock)
        links = LinkedVolumes()
        self._role = CachesRole(self._context, mounter=links, mounts=links.mounts)
        self._role.reconciler.observe_devices(_known_devices(settings.node))

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        return {
            "events": self._context.events.run(),
            "pods": self._context.pod_informer.run(),
            **self._role.tasks(),
        }


def cache_settings(
    node: str, directory: "Path", *, kubelet: "Path", registry: str, grace_s: float
) -> AgentSettings:
    """Make the directories of a node's kubelet, and return the settings of its agent."""
    for item in (kubelet / "pods", kubelet / REGISTRY):
        item.mkdir(parents=True)
    return AgentSettings(
        node=node,
        roles=ROLES,
        namespace=constants.DEFAULT_NAMESPACE,
        caches_directory=directory,
        caches_grace=grace_s,
        kubelet_directory=kubelet,
        registries_plain_http=frozenset({registry}),
        registries_private=frozenset({registry}),
    )
