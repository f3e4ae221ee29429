"""`node.operands`: what the settings ask for is there, edits are put back, and a refusal stops nothing else."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from api.names import OPERAND_LABEL, NodeName
from api.well_known_labels import PART_OF_LABEL
from kube.client import KubeClient
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    SERVICE_MONITORS,
    Resource,
)
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ServedKinds
from reconciler.node_software.policy_controller import KEY, RECHECK_S, PolicyController
from simulator.apiserver.server import InMemoryApiServer
from tests.support.builders import a_node
from tests.support.built_in_server import a_built_in_server, read_operands
from tests.support.client_of_api import an_api_with_client
from tests.support.loop_clock import ServerClock
from tests.support.metric_samples import Counted, samples, series
from tests.support.recorded_events import RecordedEvents
from tests.unit.operands.operand_cases import ALL_ON, CASES, EXTERNAL, NVML

NAMESPACE = ALL_ON.namespace


class Cluster:
    """A namespace, and servers that lead one after the other."""

    def __init__(self, api: InMemoryApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.events = RecordedEvents()
        self.nodes: dict[NodeName, Any] = {}

    def server(self, settings: PolicyOperands) -> PolicyController:
        return a_built_in_server(
            self.client, settings, self.events, now=ServerClock().instant, nodes=self.nodes.values()
        )

    async def lead(self, settings: PolicyOperands, *, passes: int = 2) -> int:
        """Return the number of writes of a new leader's passes."""
        self.writes()
        server = self.server(settings)
        for _ in range(passes):
            await server.reconcile(KEY)
        return self.writes()

    def writes(self) -> int:
        found = len(self.api.requests.writes())
        self.api.requests.clear()
        return found

    async def names(self) -> set[tuple[str, str]]:
        return set((await read_operands(self.client, NAMESPACE)).objects)

    async def daemon_set(self, name: str) -> dict[str, Any]:
        return await self.client.get(DAEMON_SETS, dict[str, Any], name, namespace=NAMESPACE)


def names_of(settings: PolicyOperands, *kinds: str) -> set[tuple[str, str]]:
    objects = build_operands(settings, ServedKinds(kinds=frozenset(kinds)))
    return {(object_["kind"], object_["metadata"]["name"]) for object_ in objects}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with an_api_with_client(namespace=NAMESPACE) as (api, client):
        yield Cluster(api, client)


async def test_every_object_is_written_once(cluster: Cluster):
    expected = names_of(ALL_ON)
    assert await cluster.lead(ALL_ON) == len(expected)
    assert await cluster.names() == expected
    assert await cluster.lead(ALL_ON, passes=3) == 0
    assert not cluster.events.events


@pytest.mark.parametrize("settings", [pytest.param(item, id=name) for name, item in CASES.items()])
async def test_a_change_of_settings_is_one_write_an_object(
    cluster: Cluster, settings: PolicyOperands
):
    """Among the writes are deletions of what the settings no longer ask for."""
    await cluster.lead(ALL_ON)
    before = {
        (operand["kind"], operand["metadata"]["name"]): operand
        for operand in build_operands(ALL_ON, ServedKinds())
    }
    after = {
        (operand["kind"], operand["metadata"]["name"]): operand
        for operand in build_operands(settings, ServedKinds())
    }
    changes = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert await cluster.lead(settings) == len(changes)
    assert await cluster.names() == after.keys()
    assert await cluster.lead(settings) == 0


async def test_operands_of_another_operator_are_removed_by_our_label_only(cluster: Cluster):
    await cluster.lead(ALL_ON)
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "dcgm-of-others", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": "nvidia-dcgm"}},
            "template": {
                "metadata": {"labels": {"app": "nvidia-dcgm"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example.com/dcgm:1"}]},
            },
        },
    }
    await cluster.client.create(DAEMON_SETS, foreign)
    labels = {PART_OF_LABEL: "gpu-control-plane", OPERAND_LABEL: "of-another-version"}
    left = {"name": "left", "namespace": NAMESPACE, "labels": labels}
    await cluster.client.create(DAEMON_SETS, {**foreign, "metadata": left})
    server = cluster.server(EXTERNAL)
    await server.reconcile(KEY)
    await server.reconcile(KEY)
    assert await server.reconcile(KEY) is None
    assert await cluster.names() == set()
    await cluster.daemon_set("dcgm-of-others")


