"""The roles caches and csi: one owner of the store, the node's objects, and the driver that kubelet calls."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import structlog

from agent.csi.identity_service import IdentityService
from agent.csi.node_service import NodeService
from agent.csi.registration import RegisteredDriver
from agent.csi.volume_targets import VolumeTargets
from agent.kernelcache.cache_objects import CacheObjects
from agent.kernelcache.cache_volumes import CacheVolumes
from agent.kernelcache.content.layer_limits import ExtractionLimits, FreeSpaceFloor
from agent.kernelcache.content.mountinfo import read_mounts
from agent.kernelcache.content.mounts import OverlayMounter
from agent.kernelcache.extractions import Extractions
from agent.kernelcache.layer_pull import CacheCredentials, LayerPull
from agent.kernelcache.node_object_writer import NodeObjectWriter
from agent.kernelcache.opened_store import OpenedStore
from agent.kernelcache.store_reconciler import StoreReconciler
from agent.kernelcache.volume_uses import VolumeUses
from agent.unary_calls import UnaryCalls
from api.csi.names import DRIVER_NAME
from kernelcache.store_snapshot import StoreLimits
from kube.errors import one_line
from kube.pull_secrets import PullSecretReader
from oci.registry_connections import RegistryConnections
from oci.registry_settings import RegistrySettings
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agent.context import AgentContext
    from agent.csi.volume_source import Mounter
    from agent.kernelcache.content.mountinfo import MountEntry

USER_AGENT: Final = "gpu-node-agent"
PODS: Final = "pods"
PLUGINS: Final = "plugins"
SOCKET: Final = "csi.sock"
REGISTRY: Final = "plugins_registry"
SOURCE: Final = "caches registries"
"""Source of the problem in the registry."""
RETRY_CONNECTIONS_S: Final = 10.0

_log = structlog.get_logger()


@final
class CachesRole:
    """Wires both roles; nothing is opened before their tasks run.

    `observe_devices` of its reconciler is to be called after each reading of the driver.
    """

    def __init__(
        self,
        dependencies: "AgentContext",
        *,
        mounter: "Mounter | None" = None,
        mounts: "Callable[[], tuple[MountEntry, ...]]" = read_mounts,
        floor: FreeSpaceFloor | None = None,
    ) -> None:
        """`mounter`, `mounts` and what `floor` reads are the kernel's by default."""
        settings = dependencies.settings
        pods = settings.kubelet_directory / PODS
        self._problems = dependencies.problems
        self.objects = CacheObjects(dependencies.client, dependencies.clock, node=dependencies.node)
        triggered = asyncio.Event()
        self.uses = VolumeUses(
            dependencies.pods,
            dependencies.problems,
            directory=pods,
            on_change=triggered.set,
            mounts=mounts,
        )
        self.writer = NodeObjectWriter(
            dependencies.client,
            self.objects,
            events=dependencies.events,
            clock=dependencies.clock,
            node=dependencies.node,
        )
        registries = RegistrySettings(
            user_agent=USER_AGENT,
            ca_file=settings.registries_ca_file,
            plain_http_hosts=settings.registries_plain_http,
            private_hosts=settings.registries_private,
        )
        self._pull = LayerPull(
            RegistryConnections(registries),
            CacheCredentials(
                PullSecretReader(dependencies.client, settings.namespace),
                allowed=settings.cache_pull_secrets,
            ),
            dependencies.clock,
        )
        self.reconciler = StoreReconciler(
            OpenedStore(settings.caches_directory, dependencies.clock, dependencies.problems),
            Extractions(
                self._pull,
                dependencies.clock,
                limits=ExtractionLimits(floor=floor or FreeSpaceFloor()),
            ),
            self.objects,
            uses=self.uses,
            writer=self.writer,
            events=dependencies.events,
            clock=dependencies.clock,
            node=dependencies.node,
            limits=StoreLimits(quota_bytes=settings.caches_quota, grace_s=settings.caches_grace),
            pods_synced=dependencies.pod_informer.synced,
            triggered=triggered,
        )
        self._pods = dependencies.pods
        calls = UnaryCalls(
            component="the CSI driver",
            api="CSI 1.10",
            task="csi.answer",
            clock=dependencies.clock,
            log_keys={"driver": DRIVER_NAME},
        )
        socket = settings.kubelet_directory / PLUGINS / DRIVER_NAME / SOCKET
        self.volumes = CacheVolumes(self.reconciler, self.objects, self.uses)
        node = NodeService(
            dependencies.node,
            self.volumes,
            VolumeTargets(pods, mounter or OverlayMounter()),
            pods=pods,
        )
        self._driver = RegisteredDriver(
            socket,
            settings.kubelet_directory / REGISTRY,
            endpoint=str(socket),
            handlers=[IdentityService().handlers(calls), node.handlers(calls)],
            clock=dependencies.clock,
            problems=dependencies.problems,
        )

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        informers = {
            f"caches.{number}": item.run() for number, item in enumerate(self.objects.informers)
        }
        return {
            **informers,
            "caches.pods": self._follow_pods(),
            "caches.volumes": self.uses.run(),
            "caches.store": self._reconcile(),
            "caches.objects": self.writer.run(),
            "csi": self._serve(),
        }

    async def _reconcile(self) -> NoReturn:
        """Reconcile while the connections to registries are open; a bad file of authorities is read again."""
        while True:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(self._pull.open_connections())
                except OSError as error:
                    text = f"--registries-ca-file cannot be used: {one_line(str(error))}"
                    self._problems.set(SOURCE, AgentDegraded.CACHES_BLOCKED, text)
                else:
                    self._problems.clear(SOURCE)
                    await self.reconciler.run()
            await asyncio.sleep(RETRY_CONNECTIONS_S)

    async def _serve(self) -> NoReturn:
        """Serve once it is known what is mounted: a content that is in use must not be removed before."""
        await self.uses.read_once.wait()
        await self._driver.run()

    async def _follow_pods(self) -> NoReturn:
        while True:
            changed = self._pods.changed
            self.reconciler.trigger()
            await changed.wait()
