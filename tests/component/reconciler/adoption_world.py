"""What NVIDIA's GPU Operator has in a cluster with our server: its objects, and the pods of all DaemonSets, which are played."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api.foreign.core import Affinity
from api.names import (
    NodeName,
)
from cli.operands.adopt_command import adopt
from kube import resources
from operands.nvidia.adoption import component_of
from pool.model import Constraints
from simulator.node.daemon_sets import revision_hash
from tests.component.reconciler.operator_world import NAMESPACE, OperatorWorld, an_operator_world
from tests.support.nvidia.operator_release import (
    DRIVER,
    GATES,
    PLUGIN,
    operators_account,
    operators_cluster_role,
    operators_daemon_set,
)

Json = dict[str, Any]
NODES_OF_TESTS: Final = ("n1", "n2")
MADE: Final = (
    DRIVER,
    "nvidia-container-toolkit-daemonset",
    "nvidia-operator-validator",
    PLUGIN,
    "nvidia-dcgm",
)
OURS: Final = "nvidia-driver-daemonset-ubuntu24.04"
IMAGE: Final = "registry.example.com/driver:1-ubuntu24.04"
ELSEWHERE: Final = "gpu-operator"
PLUGIN_WORK: Final = "nvidia-device-plugin-daemonset"


@dataclass
class Pod:
    uid: int
    node: str
    work: str
    owner: str
    revision: str
    labels: Json


@dataclass
class PlayedPods:
    """Pods of all DaemonSets, as the real controllers make, adopt, orphan and delete them."""

    world: OperatorWorld
    pods: list[Pod] = field(default_factory=list)
    orphaned: set[str] = field(default_factory=set)
    """UIDs of DaemonSets that were deleted without their pods."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    ended: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        delete = self.world.client.delete

        async def recorded(resource: resources.Resource, name: str, **options: Any) -> None:
            # The API server in memory has no garbage collector.
            if options.get("propagation") == "Orphan":
                self.orphaned.add(options["uid"])
            await delete(resource, name, **options)

        self.world.client.delete = recorded  # type: ignore[method-assign]

    async def tick(self) -> None:
        """Let the controllers see everything, and write the status of each DaemonSet."""
        listing = await self.world.client.list_(resources.DAEMON_SETS, Json)
        live = {item["metadata"]["uid"]: item for item in listing.items}
        for pod in list(self.pods):
            if pod.owner and pod.owner not in live:
                if pod.owner in self.orphaned:
                    pod.owner = ""
                else:
                    self.end(pod)
        for item in live.values():
            await self._serve(item)
        doubled = {
            key: number
            for key, number in Counter((pod.node, pod.work) for pod in self.pods).items()
            if number > 1
        }
        assert not doubled

    async def _serve(self, item: Json) -> None:
        meta, spec = item["metadata"], item["spec"]
        template = spec["template"]
        revision, selector = revision_hash(template), spec["selector"]["matchLabels"].items()
        selected = await self._nodes(template["spec"])
        for pod in list(self.pods):
            if not pod.owner and selector <= pod.labels.items():
                pod.owner = meta["uid"]
            is_old = pod.revision != revision and spec["updateStrategy"]["type"] != "OnDelete"
            if pod.owner == meta["uid"] and (pod.node not in selected or is_old):
                self.end(pod)
        for node in sorted(selected - {pod.node for pod in self.pods if pod.owner == meta["uid"]}):
            component = component_of(item)
            # Of the same namespace no two driver pods are bound to one node.
            if component == "nvidia-driver" and self.of(node, component):
                continue
            labels = template["metadata"]["labels"]
            self.pods.append(
                Pod(next(self.numbers), node, component, meta["uid"], revision, labels)
            )
        mine = [pod for pod in self.pods if pod.owner == meta["uid"]]
        status = {
            "observedGeneration": meta["generation"],
            "desiredNumberScheduled": len(selected),
            "currentNumberScheduled": len(mine),
            "updatedNumberScheduled": sum(pod.revision == revision for pod in mine),
            "numberMisscheduled": 0,
            "numberReady": len(mine),
            "numberAvailable": len(mine),
        }
        if item.get("status") == status:
            return
        where = {"name": meta["name"], "namespace": meta["namespace"], "subresource": "status"}
        await self.world.client.merge_patch(resources.DAEMON_SETS, {"status": status}, **where)

    async def _nodes(self, pod: Json) -> set[str]:
        affinity = msgspec.convert(pod.get("affinity"), Affinity | None)
        constraints = Constraints(node_selector=pod.get("nodeSelector"), affinity=affinity)
        listing = await self.world.client.list_(resources.NODES, Json)
        return {
            item["metadata"]["name"]
            for item in listing.items
            if constraints.select(NodeName(item["metadata"]["name"]), item["metadata"]["labels"])
        }

    def end(self, pod: Pod) -> None:
        self.pods.remove(pod)
        self.ended.append(pod)

    def of(self, node: str, work: str) -> list[Pod]:
        return [pod for pod in self.pods if (pod.node, pod.work) == (node, work)]

    def uids(self) -> dict[tuple[str, str], int]:
        return {(pod.node, pod.work): pod.uid for pod in self.pods}

    async def upgrade(self, node: str) -> None:
        """Replace all pods of a node, as the upgrade of its driver does."""
        for pod in [pod for pod in self.pods if pod.node == node]:
            self.end(pod)
        await self.tick()


@dataclass
class Adoption:
    """The operator's objects in a cluster with our server."""

    world: OperatorWorld
    played: PlayedPods

    async def release(self, namespace: str, *, image: str = IMAGE) -> None:
        policy = await self.world.client.get(resources.CLUSTER_POLICIES, Json, "gpus")
        for name in MADE:
            _, account = GATES[name]
            body = operators_daemon_set(name, policy, namespace=namespace, driver_image=image)
            await self.world.client.create(resources.DAEMON_SETS, body)
            accounts = operators_account(account, policy, namespace=namespace)
            await self.world.client.create(resources.SERVICE_ACCOUNTS, accounts)
        await self.world.client.create(
            resources.CLUSTER_ROLES, operators_cluster_role("nvidia-driver", policy)
        )
        await self.played.tick()

    async def adopt(self) -> None:
        await adopt(self.world.client, NAMESPACE, is_dry_run=False)

    async def until_stable(self) -> None:
        """Go on until nothing is written."""
        for _ in range(12):
            self.world.writes()
            await self.world.step()
            await self.played.tick()
            if not self.world.writes():
                return
        raise AssertionError("still writing")

    async def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in await self.world.found(resources.DAEMON_SETS)}


@asynccontextmanager
async def an_adoption() -> AsyncIterator[Adoption]:
    """Yield nodes with a GPU, and a ClusterPolicy that nothing serves yet."""
    async with an_operator_world() as world:
        for name in NODES_OF_TESTS:
            await world.add_node(name)
        await world.client.create(
            resources.NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}},
        )
        off = {key: {"enabled": False} for key in ("dcgmExporter", "gfd", "migManager")}
        await world.add_policy("gpus", **off)
        yield Adoption(world, PlayedPods(world))