async def test_an_edit_of_a_daemon_set_is_put_back_by_one_write(cluster: Cluster):
    server = cluster.server(ALL_ON)
    await server.reconcile(KEY)
    edited = await cluster.daemon_set("nvidia-dcgm")
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example.com/other:1"
    await cluster.client.replace(DAEMON_SETS, edited)
    cluster.writes()
    assert await server.reconcile(KEY) == RECHECK_S
    assert await server.reconcile(KEY) == RECHECK_S
    assert cluster.writes() == 1
    after = await cluster.daemon_set("nvidia-dcgm")
    image = after["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == ALL_ON.spec.dcgm.image


async def test_dead_nodes_hold_no_rollout_up_and_what_waits_is_counted(cluster: Cluster):
    labels = {"gpu.deckhouse.io/present": "true"}
    cluster.nodes |= {
        node.name: node
        for node in (a_node(f"n{n}", labels=labels, is_ready=n > 0) for n in range(5))
    }
    server = cluster.server(ALL_ON)
    await server.reconcile(KEY)
    status = {
        "currentNumberScheduled": 5,
        "desiredNumberScheduled": 5,
        "numberAvailable": 4,
        "updatedNumberScheduled": 1,
    }
    body = {"status": status}
    await cluster.client.merge_patch(
        DAEMON_SETS, body, name="nvidia-dcgm", namespace=NAMESPACE, subresource="status"
    )
    for _ in range(2):
        await server.reconcile(KEY)
    strategy = (await cluster.daemon_set("nvidia-dcgm"))["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"]["maxUnavailable"] == 2
    current = samples()[series("gpu_daemonset_outdated_nodes", daemonset="nvidia-dcgm")]
    assert current == 3
    await cluster.server(EXTERNAL).reconcile(KEY)
    assert series("gpu_daemonset_outdated_nodes", daemonset="nvidia-dcgm") not in samples()
    (event,) = cluster.events.taken()
    assert (event.reason, event.regarding.name) == ("GPURolloutPassesDeadNodes", "nvidia-dcgm")
    assert ": n0. Repair them" in event.note


async def test_an_annotation_of_another_client_stays(cluster: Cluster):
    server = cluster.server(ALL_ON)
    await server.reconcile(KEY)
    edited = await cluster.daemon_set("nvidia-dcgm")
    edited["metadata"]["annotations"]["example.com/owner"] = "somebody"
    await cluster.client.replace(DAEMON_SETS, edited)
    cluster.writes()
    await server.reconcile(KEY)
    assert cluster.writes() == 0


async def test_monitors_come_and_go_with_their_definition(cluster: Cluster):
    server = cluster.server(NVML)
    await server.reconcile(KEY)
    assert await cluster.names() == names_of(NVML)
    definition = a_definition(SERVICE_MONITORS)
    await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    await server.reconcile(KEY)
    assert await cluster.names() == names_of(NVML, "ServiceMonitor")
    name = definition["metadata"]["name"]
    await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, name)
    cluster.writes()
    await server.reconcile(KEY)
    assert await cluster.names() == names_of(NVML)
    assert cluster.writes() == 0
    assert not cluster.events.events


async def test_a_namespace_that_is_missing_is_told_once_and_stops_nothing(cluster: Cluster):
    settings = replace(ALL_ON, namespace="missing")
    server = cluster.server(settings)
    counted = Counted()
    for _ in range(3):
        assert await server.reconcile(KEY) == RECHECK_S
    errors = counted.growth("gpu_bootstrap_handler_errors_total")
    assert {handler for (handler,) in errors} == {
        "validator",
        "gpu-feature-discovery",
        "state-dcgm",
        "state-dcgm-exporter",
    }
    assert all(count % 3 == 0 for count in errors.values())
    (event,) = cluster.events.events
    assert (event.type, event.reason) == ("Warning", "GPUOperandNotApplied")
    assert "ServiceAccount gpu-node-validator" in event.note
    assert "more objects" in event.note
    live = await cluster.client.list_(
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
        dict[str, Any],
        label_selector=OPERAND_LABEL,
    )
    assert {item["metadata"]["name"] for item in live.items} == {
        "gpu-node-validator",
        "nvidia-gpu-feature-discovery",
    }


def a_definition(resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.plural.removesuffix("s"),
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }
