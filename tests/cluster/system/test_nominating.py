"""Pods that wait in a long queue are nominated to the node of their reservation, which stays a hint."""

from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import pods
from tests.cluster.system.installation import SERVER_USER
from tests.cluster.system.objects import a_pod, all_bound, check_devices, reservation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment.client import ApiClient, JsonObject

HEAD = 32
"""Pods at the head of the queue that our server leaves alone."""
BEHIND = 8
COUNT = HEAD + BEHIND

CLUSTER = {"nodes": 3, "devices": 4, "slices": 8}
"""32 units a node: reservations of the first 32 pods fill one node, those of the others go to a second."""


@pytest.fixture
async def queue(make_pool, system, api, namespace):
    """Pods that were all admitted before kube-scheduler looks at any: the last ones are nominated."""
    pool = await make_pool(**CLUSTER)
    await system.scheduler.stop()
    for number in range(COUNT):
        pod = a_pod(f"p-{number:02d}", pool)
        await api.create(pods.collection(namespace), pod)
    return await wait_for_nominations(api, namespace, BEHIND)


def nominated(found: "Mapping[str, JsonObject]") -> "dict[str, str]":
    """Return pod -> the node that it is nominated to."""
    given = {name: pod.get("status", {}).get("nominatedNodeName") for name, pod in found.items()}
    return {name: node for name, node in given.items() if node}


async def wait_for_nominations(
    api: "ApiClient", namespace: str, count: int
) -> "dict[str, JsonObject]":
    return await pods.wait_for_pods(api, namespace, lambda found: len(nominated(found)) == count)


async def bound_pods(api: "ApiClient", namespace: str) -> "dict[str, JsonObject]":
    return await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, COUNT))


async def test_the_last_of_a_long_queue_are_nominated_and_bound_where_units_are_reserved(
    queue, system, api, namespace
):
    last = [f"p-{number:02d}" for number in range(HEAD, COUNT)]
    assert nominated(queue) == {name: reservation_of(queue[name])["node"] for name in last}

    await system.scheduler.start()

    bound = await bound_pods(api, namespace)
    check_devices(bound.values())
    for name in last:
        assert bound[name]["spec"]["nodeName"] == nominated(queue)[name]
    assert nominated(bound) == {}, "the API server takes the nomination away with the binding"


async def test_a_nomination_that_turns_out_wrong_costs_nothing_but_itself(
    queue, system, api, kubectl, namespace
):
    (node,) = set(nominated(queue).values())
    await kubectl("cordon", node)
    try:
        await system.scheduler.start()
        bound = await bound_pods(api, namespace)
    finally:
        await kubectl("uncordon", node)

    check_devices(bound.values())
    assert node not in {pod["spec"]["nodeName"] for pod in bound.values()}


async def test_a_nomination_is_one_write_and_pods_that_are_not_nominated_cost_none(
    make_pool, system, audit, api, namespace
):
    pool = await make_pool(**CLUSTER)
    await system.scheduler.stop()
    mark = await audit.mark()
    # The last one is nominated later than the others: what is written twice, has been by then.
    for count in (COUNT, COUNT + 1):
        for number in range(COUNT if count > COUNT else 0, count):
            await api.create(pods.collection(namespace), a_pod(f"p-{number:02d}", pool))
        await wait_for_nominations(api, namespace, count - HEAD)
    writes = await audit.writes(mark, user=SERVER_USER, resource="pods/status")
    assert [(write.verb, write.status) for write in writes] == [("patch", 200)] * (BEHIND + 1)
