"""The container of a query is identified by kubelet's List and the size of the request."""

import asyncio
import time
from functools import partial

import pytest

from agent.kubelet.node_pods import NodePods, node_pod
from agent.plugin.pod_identification import (
    IdentifiedBy,
    IdentifiedContainer,
    NotIdentified,
    PodQuery,
    identify,
    identify_by_assignment,
    wait_until_identified,
)
from api.foreign.core import Pod
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.kubelet.proto.deviceplugin_pb2 import ContainerPreferredAllocationRequest
from api.names import PodUid
from tests.support.bound_pods import RESOURCE, a_bound_pod

ALL = tuple(f"GPU-{n}" for n in range(8))


def pods_of(*pods: Pod) -> NodePods:
    node_pods = NodePods()
    node_pods.replace_all([found for pod in pods if (found := node_pod(pod)) is not None])
    return node_pods


def a_query(size: int = 1, must: tuple[str, ...] = (), available: tuple[str, ...] = ALL):
    request = ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )
    return PodQuery(RESOURCE, request)


def listed(name: str = "p", **containers: tuple[str, ...]) -> PodUnits:
    return PodUnits(
        "default",
        name,
        tuple(
            ContainerUnits(container, {RESOURCE: units} if units else {})
            for container, units in containers.items()
        ),
    )


def has_no_units(_uid: PodUid, _container: str, _resource: str) -> bool:
    return False


def all_served(_uid: PodUid, _container: str, _resource: str) -> bool:
    return True


def who(found: IdentifiedContainer | NotIdentified) -> tuple[str, str]:
    assert isinstance(found, IdentifiedContainer), found
    return found.pod.name, found.container.name


def asked(
    *listing: PodUnits, pods: NodePods, query: PodQuery
) -> IdentifiedContainer | NotIdentified:
    return identify(listing, pods, query, has_units=has_no_units)


def test_the_pod_that_has_nothing_yet_asks():
    pods = pods_of(a_bound_pod("served"), a_bound_pod("p"), a_bound_pod("waits"))
    listing = (listed("served", main=("GPU-1",)), listed("cpu", main=()), listed("p", main=()))
    assert who(asked(*listing, pods=pods, query=a_query())) == ("p", "main")


@pytest.mark.parametrize(
    ("shape", "given", "size", "must", "container"),
    [
        pytest.param({"main": {"a": 1, "b": 1}}, {"a": ("x",), "b": ()}, 1, (), "b", id="second"),
        pytest.param({"main": {"a": 1, "b": 2}}, {"a": (), "b": ()}, 1, (), "a", id="first"),
        pytest.param({"init": {"i": 1}, "main": {"a": 1}}, {"a": ()}, 1, (), "i", id="init"),
        pytest.param(
            {"init": {"i": 1}, "main": {"a": 2}}, {"a": ()}, 2, ("x",), "a", id="after init"
        ),
        pytest.param(
            {"init": {"i": 1, "j": 3}, "main": {"a": 3, "b": 1}},
            {"a": (), "b": ()},
            3,
            ("x",),
            "j",
            id="second init",
        ),
        pytest.param(
            {"init": {"i": 2}, "sidecars": {"s": 2}, "main": {"a": 2}},
            {"s": (), "a": ()},
            2,
            (),
            "i",
            id="an init container before a sidecar of the same size",
        ),
        pytest.param(
            {"init": {"i": 2}, "sidecars": {"s": 2}, "main": {"a": 2}},
            {"s": ("x", "y"), "a": ()},
            2,
            (),
            "a",
            id="a main container behind a sidecar that has the init container's",
        ),
        pytest.param(
            {"init": {"i": 1}, "main": {"a": 3}},
            {"a": ()},
            3,
            ("x", "y"),
            "a",
            id="more than the init container's is aligned",
        ),
    ],
)
def test_the_container_is_told_by_what_kubelet_asks(shape, given, size, must, container):
    pods = pods_of(a_bound_pod("p", **shape))
    assert who(asked(listed("p", **given), pods=pods, query=a_query(size, must))) == (
        "p",
        container,
    )


@pytest.mark.parametrize(
    ("pod", "given", "size"),
    [
        pytest.param(a_bound_pod("p"), {"main": ("x",)}, 1, id="it has its own"),
        pytest.param(a_bound_pod("p"), {"main": ()}, 2, id="another count"),
        pytest.param(a_bound_pod("p", resource="r/other"), {"main": ()}, 1, id="another resource"),
        pytest.param(a_bound_pod("p", phase="Failed"), {"main": ()}, 1, id="it has ended"),
        pytest.param(a_bound_pod("q"), {"main": ()}, 1, id="the watch does not show it"),
        pytest.param(
            a_bound_pod("p", main={"a": 1, "b": 2}),
            {"a": (), "b": ()},
            2,
            id="a container before it has nothing yet",
        ),
    ],
)
def test_who_does_not_ask(pod: Pod, given: dict[str, tuple[str, ...]], size: int):
    found = asked(listed("p", **given), pods=pods_of(pod), query=a_query(size))
    assert isinstance(found, NotIdentified)
    assert found.fallback is None


