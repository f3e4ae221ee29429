"""NUMA nodes as kubelet's TopologyManager demands them, against its source in Python."""

import itertools
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from pool.model import ContainerDemand, ContainerRole, KubeletTopology
from pool.placement.kubelet_hints import Unaligned, align, most_numa_nodes
from tests.support.kubelet_topology import Kubelet, RejectedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INIT, SIDECAR, MAIN = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.MAIN
STRICT = [TopologyManagerPolicy.RESTRICTED, TopologyManagerPolicy.SINGLE_NUMA_NODE]
ALIGNING = [TopologyManagerPolicy.BEST_EFFORT, *STRICT]
SINGLE = KubeletTopology(TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER)
NODES: "list[dict[int | None, int]]" = [
    {0: 2, 1: 2},
    {0: 3, 1: 1},
    {0: 1, 1: 3, None: 1},
    {0: 2, 1: 1, 2: 2},
    {1: 3, None: 2},
    {None: 3},
]
"""Devices by NUMA node."""
PODS = [
    [(MAIN, item)] for item in (1, 2, 3, 4, 5)
] + [
    [(first, item), (MAIN, two)]
    for first in (INIT, SIDECAR, MAIN)
    for item, two in itertools.product((1, 2, 3), repeat=2)
] + [
    [(INIT, 2), (MAIN, 1), (MAIN, 1)],
    [(INIT, 1), (SIDECAR, 1), (MAIN, 2)],
    [(MAIN, 1), (MAIN, 1), (MAIN, 1)],
]  # fmt: skip


def _named(pod: "Sequence[tuple[ContainerRole, int]]") -> list[ContainerDemand]:
    return [ContainerDemand(f"c{at}", role, units) for at, (role, units) in enumerate(pod)]


def _devices(node: "dict[int | None, int]") -> dict[str, int | None]:
    return {
        f"{'x' if numa is None else numa}-{number}": numa
        for numa, count in node.items()
        for number in range(count)
    }


def _subsets(devices: "Sequence[str]") -> "Iterator[set[str]]":
    for count in range(len(devices) + 1):
        yield from map(set, itertools.combinations(devices, count))


@pytest.mark.parametrize("scope", list(TopologyManagerScope))
@pytest.mark.parametrize("policy", ALIGNING)
def test_what_kubelet_admits_is_aligned_on_the_nodes_that_it_chooses(
    policy: TopologyManagerPolicy, scope: TopologyManagerScope
):
    checked = 0
    for node, pod in itertools.product(NODES, PODS):
        numa = _devices(node)
        machine = frozenset({0, 1, 2})
        for free in _subsets(sorted(numa)):
            counts = Counter(numa[item] for item in free)
            found = align(KubeletTopology(policy, scope), node, counts, containers=pod)
            kubelet = Kubelet(policy.value, scope.value, numa, set(free), machine=machine)
            try:
                kubelet.admit(_named(pod))
            except RejectedError:
                # Of several containers it may serve the first where only the second has a place.
                if len(pod) == 1 and policy in STRICT and len(free) >= pod[0][1]:
                    assert isinstance(found, Unaligned)
                continue
            assert not isinstance(found, Unaligned)
            for at, nodes in enumerate(found):
                chosen = kubelet.affinity[f"c{at}"]
                if nodes is None:  # kubelet names all nodes, or does not choose
                    assert chosen in {None, machine}
                else:
                    assert chosen == frozenset(nodes), (node, pod, free)
            checked += 1
    assert checked > 500


@pytest.mark.parametrize("policy", [*ALIGNING, TopologyManagerPolicy.NONE])
def test_without_numa_nodes_kubelet_gives_what_was_assigned_whatever_else_is_free(
    policy: TopologyManagerPolicy,
):
    """The proof that pods get their devices where our plugins report no NUMA nodes."""
    numa = dict.fromkeys(_devices({0: 3, 1: 3}))
    for scope, pod in itertools.product(TopologyManagerScope, PODS):
        named = _named(pod)
        for free in _subsets(sorted(numa)):
            # The last ones are assigned, whereas kubelet left alone takes the first.
            assigned = Kubelet("none", "container", numa, set(free))
            try:
                assigned.admit(named)
            except RejectedError:
                continue
            requested = _assigned(named, sorted(free, reverse=True))
            answer = partial(_assigned_to, requested)
            kubelet = Kubelet(policy.value, scope.value, numa, set(free), answer)
            given = kubelet.admit(named)
            for item in named:
                if not requested[item.name] & _of_init(named, requested, before=item):
                    assert given[item.name] == requested[item.name]


def _assigned_to(
    assigned: "dict[str, set[str]]",
    container: str,
    _available: set[str],
    must: set[str],
    _size: int,
) -> list[str]:
    return sorted(must | assigned[container])


def _assigned(containers: "list[ContainerDemand]", free: "list[str]") -> dict[str, set[str]]:
    reusable: list[str] = []
    assigned: dict[str, set[str]] = {}
    for container in containers:
        kept = sorted(reusable)[: container.units]
        fresh = [free.pop(0) for _ in range(container.units - len(kept))]
        assigned[container.name] = {*kept, *fresh}
        if container.role is INIT:
            reusable += fresh
        else:
            reusable = [device for device in reusable if device not in kept]
    return assigned


def _of_init(
    containers: "list[ContainerDemand]", assigned: "dict[str, set[str]]", *, before: ContainerDemand
) -> set[str]:
    """Return the devices of init containers, among which kubelet picks by itself."""
    earlier = containers[: containers.index(before)]
    return set().union(*(assigned[item.name] for item in earlier if item.role is INIT))


def test_containers_are_dealt_out_so_that_all_of_them_fit():
    """kubelet gives the first one the lower NUMA node, and then has no place for the second one."""
    pod = [(MAIN, 2), (MAIN, 3)]
    assert align(SINGLE, {0: 4, 1: 4}, {0: 3, 1: 2}, containers=pod) == ((1,), (0,))


def test_the_caller_may_try_other_numa_nodes_first():
    free: dict[int | None, int] = {0: 4, 1: 4}
    assert align(SINGLE, free, free, containers=[(MAIN, 2)]) == ((0,),)
    assert align(SINGLE, free, free, containers=[(MAIN, 2)], order=[1, 0]) == ((1,),)


def test_a_refusal_says_how_many_numa_nodes_there_may_be():
    capacity: dict[int | None, int] = {0: 4, 1: 4}
    refused = align(SINGLE, capacity, {0: 2, 1: 2}, containers=[(MAIN, 1), (MAIN, 3)])
    assert refused == Unaligned(units=3, numa_nodes=1)
    refused = align(SINGLE, capacity, capacity, containers=[(MAIN, 5)])
    assert refused == Unaligned(units=5, numa_nodes=0)


@pytest.mark.parametrize("policy", [None, TopologyManagerPolicy.NONE])
def test_without_a_policy_any_devices_will_do(policy: TopologyManagerPolicy | None):
    topology = policy and KubeletTopology(policy, TopologyManagerScope.CONTAINER)
    assert align(topology, {0: 1, 1: 1}, {0: 1, 1: 1}, containers=[(MAIN, 2)]) == (None,)


@pytest.mark.parametrize(
    ("policy", "units", "want"),
    [
        (TopologyManagerPolicy.NONE, 6, None),
        (TopologyManagerPolicy.BEST_EFFORT, 6, None),
        (TopologyManagerPolicy.RESTRICTED, 4, 1),
        (TopologyManagerPolicy.RESTRICTED, 5, 2),
        (TopologyManagerPolicy.RESTRICTED, 8, 0),
        (TopologyManagerPolicy.SINGLE_NUMA_NODE, 4, 1),
        (TopologyManagerPolicy.SINGLE_NUMA_NODE, 5, 0),
    ],
)
def test_numa_nodes_by_policy(policy: TopologyManagerPolicy, units: int, want: int | None):
    assert most_numa_nodes(policy, {0: 3, 1: 4, None: 8}, units) == want


def test_a_pod_of_many_containers_is_decided_within_bounds():
    pod = [(MAIN, 3)] * 300 + [(MAIN, 1)] * 500
    free: dict[int | None, int] = dict.fromkeys(range(8), 175)
    assert not isinstance(align(SINGLE, free, free, containers=pod), Unaligned)
    free = dict.fromkeys(range(8), 174)
    assert isinstance(align(SINGLE, free, free, containers=pod), Unaligned)
