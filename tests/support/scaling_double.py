"""The cluster of `scaling_stories` in memory: our server with doubles of everything else, Karpenter among them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from api.foreign.core import Pod
from certs.tls import client_context
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from manifests import constants
from simulator.karpenter.fake_karpenter import FakeKarpenter, KarpenterTimes
from simulator.karpenter.karpenter_crds import karpenter_crds
from simulator.node.joining_nodes import JoiningNodes, NodeBehaviour
from simulator.node.kubelet import FakeKubelet
from simulator.node.pool_plugins import PoolPlugins
from simulator.scheduler.extender_client import ExtenderClient
from simulator.scheduler.fake import FakeScheduler
from tests.support.loop_clock import ServerClock
from tests.support.polling import until_async
from tests.support.running_server import Cluster, RunningServer, a_cluster, settings_for

Json = dict[str, Any]

PROFILE_INSTANCES: Final = 7
"""MIG instances of one device."""


class DoubleCluster:
    """A `scaling_stories.ScalingCluster`."""

    namespace = "default"

    def __init__(
        self,
        cluster: Cluster,
        clock: ServerClock,
        group: asyncio.TaskGroup,
        *,
        times: KarpenterTimes,
        settings: Json,
    ) -> None:
        """Take what is there; `server_clock` is the server's own, and a test may set it."""
        self.cluster = cluster
        self.client = cluster.client
        self.clock = clock
        self.server_clock = ServerClock()
        self.without_capacity: set[str] = set()
        # names of NodePools
        self.behaviour: dict[str, NodeBehaviour] = {}
        self.kubelet = FakeKubelet(self.client, clock)
        self.server: RunningServer
        self._times = times
        self._settings = settings
        self._group = group
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def node_class(self, node_pool: str) -> Json:
        return {"group": "cloud.example", "kind": "NodeClass", "name": node_pool}

    async def set_capacity(self, node_pool: str, *, is_available: bool) -> None:
        change = set.discard if is_available else set.add
        change(self.without_capacity, node_pool)

    async def set_nodes(
        self, node_pool: str, *, devices_after_s: float | None, mig_profile: str = ""
    ) -> None:
        self.behaviour[node_pool] = NodeBehaviour(
            devices_after_s=devices_after_s,
            mig_profile=mig_profile,
            mig_instances=PROFILE_INSTANCES if mig_profile else 0,
        )

    async def finish(self, name: str) -> None:
        await self.kubelet.finish(await self.client.get(PODS, Pod, name, namespace=self.namespace))

    async def kill_server(self) -> None:
        await self.end("server")
        await self.start_server()

    async def kill_karpenter(self) -> None:
        await self.end("karpenter")
        self.start_karpenter()

    async def start_server(self) -> None:
        cluster, clock = self.cluster, self.server_clock
        settings = settings_for(cluster, cluster.port, **self._settings)
        self.server = RunningServer(cluster, cluster.port, settings, clock)
        self.start("server", self.server.run())
        try:
            await until_async(self._is_ready_or_over)
        except TimeoutError:
            raise AssertionError(await self.server.checks()) from None
        assert not self.server.is_over, self.server.ended

    async def _is_ready_or_over(self) -> bool:
        return self.server.is_over or await self.server.is_ready()

    def start_karpenter(self) -> None:
        double = FakeKarpenter(
            self.client,
            self.clock,
            times=self._times,
            without_capacity=self.without_capacity,
        )
        self.start("karpenter", double.run())

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self._tasks[name] = self._group.create_task(work, name=name)

    async def end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait((task,))

    async def end_all(self) -> None:
        for name in list(self._tasks):
            await self.end(name)


SERVER: Final[Json] = {
    "leadership": {},
    "listen": {"advertised_address": "127.0.0.1"},
    "tls": {"ip_addresses": ["127.0.0.1"], "check_every_s": 2.0},
    "bootstrap": {"period_s": 1.0},
    "health": {"period_s": 1.0},
    "inventory": {"node_gone_s": 2},
}


@asynccontextmanager
async def a_scaling_cluster(
    folder: Path, times: KarpenterTimes | None = None, settings: Json | None = None
) -> AsyncIterator[DoubleCluster]:
    """Yield a cluster without nodes, in virtual time; the settings go before those of `SERVER`."""
    clock = ServerClock()
    async with a_cluster(folder, clock) as cluster, asyncio.TaskGroup() as group:
        await cluster.install()
        await cluster.install_discovery()
        await cluster.install_scheduler()
        await cluster.install_service()
        for crd in karpenter_crds():
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        double = DoubleCluster(
            cluster,
            clock,
            group,
            times=times or KarpenterTimes(),
            settings=SERVER | (settings or {}),
        )
        await double.start_server()
        bundle = await cluster.bundle()
        url = f"{double.server.url}{constants.EXTENDER_PREFIX}"
        async with ExtenderClient(url, client_context(bundle.trust_pem, bundle.client)) as extender:
            client = cluster.client
            double.start("scheduler", FakeScheduler(client, extender, clock).run())
            double.start("kubelet", double.kubelet.run())
            plugins = PoolPlugins(client, clock, namespace=constants.DEFAULT_NAMESPACE)
            double.start("plugins", plugins.run())
            double.start("nodes", JoiningNodes(client, clock, double.behaviour).run())
            double.start_karpenter()
            yield double
            await double.end_all()
