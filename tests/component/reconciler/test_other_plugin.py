"""A device joins a pool once NVIDIA's own device plugin has left its node: label, pods, and what pods have by it.

Assignment and labels run as the leader runs them. The DaemonSet controller, kubelet and the node's agent are played, each
of them as late as chance has it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import API_VERSION, ASSIGNMENT_ANNOTATION
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NAMESPACES, PODS
from operands.asset_files import load_assets
from operands.nvidia.states import device_plugin, mps_control_daemon
from operands.transforms import object_of
from reconciler.assignment import controller as assignment
from reconciler.assignment.other_plugin import PLUGIN_LABEL, PLUGINS
from tests.component.reconciler.label_world import LabelWorld, a_label_world
from tests.unit.operands.nvidia.label_cases import MIG, NFD, a_policy

pytestmark = pytest.mark.looptime

Json = dict[str, Any]
NAMESPACE = "gpu"
DEVICES = 2


def test_the_pods_of_the_plugin_are_known_by_the_labels_that_their_daemon_sets_give_them():
    daemon_sets = [
        object_of(load_assets(name), "DaemonSet")
        for name in (device_plugin.NAME, mps_control_daemon.NAME)
    ]
    apps = {item["spec"]["template"]["metadata"]["labels"]["app"] for item in daemon_sets}
    assert apps == PLUGINS


@dataclass
class Node:
    """One node with devices, its kubelet, its agent, and the DaemonSet controller for NVIDIA's plugin."""

    world: LabelWorld
    given: dict[str, str] = field(default_factory=dict)
    """Device's UUID -> pod, as kubelet has it by nvidia.com/gpu."""
    reported: dict[str, str] = field(default_factory=dict)
    has_plugin: bool = False
    pods: int = 0
    taken_twice: list[str] = field(default_factory=list)

    async def begin(self) -> None:
        for name in (NAMESPACE, "team"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await self.world.client.create(NAMESPACES, body)
        await self.world.add_node("n1", {**NFD, **MIG})
        self.world.set_policy(a_policy())
        self.world.stores.pool_sink.replace_all(
            [msgspec.convert({"metadata": {"name": "whole"}}, GPUPool)]
        )
        body = {"apiVersion": API_VERSION, "kind": "GPUNodeInventory", "metadata": {"name": "n1"}}
        await self.world.client.create(GPU_NODE_INVENTORIES, body)
        await self.set_ready("True")
        for number in range(DEVICES):
            meta = {"name": f"n1-{number}"}
            device = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": meta}
            await self.world.client.create(GPU_DEVICES, device)
            status = {
                "nodeName": "n1",
                "uuid": f"GPU-{number}",
                "managed": True,
                "pci": {"vendor": "10de", "device": "20b2", "address": f"0000:0{number}:00.0"},
            }
            await self.world.client.merge_patch(
                GPU_DEVICES, {"status": status}, name=f"n1-{number}", subresource="status"
            )

    async def set_ready(self, status: str) -> None:
        reason = "Ready" if status == "True" else "Validating"
        since = "2026-01-01T00:00:00Z"
        condition = {"type": "ReadyForPooling", "status": status, "reason": reason, "message": ""}
        await self._write({"conditions": [condition | {"lastTransitionTime": since}]}, "readiness")

    async def report(self) -> None:
        """Let the agent report what kubelet has given."""
        self.reported = dict(self.given)
        entries = [
            {
                "namespace": "team",
                "pod": pod,
                "container": "main",
                "resource": "nvidia.com/gpu",
                "units": [uuid],
                "uid": await self._uid(pod),
            }
            for uuid, pod in sorted(self.given.items())
        ]
        await self._write({"allocations": entries}, "agent")

    async def _uid(self, pod: str) -> str:
        found = await self.world.client.get(PODS, Json, pod, namespace="team")
        return str(found["metadata"]["uid"])

    async def _write(self, status: Json, manager: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "GPUNodeInventory", "metadata": {"name": "n1"}}
        await self.world.client.apply(
            GPU_NODE_INVENTORIES,
            body | {"status": status},
            field_manager=manager,
            subresource="status",
        )

    async def follow_label(self) -> None:
        """Let the DaemonSet controller make the plugin's pod, or delete it, which then ends."""
        expected = (await self.world.labels()).get(PLUGIN_LABEL) == "true"
        if expected and not self.has_plugin:
            body = a_pod("plugin", NAMESPACE, {"app": "nvidia-device-plugin-daemonset"})
            await self.world.client.create(PODS, body)
            self.has_plugin = True
        elif not expected and self.has_plugin:
            await self.world.client.delete(PODS, "plugin", namespace=NAMESPACE)

    async def end_plugin(self) -> None:
        """Let kubelet end the plugin's pod where it is deleted."""
        if not self.has_plugin:
            return
        pod = await self.world.client.get(PODS, Json, "plugin", namespace=NAMESPACE)
        if "deletionTimestamp" in pod["metadata"]:
            await self._end("plugin", NAMESPACE)
            self.has_plugin = False

    async def _end(self, pod: str, namespace: str) -> None:
        await self.world.client.delete(PODS, pod, namespace=namespace, grace_period_s=0)

    async def run_pod(self) -> None:
        """Let a pod ask kubelet for nvidia.com/gpu, which gives it while the plugin runs."""
        free = [uuid for uuid in map("GPU-{}".format, range(DEVICES)) if uuid not in self.given]
        if not self.has_plugin or not free:
            return
        self.pods += 1
        body = a_pod(f"p{self.pods}", "team", {}, asks=1)
        await self.world.client.create(PODS, body)
        if f"n1-{free[0][-1]}" in await self.pooled():
            self.taken_twice.append(free[0])
        self.given[free[0]] = f"p{self.pods}"

    async def end_pod(self) -> None:
        if not self.given:
            return
        uuid, pod = min(self.given.items())
        await self._end(pod, "team")
        del self.given[uuid]

    async def annotate(self, pool: str | None, name: str = "n1-0") -> None:
        body = {"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: pool}}}
        await self.world.client.merge_patch(GPU_DEVICES, body, name=name)

    async def pooled(self) -> set[str]:
        listing = await self.world.client.list_(GPU_DEVICES, GPUDevice)
        return {item.metadata.name for item in listing.items if item.status.pool_ref is not None}

    async def says(self, name: str = "n1-0") -> tuple[str, str]:
        """Return reason and message of the device's condition Assigned."""
        found = await self.world.client.get(GPU_DEVICES, GPUDevice, name)
        (condition,) = [item for item in found.status.conditions or () if item.type == "Assigned"]
        return condition.reason, condition.message

    async def check(self) -> None:
        """Check that no device is in a pool that kubelet has given to a pod, or may give."""
        pooled = await self.pooled()
        assert not {f"n1-{uuid[-1]}" for uuid in self.given} & pooled
        assert not self.taken_twice
        assert not (pooled and self.has_plugin)


def a_pod(name: str, namespace: str, labels: dict[str, str], *, asks: int | None = None) -> Json:
    resources = {} if asks is None else {"resources": {"limits": {"nvidia.com/gpu": str(asks)}}}
    container = {"name": "main", "image": "registry.example.com/c:1", **resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "n1", "containers": [container]},
    }


@asynccontextmanager
async def a_node() -> AsyncIterator[Node]:
    """Yield the node with NVIDIA's plugin, and its devices in no pool."""
    async with a_label_world() as world:
        found = Node(world)
        await found.begin()
        async with world.leading(assignment.SPEC):
            await world.until_stable()
            await found.follow_label()
            assert found.has_plugin
            yield found


async def test_the_plugin_leaves_first_and_the_pod_that_has_the_device_is_named():
    async with a_node() as node:
        await node.run_pod()
        await node.annotate("whole")
        await node.annotate("whole", "n1-1")
        await node.world.until_stable()
        assert PLUGIN_LABEL not in await node.world.labels()
        reason, message = await node.says()
        assert reason == "OtherDevicePlugin"
        assert f"pod {NAMESPACE}/plugin of NVIDIA's device plugin" in message
        await node.follow_label()
        await node.world.until_stable()
        assert await node.pooled() == set()
        await node.end_plugin()
        await node.world.until_stable()
        assert "pod team/p1 has devices by NVIDIA's device plugin" in (await node.says("n1-1"))[1]
        assert await node.pooled() == set()
        await node.report()
        await node.world.until_stable()
        assert await node.pooled() == {"n1-1"}
        assert "pods team/p1 have it" in (await node.says())[1]
        await node.end_pod()
        await node.report()
        await node.world.until_stable()
        assert await node.pooled() == {"n1-0", "n1-1"}
        await node.annotate(None)
        await node.annotate(None, "n1-1")
        await node.world.until_stable()
        assert (await node.world.labels())[PLUGIN_LABEL] == "true"


async def test_a_node_that_is_validated_anew_without_the_plugin_does_not_get_it_back():
    async with a_node() as node:
        await node.annotate("whole")
        await node.world.until_stable()
        await node.set_ready("False")
        await node.follow_label()
        await node.end_plugin()
        await node.world.until_stable()
        assert (await node.says())[0] == "NodeNotReadyForPooling"
        assert PLUGIN_LABEL not in await node.world.labels()
        await node.set_ready("True")
        await node.world.until_stable()
        assert await node.pooled() == {"n1-0"}


async def test_the_plugin_leaves_a_node_without_an_inventory():
    """Devices that a person makes have none."""
    async with a_node() as node:
        await node.world.client.delete(GPU_NODE_INVENTORIES, "n1")
        await node.annotate("whole")
        await node.world.until_stable()
        assert PLUGIN_LABEL not in await node.world.labels()
        await node.follow_label()
        await node.end_plugin()
        await node.world.until_stable()
        assert await node.pooled() == {"n1-0"}


async def test_a_pod_that_asks_for_no_device_holds_none_up():
    async with a_node() as node:
        await node.world.client.create(PODS, a_pod("none", "team", {}, asks=0))
        await node.annotate("whole")
        await node.world.until_stable()
        await node.follow_label()
        await node.end_plugin()
        await node.world.until_stable()
        assert await node.pooled() == {"n1-0"}


async def test_the_pods_of_a_node_whose_agent_reports_none_are_listed_seldom_and_it_goes_on_when_they_end():
    """An older agent does not report what pods have by NVIDIA's plugin, and such a pod may run for weeks."""
    async with a_node() as node:
        await node.run_pod()
        await node.annotate("whole")
        await node.world.until_stable()
        await node.follow_label()
        await node.end_plugin()
        await node.world.until_stable()
        node.world.api.requests.clear()
        await asyncio.sleep(300)
        listed = [item for item in node.world.api.requests if item.path == "/api/v1/pods"]
        assert len(listed) <= 15
        await node.end_pod()
        await asyncio.sleep(60)
        assert await node.pooled() == {"n1-0"}


async def test_a_device_that_is_not_to_join_any_more_brings_the_plugin_back():
    async with a_node() as node:
        await node.annotate("whole")
        await node.world.until_stable()
        assert PLUGIN_LABEL not in await node.world.labels()
        await node.annotate(None)
        await node.world.until_stable()
        assert (await node.world.labels())[PLUGIN_LABEL] == "true"


@pytest.mark.parametrize("seed", [0, 1, 6])
async def test_in_any_order_no_device_is_given_twice(seed: int):
    async with a_node() as node:
        pick = random.Random(seed)
        steps: list[Callable[[], Awaitable[None]]] = [
            node.follow_label,
            node.end_plugin,
            node.run_pod,
            node.end_pod,
            node.report,
            lambda: node.annotate(pick.choice(["whole", None]), f"n1-{pick.randrange(DEVICES)}"),
            lambda: node.set_ready(pick.choice(["True", "False"])),
        ]
        for _ in range(30):
            await pick.choice(steps)()
            await asyncio.sleep(pick.choice([0.0, 0.01, 0.2, 2.0]))
            await node.check()
        # Once everybody is through the devices are where they are meant to be.
        await node.set_ready("True")
        for name in ("n1-0", "n1-1"):
            await node.annotate("whole", name)
        for _ in range(3):
            await node.world.until_stable()
            await node.follow_label()
            await node.end_plugin()
            while node.given:
                await node.end_pod()
            await node.report()
        await node.world.until_stable()
        assert await node.pooled() == {"n1-0", "n1-1"}