def test_one_that_was_served_is_somebody_else_of_the_same_name_or_was_forgotten():
    pods = pods_of(a_bound_pod("p"))
    found = identify([listed("p", main=())], pods, a_query(), has_units=all_served)
    assert isinstance(found, NotIdentified)
    assert found.fallback is not None
    assert found.fallback.by is IdentifiedBy.ALLOCATED_BEFORE


def test_of_several_pods_the_one_whose_assigned_units_are_free_is_identified():
    """Pods that run though kubelet lost its checkpoint have nothing by its PodResources API."""
    runs = a_bound_pod("runs", assigned={"main": ("GPU-9",)})
    asks = a_bound_pod("asks", assigned={"main": ("GPU-1",)})
    listing = (listed("runs", main=()), listed("asks", main=()))
    assert who(asked(*listing, pods=pods_of(runs, asks), query=a_query())) == ("asks", "main")
    twins = pods_of(a_bound_pod("runs"), a_bound_pod("asks"))
    assert isinstance(asked(*listing, pods=twins, query=a_query()), NotIdentified)


def test_without_a_list_the_first_pod_whose_assigned_units_are_free_is_identified():
    pods = pods_of(
        a_bound_pod("ended", phase="Succeeded", assigned={"main": ("GPU-3",)}),
        a_bound_pod("unassigned"),
        a_bound_pod("in-use", assigned={"main": ("GPU-9",)}),
        a_bound_pod("larger", main={"main": 2}, assigned={"main": ("GPU-1", "GPU-2")}),
        a_bound_pod("first", assigned={"main": ("GPU-1",)}),
        a_bound_pod("second", assigned={"main": ("GPU-2",)}),
    )
    found = identify_by_assignment(pods, a_query(), has_units=has_no_units)
    assert who(found) == ("first", "main")
    assert isinstance(found, IdentifiedContainer)
    assert found.by is IdentifiedBy.ASSIGNED
    assert isinstance(identify_by_assignment(pods, a_query(), has_units=all_served), NotIdentified)
    assert isinstance(
        identify_by_assignment(pods, a_query(must=("GPU-7",)), has_units=has_no_units),
        NotIdentified,
    )


def test_without_a_list_the_init_containers_units_tell_who_comes_after_it():
    pod = a_bound_pod(
        "p", init={"i": 1}, main={"a": 2}, assigned={"i": ("GPU-1",), "a": ("GPU-1", "GPU-2")}
    )
    found = identify_by_assignment(pods_of(pod), a_query(2, ("GPU-1",)), has_units=has_no_units)
    assert who(found) == ("p", "a")


@pytest.mark.looptime
async def test_the_watch_is_waited_for_and_no_longer_than_allowed():
    pods = NodePods()
    judge = partial(identify, [listed("p", main=())], pods, a_query(), has_units=has_no_units)
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert isinstance(await wait_until_identified(pods, judge, 0.05), NotIdentified)
    assert loop.time() - started == pytest.approx(0.05, abs=0.001)
    pod = node_pod(a_bound_pod("p"))
    assert pod is not None
    loop.call_later(0.01, pods.upsert, pod)
    assert who(await wait_until_identified(pods, judge, 5.0)) == ("p", "main")
    assert loop.time() - started == pytest.approx(0.06, abs=0.001)


async def test_a_pod_counts_that_the_watch_shows_once_this_process_runs_again():
    pods = NodePods()
    judge = partial(identify, [listed("p", main=())], pods, a_query(), has_units=has_no_units)
    pod = node_pod(a_bound_pod("p"))
    assert pod is not None
    loop = asyncio.get_running_loop()

    def read_in_turns(left: int) -> None:
        if left:
            loop.call_soon(read_in_turns, left - 1)
        else:
            pods.upsert(pod)

    # The kernel runs other processes for longer than the wait; the watch's bytes come meanwhile.
    loop.call_soon(time.sleep, 0.03)
    loop.call_later(0.001, read_in_turns, 5)
    assert who(await wait_until_identified(pods, judge, 0.02)) == ("p", "main")


async def test_who_was_served_is_taken_fallback():
    pods = pods_of(a_bound_pod("p"))
    judge = partial(identify, [listed("p", main=())], pods, a_query(), has_units=all_served)
    assert who(await wait_until_identified(pods, judge, 0.01)) == ("p", "main")
