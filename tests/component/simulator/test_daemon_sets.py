"""Pods of DaemonSets are on the nodes that their template allows, and kubelet runs their containers in order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.foreign.core import Pod
from api.well_known_labels import REVISION_LABEL
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import NotFound
from kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NAMESPACES, NODES, PODS
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.container_runtime import ContainerFailedError
from simulator.node.daemon_sets import FakeDaemonSets
from simulator.node.kubelet import FakeKubelet, register_node
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async

Json = dict[str, Any]

NAMESPACE = "gpu-control-plane"
POD = "tool-n1"

pytestmark = pytest.mark.looptime


@dataclass
class FailingRuntime:
    """Notes the containers that it starts; some fail."""

    started: list[str] = field(default_factory=list)
    messages: dict[str, str] = field(default_factory=dict)
    """Container -> message of its failure."""

    async def start(self, pod: Pod, container: str) -> None:
        self.started.append(f"{pod.metadata.name}/{container}")
        if container in self.messages:
            raise ContainerFailedError(self.messages[container])


@dataclass
class Nodes:
    client: KubeClient
    kubelet: FakeKubelet
    runtime: FailingRuntime

    async def pod(self, name: str = POD) -> dict[str, Any]:
        return await self.client.get(PODS, dict[str, Any], name, namespace=NAMESPACE)

    async def names(self) -> list[str]:
        found = await self.client.list_(PODS, Pod, namespace=NAMESPACE)
        return sorted(item.metadata.name for item in found.items)

    async def daemon_set(self) -> Json:
        return await self.client.get(DAEMON_SETS, Json, "tool", namespace=NAMESPACE)

    async def status(self) -> Json:
        return dict((await self.daemon_set())["status"])

    async def hashes(self) -> list[str]:
        """Return the revision of each pod."""
        found = await self.client.list_(PODS, Pod, namespace=NAMESPACE)
        return [item.metadata.label(REVISION_LABEL) or "" for item in found.items]

    async def newest_revision(self) -> str:
        found = await self.client.list_(CONTROLLER_REVISIONS, Json, namespace=NAMESPACE)
        newest = max(found.items, key=lambda item: int(item["revision"]))
        return str(newest["metadata"]["labels"][REVISION_LABEL])

    async def is_ready(self) -> bool:
        with contextlib.suppress(NotFound):
            conditions = (await self.pod())["status"].get("conditions")
            return bool(conditions == [{"type": "Ready", "status": "True"}])
        return False

    async def label(self, node: str, value: str | None) -> None:
        labels = {"metadata": {"labels": {"example.test/device": value}}}
        await self.client.merge_patch(NODES, labels, name=node)


@pytest.fixture
async def nodes(server: InMemoryApiServer) -> AsyncIterator[Nodes]:
    """Two nodes without the label that the DaemonSet selects."""
    clock, runtime = LoopClock(), FailingRuntime()
    async with KubeClient(StaticConnection(server.url), clock) as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for node in ("n1", "n2"):
            await register_node(client, node, {})
        kubelet = FakeKubelet(client, clock, runtime)
        sets = FakeDaemonSets(client, clock, namespace=NAMESPACE)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item.run()) for item in (kubelet, sets)]
            yield Nodes(client, kubelet, runtime)
            for task in tasks:
                task.cancel()


async def apply_daemon_set(
    client: KubeClient, *, image: str = "i", strategy: str = "RollingUpdate"
) -> None:
    labels = {"app": "tool"}
    spec = {
        "nodeSelector": {"example.test/device": "yes"},
        "initContainers": [{"name": name, "image": "i"} for name in ("first", "second")],
        "containers": [{"name": "main", "image": image}],
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "tool", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": strategy},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    await client.apply(DAEMON_SETS, body, field_manager="test")


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    with contextlib.suppress(TimeoutError):
        await until_async(holds)
    assert await holds()


async def test_pods_follow_the_labels_of_nodes_and_go_with_their_daemon_set(nodes: Nodes):
    async def is_on(*names: str) -> bool:
        return await nodes.names() == [f"tool-{name}" for name in names]

    await apply_daemon_set(nodes.client)
    await nodes.label("n1", "yes")
    await eventually(lambda: is_on("n1"))
    await nodes.label("n2", "yes")
    await eventually(lambda: is_on("n1", "n2"))
    await nodes.label("n2", None)
    await eventually(lambda: is_on("n1"))
    before = (await nodes.pod())["metadata"]["uid"]
    await nodes.client.delete(PODS, POD, namespace=NAMESPACE)

    async def is_another() -> bool:
        return await nodes.is_ready() and (await nodes.pod())["metadata"]["uid"] != before

    await eventually(is_another)
    await nodes.client.delete(DAEMON_SETS, "tool", namespace=NAMESPACE)
    await eventually(is_on)


async def test_a_pod_has_its_node_in_place_of_the_terms_of_the_template(nodes: Nodes):
    """As of the real controller: what a template requires of nodes cannot be read off a pod."""
    here = {"matchExpressions": [{"key": "example.test/device", "operator": "Exists"}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {required: {"nodeSelectorTerms": [here]}}}
    await apply_daemon_set(nodes.client)
    template = {"template": {"spec": {"affinity": affinity}}}
    await nodes.client.merge_patch(
        DAEMON_SETS, {"spec": template}, name="tool", namespace=NAMESPACE
    )
    await nodes.label("n1", "yes")
    await eventually(nodes.is_ready)
    current = (await nodes.pod())["spec"]["affinity"]["nodeAffinity"][required]
    named = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert current == {"nodeSelectorTerms": [{"matchFields": [named]}]}


async def test_a_rolling_update_replaces_pod_after_pod(nodes: Nodes):
    await roll_out(nodes, "RollingUpdate")
    first, second = await nodes.hashes()
    assert first == second == await nodes.newest_revision()


async def test_pods_of_strategy_on_delete_are_of_the_new_revision_once_they_are_deleted(
    nodes: Nodes,
):
    await roll_out(nodes, "OnDelete")
    newest = await nodes.newest_revision()
    assert newest not in await nodes.hashes()
    assert (await nodes.status())["updatedNumberScheduled"] == 0
    await nodes.client.delete(PODS, POD, namespace=NAMESPACE)

    async def is_rolled_out() -> bool:
        status = await nodes.status()
        return (status["updatedNumberScheduled"], status["numberAvailable"]) == (1, 2)

    await eventually(is_rolled_out)
    assert (await nodes.hashes()).count(newest) == 1


async def test_revisions_go_with_their_daemon_set(nodes: Nodes):
    await apply_daemon_set(nodes.client)

    async def has(count: int) -> bool:
        found = await nodes.client.list_(CONTROLLER_REVISIONS, Json, namespace=NAMESPACE)
        return len(found.items) == count

    await eventually(lambda: has(1))
    await nodes.client.delete(DAEMON_SETS, "tool", namespace=NAMESPACE)
    await eventually(lambda: has(0))


async def roll_out(nodes: Nodes, strategy: str) -> None:
    """Change the image of a DaemonSet with a pod on both nodes, and wait until no pod of it is away."""
    await apply_daemon_set(nodes.client, strategy=strategy)
    for node in ("n1", "n2"):
        await nodes.label(node, "yes")

    async def is_ready() -> bool:
        status = await nodes.status()
        return bool(status.get("numberAvailable") == status["desiredNumberScheduled"] == 2)

    await eventually(is_ready)
    before = await nodes.hashes()
    await apply_daemon_set(nodes.client, image="other", strategy=strategy)
    generation = (await nodes.daemon_set())["metadata"]["generation"]

    async def is_through() -> bool:
        is_observed = (await nodes.status()).get("observedGeneration") == generation
        is_changed = strategy == "OnDelete" or not set(before) & set(await nodes.hashes())
        return is_observed and is_changed and await is_ready()

    await eventually(is_through)


async def test_init_containers_succeed_one_after_the_other(nodes: Nodes):
    await apply_daemon_set(nodes.client)
    await nodes.label("n1", "yes")
    await eventually(nodes.is_ready)
    assert nodes.runtime.started == [f"{POD}/{item}" for item in ("first", "second", "main")]
    status = (await nodes.pod())["status"]
    assert status["phase"] == "Running"
    current = status["initContainerStatuses"]
    assert [(item["name"], item["ready"]) for item in current] == [
        ("first", True),
        ("second", True),
    ]
    assert all(item["state"]["terminated"]["exitCode"] == 0 for item in current)


async def test_an_init_container_that_fails_holds_up_those_after_it(nodes: Nodes):
    nodes.runtime.messages["second"] = "no driver"
    await apply_daemon_set(nodes.client)
    await nodes.label("n1", "yes")

    async def has_failed() -> bool:
        with contextlib.suppress(NotFound):
            return "lastState" in str((await nodes.pod())["status"])
        return False

    await eventually(has_failed)
    status = (await nodes.pod())["status"]
    ended = {"terminated": {"exitCode": 1, "message": "no driver"}}
    assert status["phase"] == "Pending"
    first, second = status["initContainerStatuses"]
    assert (first["name"], first["ready"]) == ("first", True)
    assert second == {"name": "second", "ready": False, "lastState": ended}
    nodes.runtime.messages.clear()
    await eventually(nodes.is_ready)
    assert nodes.runtime.started.count(f"{POD}/first") == 1


async def test_a_container_that_fails_after_a_restart_makes_its_pod_unready(nodes: Nodes):
    await apply_daemon_set(nodes.client)
    await nodes.label("n1", "yes")
    await eventually(nodes.is_ready)
    nodes.runtime.messages["main"] = "the driver is gone"
    pod = await nodes.client.get(PODS, Pod, POD, namespace=NAMESPACE)
    nodes.kubelet.restart(pod)

    async def is_unready() -> bool:
        return not await nodes.is_ready()

    await eventually(is_unready)
    status = (await nodes.pod())["status"]
    ended = {"terminated": {"exitCode": 1, "message": "the driver is gone"}}
    assert status["containerStatuses"] == [{"name": "main", "ready": False, "lastState": ended}]
    nodes.runtime.messages.clear()
    await eventually(nodes.is_ready)
    assert nodes.runtime.started.count(f"{POD}/second") == 1
