"""What runs for pools, beside the cluster of the other reconcilers: the controller, and what it sees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from api.foreign.workload_kinds import ConfigMap, DaemonSet
from api.names import NodeName, PoolName
from api.nodefiles.poolconfig import CONFIG_KEY, PoolConfig
from kube.resources import CONFIG_MAPS, DAEMON_SETS, NAMESPACES
from manifests.node.device_plugin import WorkloadSettings, plugin_name
from reconciler.pool.plugin_config import NodePluginConfigs, PluginConfigFacts
from reconciler.pool.workloads import PoolWorkloads
from reconciler.sinks.live_workloads import LABEL_SELECTOR, live_workloads
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.support.recorded_events import RecordedEvents

NAMESPACE = "gpu-control-plane"
SETTINGS = WorkloadSettings(image="gpu-control-plane:1.0", namespace=NAMESPACE)
WHOLE = PoolName("whole")
CONFIG_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PLUGIN_PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
Json = dict[str, Any]


class Recorded(RecordedEvents):
    def take(self) -> list[tuple[str, str, str]]:
        """Return object, reason and note of the Events since the last call."""
        return [(item.regarding.name, item.reason, item.note) for item in self.taken()]


class Workloads:
    """The controller `pool.workloads` of one process."""

    def __init__(self, cluster: Cluster, settings: WorkloadSettings = SETTINGS) -> None:
        self.cluster = cluster
        self.config_maps = live_workloads(ConfigMap)
        self.daemon_sets = live_workloads(DaemonSet)
        self.recorded = Recorded()
        self.reported: list[PoolName] = []
        self.exported = PluginConfigFacts(cluster.devices.store, cluster.catalog)
        self.nodes = NodePluginConfigs(self.exported)
        self.exported.changes.subscribe(self.reported.append)
        self.controller = PoolWorkloads(
            cluster.client,
            cluster.catalog,
            self.exported,
            config_maps=self.config_maps,
            daemon_sets=self.daemon_sets,
            settings=settings,
            recorder=self.recorded,
            now=cluster.time.now,
            nodes=cluster.allocation_state.index.nodes,
        )

    async def observe(self) -> None:
        """Let the process see the world as it is now."""
        changed: set[str] = set()
        with self.cluster.devices.store.changes.subscribed(changed.add):
            await self.cluster.observe()
        for node in sorted(changed):
            await self.nodes.reconcile(NodeName(node))
        client = self.cluster.client
        maps = await client.list_(
            CONFIG_MAPS, ConfigMap, namespace=NAMESPACE, label_selector=LABEL_SELECTOR
        )
        self.config_maps.replace_all(maps.items)
        sets = await client.list_(
            DAEMON_SETS, DaemonSet, namespace=NAMESPACE, label_selector=LABEL_SELECTOR
        )
        self.daemon_sets.replace_all(sets.items)

    async def until_stable(self, pool: PoolName = WHOLE) -> list[tuple[str, str]]:
        """Observe, reconcile, observe; return the writes of the reconcile."""
        await self.observe()
        self.cluster.writes()
        await self.controller.reconcile(pool)
        writes = self.cluster.writes()
        await self.observe()
        return writes

    async def config(self, pool: PoolName = WHOLE) -> PoolConfig:
        """Return the list of devices that the pool's plugins are told."""
        found = await self.cluster.client.get(
            CONFIG_MAPS, ConfigMap, plugin_name(pool), namespace=NAMESPACE
        )
        assert found.data is not None
        return msgspec.json.decode(found.data[CONFIG_KEY], type=PoolConfig)

    async def plugin(self, pool: PoolName = WHOLE) -> Json:
        return await self.cluster.client.get(
            DAEMON_SETS, dict[str, Any], plugin_name(pool), namespace=NAMESPACE
        )

    async def names(self) -> set[str]:
        """Return `<kind>/<name>` of all that there is."""
        await self.observe()
        return {
            f"{kind}/{name}"
            for kind, live in (("ConfigMap", self.config_maps), ("DaemonSet", self.daemon_sets))
            for pool in live.groups()
            for name in live.of(pool)
        }


@asynccontextmanager
async def a_cluster_with_workloads(
    settings: WorkloadSettings = SETTINGS,
) -> AsyncIterator[Workloads]:
    """The cluster of the other tests, and our namespace."""
    async with a_cluster() as cluster:
        meta = {"name": NAMESPACE}
        await cluster.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        )
        workloads = Workloads(cluster, settings)
        await workloads.observe()
        cluster.writes()
        yield workloads
