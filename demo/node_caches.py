"""The node agents' roles caches and csi on the demo's nodes: the real ones, each with a folder as its node's files.

A demo needs no root: links stand in for mounts, and the devices are those of the table.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from agent.context import AgentContext
from agent.csi.volume_source import MountState
from agent.driver.port import DriverDevice, DriverSnapshot
from agent.errors import MountError
from agent.kernelcache.content.mountinfo import MountEntry
from agent.roles.caches import CachesRole
from agent.settings import AgentRole, AgentSettings
from manifests import constants
from simulator.node.inline_volumes import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from agent.csi.volume_source import CacheVolume
    from api.clock import Clock
    from kube.client import KubeClient
    from simulator.node.node_agent import FakeDevice


@final
class LinkedVolumes:
    """The driver's port `agent.csi.volume_source.Mounter`, and the list of what it has linked."""

    def __init__(self) -> None:
        self._targets: set[Path] = set()

    def state(self, target: Path) -> MountState:
        return MountState.PROTECTED if target in self._targets else MountState.NOT_MOUNTED

    def mount(self, volume: "CacheVolume", target: Path) -> None:
        """Replace the empty directory by a link."""
        try:
            target.rmdir()
            target.symlink_to(volume.content)
        except OSError as error:
            raise MountError(f"{target} cannot be linked: {error.strerror}") from error
        self._targets.add(target)

    def unmount(self, target: Path) -> None:
        """Remove the link."""
        self._targets.discard(target)
        target.unlink(missing_ok=True)

    def mounts(self) -> tuple[MountEntry, ...]:
        """Return the links as `agent.kernelcache.content.mountinfo.read_mounts` returns mounts."""
        return tuple(
            MountEntry(root=str(target.readlink()), mount_point=str(target))
            for target in sorted(self._targets)
        )


ROLES: Final = frozenset({AgentRole.INVENTORY, AgentRole.CACHES, AgentRole.CSI})
DRIVER_VERSION: Final = "570.86.15"


def _snapshot_of(devices: "Sequence[FakeDevice]") -> DriverSnapshot:
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
            for number, item in enumerate(devices)
        ),
    )


@final
class NodeCaches:
    """The two roles of one node."""

    def __init__(
        self,
        client: "KubeClient",
        clock: "Clock",
        settings: AgentSettings,
        *,
        devices: "Sequence[FakeDevice]",
    ) -> None:
        self._context = AgentContext(settings, client, clock)
        links = LinkedVolumes()
        self._role = CachesRole(self._context, mounter=links, mounts=links.mounts)
        self._role.reconciler.observe_devices(_snapshot_of(devices))

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
        item.mkdir(parents=True, exist_ok=True)
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
