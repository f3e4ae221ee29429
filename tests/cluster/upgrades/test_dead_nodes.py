"""A roll-out of our DaemonSets over nodes of which one is dead, by the real DaemonSet controller."""

from typing import TYPE_CHECKING, Any

import msgspec

from api.foreign.core import Node
from manifests import constants
from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import NodeDetectorSettings, WorkloadSettings
from pool.facts import node_facts
from reconciler.runtime.rolling_update import allowing_for_unready_nodes
from tests.cluster.environment import nodes, polling

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.upgrades.conftest import CreateNodes, Upgrades

Json = dict[str, Any]
LIVE = 4


async def test_rollout_ends_on_four_nodes_where_a_fifth_is_dead(
    upgrades: "Upgrades", api: "ApiClient", namespace: str, create_kwok_nodes: "CreateNodes"
):
    del upgrades  # whose kube-scheduler binds the pods
    labels = {"rollout": namespace}
    dead = f"{nodes.REAL_PREFIX}{namespace}"
    await create_kwok_nodes(LIVE, prefix=namespace, labels=labels)
    await api.create(nodes.NODES, {"metadata": {"name": dead, "labels": labels}})
    account = {"metadata": {"name": constants.NODE_DETECTOR}}
    await api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{constants.NODE_DETECTOR}"

    def built(version: int) -> list[Json]:
        settings = WorkloadSettings(
            image=f"registry.test/gpu-control-plane:{version}",
            namespace=namespace,
            detector=NodeDetectorSettings(node_selector=labels),
        )
        return build_node_detector(settings)

    async def apply(objects: list[Json]) -> None:
        (body,) = objects
        await api.patch(path, body, kind="apply", fieldManager="test", force="true")

    async def until(**numbers: int) -> Json:
        async def are_there() -> Json:
            found = await api.get(path)
            status = found["status"]
            assert status.get("observedGeneration") == found["metadata"]["generation"]
            assert {key: status.get(key, 0) for key in numbers} == numbers, status
            return found

        return await polling.eventually(are_there, what=f"DaemonSet with {numbers}", within=120)

    try:
        await apply(built(1))
        await until(desiredNumberScheduled=LIVE + 1, numberAvailable=LIVE)
        await apply(built(2))
        # Only the dead node's pod is replaced: one of five nodes is what 10 % allow.
        found = await until(numberAvailable=LIVE, updatedNumberScheduled=1)
        listed = await api.get(nodes.NODES, labelSelector=f"rollout={namespace}")
        facts = [node_facts(msgspec.convert(item, Node)) for item in listed["items"]]
        live = {constants.NODE_DETECTOR: found}
        await apply(allowing_for_unready_nodes(built(2), facts, live=live))
        found = await until(numberAvailable=LIVE, updatedNumberScheduled=LIVE + 1)
        assert found["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 2
    finally:
        await api.delete(f"{nodes.NODES}/{dead}")
