"""What the node's agent writes, at the real API server: the patch that is a heartbeat and a check, and the
garbage collector, which takes what a node that is gone said."""

import asyncio
import datetime as dt
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from agent.inventory.node_devices import PublishedFeatures
from agent.inventory.node_feature import feature_name
from agent.inventory.publisher import FeaturePublisher
from agent.problems.condition import DegradedConditionWriter
from agent.problems.registry import ProblemRegistry
from api.names import API_VERSION, NodeName
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import NotFound, TooManyRequests
from kube.resources import GPU_NODE_INVENTORIES, NODE_FEATURES, NODES
from manifests.install.crds import build_crds
from manifests.yaml import render
from simulator.node.nfd import node_feature_crd
from telemetry.conditions import AgentDegraded
from tests.cluster.environment import definitions, polling

DEVICES = PublishedFeatures(
    devices=({"pci.address": "0000:17:00.0", "uuid": "GPU-1", "links": "[]"},),
    node={"driver.version": "570.86.15"},
)


@pytest.fixture(scope="module", name="_kinds")
def _install_kinds(kubectl):
    crds = [*build_crds(), node_feature_crd()]
    asyncio.run(kubectl("apply", "-f", "-", stdin=render(crds)))
    asyncio.run(definitions.until_served(kubectl, crds))


@dataclass
class Publishing:
    """An agent that beats with every step."""

    client: KubeClient
    node: NodeName
    namespace: str

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.problems = ProblemRegistry()
        self.publisher = FeaturePublisher(
            self.client,
            self.problems,
            SystemClock(),
            node=self.node,
            namespace=self.namespace,
            heartbeat_s=0.0,
        )
        self.publisher.publish(DEVICES)

    async def feature(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(
            NODE_FEATURES, dict, feature_name(self.node), namespace=self.namespace
        )
        return found

    async def patch(self, patch: dict[str, Any]) -> None:
        await self.client.merge_patch(
            NODE_FEATURES, patch, name=feature_name(self.node), namespace=self.namespace
        )


@pytest.fixture
async def agent(control_plane, api, namespace, _kinds) -> AsyncIterator[Publishing]:
    node = NodeName(f"agent-{secrets.token_hex(3)}")
    clock = SystemClock()
    await api.create("/api/v1/nodes", {"metadata": {"name": node}})
    configuration = await load_configuration(clock, kubeconfig=str(control_plane.kubeconfig()))
    async with KubeClient(configuration, clock) as client:
        made = Publishing(client, node, namespace)

        async def is_served() -> bool:
            # The API server answers so while it sets up the storage of a new kind.
            with suppress(TooManyRequests, NotFound):
                await made.publisher.reconcile()
                return True
            return False

        await polling.eventually(is_served, what="NodeFeatures are served")
        yield made
        with suppress(NotFound):
            await client.delete(NODES, node)


def generations(feature: dict[str, Any]) -> tuple[str, int]:
    return feature["metadata"]["uid"], feature["metadata"]["generation"]


async def test_a_heartbeat_changes_the_annotation_and_nothing_else(agent: Publishing):
    before = await agent.feature()
    agent.publisher._clock = Later()
    await agent.publisher.reconcile()
    after = await agent.feature()
    assert generations(after) == generations(before)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] != before["metadata"]["annotations"]


class Later:
    """A minute ahead."""

    def monotonic(self) -> float:
        return SystemClock().monotonic() + 60

    def utc_now(self) -> dt.datetime:
        return SystemClock().utc_now() + dt.timedelta(minutes=1)


@pytest.mark.parametrize(
    "harm",
    [
        {"spec": {"features": {"instances": None}}},
        {"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "other"}}},
        {"metadata": {"annotations": None}},
    ],
    ids=["cards", "label", "annotations"],
)
async def test_the_next_heartbeat_undoes_what_somebody_did(agent: Publishing, harm):
    want = (await agent.feature())["spec"]
    await agent.patch(harm)
    await agent.publisher.reconcile()
    found = await agent.feature()
    assert found["spec"] == want
    assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": agent.node}
    before = generations(found)
    await agent.publisher.reconcile()
    assert generations(await agent.feature()) == before


async def test_one_that_was_deleted_is_made_again(agent: Publishing):
    uid, _ = generations(await agent.feature())
    await agent.client.delete(NODE_FEATURES, feature_name(agent.node), namespace=agent.namespace)
    await agent.publisher.reconcile()
    assert generations(await agent.feature())[0] != uid


async def test_a_restart_takes_the_object_over(agent: Publishing):
    before = await agent.feature()
    agent.begin()
    await agent.publisher.reconcile()
    after = await agent.feature()
    assert generations(after) == generations(before)
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]


async def test_what_a_node_said_goes_with_it(agent: Publishing):
    await agent.client.delete(NODES, agent.node)

    async def is_gone() -> bool:
        with suppress(NotFound):
            await agent.feature()
            return False
        return True

    await polling.eventually(is_gone, what="the NodeFeature of a node that is gone goes")


async def test_the_condition_stands_beside_others(agent: Publishing):
    client, problems = agent.client, agent.problems
    body: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "GPUNodeInventory",
        "metadata": {"name": agent.node},
    }
    await client.create(GPU_NODE_INVENTORIES, body)
    other = {
        "type": "InfraDegraded",
        "status": "False",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await client.apply(
        GPU_NODE_INVENTORIES,
        {**body, "status": {"conditions": [other]}},
        field_manager="another",
        subresource="status",
    )
    condition = DegradedConditionWriter(client, problems, SystemClock(), node=agent.node)
    assert await condition.reconcile()
    problems.set("driver", AgentDegraded.DRIVER_HANGS, "no answer")
    assert await condition.reconcile()
    found: dict[str, Any] = await client.get(GPU_NODE_INVENTORIES, dict, agent.node)
    current = {item["type"]: item["reason"] for item in found["status"]["conditions"]}
    assert current == {"InfraDegraded": "Fine", "AgentDegraded": "DriverHangs"}
    again = DegradedConditionWriter(client, problems, SystemClock(), node=agent.node)
    assert not await again.reconcile()
    await client.delete(GPU_NODE_INVENTORIES, agent.node)
