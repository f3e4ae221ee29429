"""Half an hour in the life of two pools, at a real API server, in as many seconds as it takes.

Nodes tell of their devices, and one has no driver. Pods are bound, wait, are refused and end; a reservation expires; a
device faults and is well again; a pool is cut into slices while a pod runs, which is evicted. kwok plays the nodes, a
stock kube-scheduler places the pools' DaemonSets, and what NFD, the node agent and kubelet would write is written here.
"""

import datetime as dt
import secrets
from typing import TYPE_CHECKING, Any, Final, final

import pytest

from tests.cluster.environment import client, nodes, pods, polling
from tests.cluster.system import objects
from tests.cluster.system.features import FEATURES, apply_feature
from tests.support.node_features import (
    agent_device,
    agent_feature,
    gfd_labels,
    uuid_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.cluster.alerts.device_pages import DevicePages
    from tests.cluster.alerts.plugin_process import PluginProcess
    from tests.cluster.environment.client import JsonObject

INVENTORIES: Final = f"{objects.API}/gpunodeinventories"
GPUS: Final = 4
UNSCHEDULABLE: Final = {"cpu": "1000"}


@final
class HalfHour:
    """The nodes, the pools, and the story, whose parts follow each other."""

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        pages: "DevicePages",
        *,
        seen: "Callable[[str], Awaitable[None]]",
    ) -> None:
        """`seen` returns once Prometheus has series of an expression: a rate is one between two scrapes."""
        mark = secrets.token_hex(3)
        self.api = api
        self.namespace = namespace
        self.train, self.notebooks = f"train-{mark}", f"notebooks-{mark}"
        self.first, self.second = nodes.node_names(f"{nodes.KWOK_PREFIX}{mark}", 2)
        (self.bare,) = nodes.node_names(f"{nodes.KWOK_PREFIX}{mark}-bare", 1)
        self._mark = mark
        self._pages = pages
        self._seen = seen

    async def a_node_has_no_driver(self) -> None:
        """Nothing places the DaemonSets yet: kwok would say of the validator's pod that all is well."""
        await nodes.create_kwok_nodes(self.api, 1, prefix=f"{self._mark}-bare")
        await self._publish_bus(self.bare)
        await self._condition(self.bare, "DriverMissing", "True")
        await self._seen(f'gpu_bootstrap_condition{{condition="DriverMissing",node="{self.bare}"}}')
        await self._seen(f'gpu_inventory_devices_total{{node="{self.bare}"}}')

    async def nodes_publish_their_devices(self) -> None:
        await nodes.create_kwok_nodes(self.api, 2, prefix=self._mark, labels=gfd_labels(GPUS))
        for node in (self.first, self.second):
            await self._send(node)
        for node in (self.first, self.second):
            await self._condition(node, "ReadyForPooling", "True")
        found = (await self.api.get(objects.DEVICES))["items"]
        self._pages.devices |= {
            item["status"]["uuid"]: item["status"]["nodeName"]
            for item in found
            if item["status"]["nodeName"] in {self.first, self.second}
        }

    async def pools_take_them(self) -> None:
        slices = {"mode": "TimeSlice", "slicesPerDevice": 2}
        await self._make_pool(self.train, self.first, reservation={"ttl": "5s"})
        await self._make_pool(
            self.notebooks, self.second, allocation=slices, maintenance={"policy": "Evict"}
        )
        await self._figures(self.train, total=GPUS)
        await self._figures(self.notebooks, total=2 * GPUS)
        await self._offer(self.first, self.train, GPUS)
        await self._offer(self.second, self.notebooks, 2 * GPUS)
        for pool in (self.train, self.notebooks):
            await self._seen(f'gpupool_wait_seconds_count{{pool="{pool}"}}')

    async def pods_are_bound(self, plugin: "PluginProcess") -> None:
        await plugin.registered(objects.PREFIX + self.train, GPUS)
        for name, pool, units in (
            ("trains", self.train, 2),
            ("idles", self.train, 1),
            ("notebook", self.notebooks, 3),
        ):
            await self.api.create(pods.collection(self.namespace), self._a_pod(name, pool, units))
            bound = await pods.wait_for_pod(self.api, self.namespace, name)
            for unit in objects.units_of(bound):
                self._pages.pods[unit.partition("::")[0]] = self.namespace, name
            if name == "idles":
                self._pages.idle |= set(objects.units_of(bound))
            if pool == self.train:
                await plugin.admit(bound)
            for outcome in ("fits", "bound"):
                await self._seen(f'gpu_extender_duration_seconds_count{{outcome="{outcome}"}} > 0')
        await self._figures(self.train, used=3, available=1)

    async def one_waits(self) -> None:
        await self.api.create(pods.collection(self.namespace), self._a_pod("waits", self.train, 3))
        await pods.wait_for_pod(self.api, self.namespace, "waits", pods.is_unschedulable)

    async def some_are_refused(self) -> None:
        for pool, units in (("nowhere", 1), (self.train, GPUS + 1)):
            with pytest.raises(client.ApiRefusedError):
                await self.api.create(
                    pods.collection(self.namespace), self._a_pod("refused", pool, units)
                )

    async def a_reservation_expires(self) -> None:
        pod = self._a_pod("expires", self.train, 1)
        pod["spec"]["containers"][0]["resources"]["requests"] = UNSCHEDULABLE
        pod["spec"]["containers"][0]["resources"]["limits"] |= UNSCHEDULABLE
        await self.api.create(pods.collection(self.namespace), pod)
        await self._seen(f'gpupool_namespace_units{{pool="{self.train}",state="reserved"}} > 0')
        await self._figures(self.train, reserved=0)

    async def a_device_faults(self) -> None:
        """One that no pod has; and the agent of the other node works with restrictions."""
        (free,) = (
            number for number in range(GPUS) if uuid_of(self.first, number) not in self._pages.pods
        )
        await self._send(self.first, {free: {"health": "Unhealthy", "health.reason": "Xid 79"}})
        await self._figures(self.train, unhealthy=1)
        await self._degrade_agent()
        await self._seen("gpu_device_faulted_total > 0")
        await self._seen('gpu_node_inventory_condition{condition="AgentDegraded"} > 0')

    async def a_pool_is_cut_again(self) -> None:
        """A disruption budget holds the pod until that is seen."""
        budget = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        selector = {"matchLabels": {"app": "notebook"}}
        spec = {"minAvailable": 1, "selector": selector}
        await self.api.create(budget, {"metadata": {"name": "keep"}, "spec": spec})

        async def is_counted() -> bool:
            return (await self.api.status(f"{budget}/keep")).get("currentHealthy") == 1

        await polling.eventually(is_counted, what="the budget counts")
        slices = {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 4}}
        await self.api.patch(f"{objects.POOLS}/{self.notebooks}", {"spec": slices})
        await self._seen('gpupool_condition{condition="Maintenance"} > 0')
        await self.api.delete(f"{budget}/keep")
        await self._figures(self.notebooks, total=4 * GPUS, used=0)

    async def pods_end(self, plugin: "PluginProcess") -> None:
        await self._send(self.first)
        await self._figures(self.train, unhealthy=0)
        await plugin.stop_kubelet()
        await self._seen("gpu_agent_plugin_registered == 0")
        await self.api.delete(f"{pods.collection(self.namespace)}/waits")
        await self.api.delete(f"{pods.collection(self.namespace)}/trains")
        await self._figures(self.train, used=1)

    async def clean_up(self) -> None:
        """Delete what is outside of the namespace, whether all of it was made or not; nodes are needed until the end."""
        for pool in (self.train, self.notebooks):
            await self._forget(f"{objects.POOLS}/{pool}")
        for node in (self.first, self.second, self.bare):
            await self._forget(f"{FEATURES}/gpu-control-plane-agent-{node}")

    async def _forget(self, path: str) -> None:
        if await self.api.find(path):
            await self.api.delete(path)

    def _a_pod(self, name: str, pool: str, units: int) -> "JsonObject":
        return pods.a_pod(name, limits={objects.PREFIX + pool: units}, labels={"app": name})

    async def _make_pool(self, name: str, node: str, **spec: Any) -> None:
        of_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        selector = {"matchExpressions": [of_node]}
        assignment = {"requireAnnotation": False}
        pool = objects.a_pool_object(name, nodeSelector=selector, assignment=assignment, **spec)
        await self.api.create(objects.POOLS, pool)

    async def _offer(self, node: str, pool: str, units: int) -> None:
        await nodes.set_extended_resources(self.api, node, {objects.PREFIX + pool: units})

    async def _send(self, node: str, sick: "Mapping[int, dict[str, str]] | None" = None) -> None:
        """Write what the node's agent says of its devices, and what some of them have."""
        devices = [
            agent_device(node, number, of=GPUS, **(sick or {}).get(number, {}))
            for number in range(GPUS)
        ]
        await apply_feature(self.api, agent_feature(node, devices, heartbeat=self._now()))

    async def _publish_bus(self, node: str) -> None:
        """Write what the agent says of a node without a driver: a device, by its place on the bus only."""
        device = agent_device(node, 0)
        on_bus = {name: device[name] for name in device if name.startswith("pci.")}
        feature = agent_feature(node, [on_bus], heartbeat=self._now())
        feature["spec"]["features"]["attributes"] = {}
        await apply_feature(self.api, feature)

    @staticmethod
    def _now() -> dt.datetime:
        return dt.datetime.now(dt.UTC)  # noqa: TID251  # the agent's own clock

    async def _degrade_agent(self) -> None:
        """Write the condition that the agent of a node writes of itself."""
        condition = {
            "type": "AgentDegraded",
            "status": "True",
            "reason": "DriverHangs",
            "message": "for a look at the dashboards",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        path = f"{INVENTORIES}/{self.second}/status"
        body = {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUNodeInventory",
            "metadata": {"name": self.second},
            "status": {"conditions": [condition]},
        }
        await self.api.patch(path, body, kind="apply", fieldManager="node-agent", force="true")

    async def _condition(self, node: str, type_: str, status: str) -> None:
        async def has() -> bool:
            seen = (await self.api.conditions(f"{INVENTORIES}/{node}")).get(type_, {})
            assert seen.get("status") == status, f"{seen}"
            return True

        await polling.eventually(has, what=f"{type_}={status} of {node}")

    async def _figures(self, pool: str, **expected: int) -> None:
        async def has() -> bool:
            current = await self.api.get(f"{objects.POOLS}/{pool}")
            seen = objects.capacity(current)
            assert {key: seen.get(key) for key in expected} == expected, f"{current.get('status')}"
            return True

        await polling.eventually(has, what=f"{pool} with {expected}", every=0.2)
