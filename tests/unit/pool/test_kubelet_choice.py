"""Devices where kubelet chooses the NUMA nodes: what a pod is bound with is what kubelet's source gives it."""

import itertools
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import SlicePlacement
from pool.errors import InvariantViolatedError
from pool.model import ContainerDemand, ContainerRole, KubeletTopology
from pool.placement.compliance import with_reused
from pool.placement.device_choice import choose
from pool.placement.device_rules import device_rules
from pool.placement.kubelet_choice import choose_as_kubelet
from tests.support.builders import a_device, a_pool, a_slice_pool
from tests.support.kubelet_topology import Kubelet, RejectedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pool.placement.device_rules import DeviceRules

INIT, SIDECAR, MAIN = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.MAIN
Pod = list[tuple[ContainerRole, int]]
ALIGNING = [item for item in TopologyManagerPolicy if item is not TopologyManagerPolicy.NONE]
NODES = [(0, 0, 1, 1), (0, 0, 0, 1), (0, 1, 1, 1), (1, 0, 2, 0, 2)]
"""The NUMA node of each device."""
PODS: list[Pod] = [[(MAIN, item)] for item in (1, 2, 3, 4)] + [
    *(
        [(first, item), (MAIN, two)]
        for first in (SIDECAR, MAIN)
        for item in (1, 2)
        for two in (1, 2, 3)
    ),
    [(INIT, 2), (MAIN, 2)],
    [(INIT, 1), (MAIN, 2)],
    [(MAIN, 1), (MAIN, 1), (MAIN, 1)],
]


def a_node(
    numa: "Sequence[int]", policy: TopologyManagerPolicy, scope: TopologyManagerScope
) -> "DeviceRules":
    return device_rules(
        a_pool(),
        [a_device(index=at, numa_node=node) for at, node in enumerate(numa)],
        (1,) * len(numa),
        kubelet=KubeletTopology(policy, scope, knows_numa_nodes=True),
    )


def name(at: int) -> str:
    return f"d{at}"


def named(pod: Pod) -> list[ContainerDemand]:
    return [ContainerDemand(f"c{at}", role, units) for at, (role, units) in enumerate(pod)]


class Admission(NamedTuple):
    """The devices of each container, by the choice and by kubelet; None where there is no place."""

    numa: tuple[int, ...]
    bound: dict[str, set[str]] | None
    given: dict[str, set[str]] | None

    def is_within_numa_nodes(self, scope: TopologyManagerScope) -> bool:
        """Whether the devices of each container, or of the pod, are on one NUMA node."""
        sets = [] if self.bound is None else list(self.bound.values())
        if scope is TopologyManagerScope.POD:
            sets = [set().union(*sets)]
        return all(len({self.numa[int(item[1:])] for item in set_}) <= 1 for set_ in sets)


def admissions(
    policy: TopologyManagerPolicy, scope: TopologyManagerScope, cpus: int | None = None
) -> "Iterator[Admission]":
    """Yield what becomes of each pod on each node with each set of free devices.

    With `cpus` every NUMA node has so many that are free, and every container asks for one of its own.
    """
    for numa, pod in itertools.product(NODES, PODS):
        node, machine = a_node(numa, policy, scope), frozenset(numa)
        for free in itertools.product((0, 1), repeat=len(numa)):
            if sum(free) < max(units for _, units in pod):
                continue
            choice = choose(node, free, pod)
            bound = None if choice is None else devices_of(pod, choice)
            kubelet = Kubelet(
                policy.value,
                scope.value,
                {name(at): on for at, on in enumerate(numa)},
                {name(at) for at, units in enumerate(free) if units},
                partial(preferred, bound or {}),
                machine=machine,
                cpus=None if cpus is None else dict.fromkeys(machine, cpus),
            )
            yield Admission(numa, bound, admitted(kubelet, pod))


def preferred(
    bound: dict[str, set[str]], container: str, _available: set[str], must: set[str], _size: int
) -> list[str]:
    return sorted(must | bound.get(container, set()))


def admitted(kubelet: Kubelet, pod: Pod) -> dict[str, set[str]] | None:
    try:
        return kubelet.admit(named(pod))
    except RejectedError:
        return None


def devices_of(pod: Pod, choice: list[list[int]]) -> dict[str, set[str]]:
    return {f"c{at}": set(map(name, item)) for at, item in enumerate(with_reused(pod, choice))}


@pytest.mark.parametrize("scope", list(TopologyManagerScope))
@pytest.mark.parametrize("policy", ALIGNING)
def test_a_pod_is_bound_where_kubelet_admits_it_with_the_devices_that_kubelet_gives(
    policy: TopologyManagerPolicy, scope: TopologyManagerScope
):
    found = list(admissions(policy, scope))
    assert [item for item in found if item.bound != item.given] == []
    assert sum(item.bound is not None for item in found) > 200


@pytest.mark.parametrize("scope", list(TopologyManagerScope))
@pytest.mark.parametrize("policy", ALIGNING)
def test_cpus_that_suffice_on_every_numa_node_change_nothing_for_devices_of_one(
    policy: TopologyManagerPolicy, scope: TopologyManagerScope
):
    found = [
        admission
        for admission in admissions(policy, scope, cpus=4)
        if admission.is_within_numa_nodes(scope)
    ]
    assert [item for item in found if item.bound != item.given] == []
    assert sum(item.bound is not None for item in found) > 200


def a_guaranteed_pod(policy: TopologyManagerPolicy, units: int, cpus: dict[int, int]) -> Admission:
    numa, pod, scope = (0, 0, 1, 1), [(MAIN, units)], TopologyManagerScope.CONTAINER
    choice = choose(a_node(numa, policy, scope), (1, 1, 1, 1), pod)
    assert choice is not None
    bound, on = devices_of(pod, choice), {name(at): item for at, item in enumerate(numa)}
    answer = partial(preferred, bound)
    kubelet = Kubelet(policy.value, scope.value, on, set(on), answer, cpus=cpus)
    return Admission(numa, bound, admitted(kubelet, pod))


def test_a_numa_node_without_free_cpus_is_passed_over_by_kubelet_alone():
    """The limit of the prediction: which CPUs are free is not known."""
    pod = a_guaranteed_pod(TopologyManagerPolicy.SINGLE_NUMA_NODE, 2, {0: 0, 1: 4})
    assert (pod.bound, pod.given) == ({"c0": {"d0", "d1"}}, {"c0": {"d2", "d3"}})


def test_restricted_rejects_devices_of_two_numa_nodes_with_cpus_that_one_has():
    pod = a_guaranteed_pod(TopologyManagerPolicy.RESTRICTED, 3, {0: 4, 1: 4})
    assert (pod.bound is None, pod.given) == (False, None)


@pytest.mark.parametrize(
    ("pod", "free", "want"),
    [
        pytest.param([(MAIN, 3)], (4, 1, 2, 4), [[0] * 3], id="first"),
        pytest.param([(MAIN, 3)], (1, 1, 2, 4), [[3] * 3], id="second"),
        pytest.param([(MAIN, 3)], (2, 2, 4, 0), None, id="kubelet-would-mix"),
        pytest.param([(MAIN, 2), (MAIN, 4)], (1, 3, 4, 4), [[1] * 2, [2] * 4], id="two-containers"),
        pytest.param([(INIT, 2), (MAIN, 3)], (1, 0, 4, 4), [[2] * 2, [2]], id="handed-on"),
        pytest.param([(INIT, 2), (MAIN, 3)], (2, 2, 4, 4), None, id="handed-on-would-mix"),
    ],
)
def test_slices_of_one_device_are_chosen_on_the_numa_nodes_of_kubelet(
    pod: Pod, free: tuple[int, ...], want: list[list[int]] | None
):
    """On NUMA node 0 there are the first two devices. Enough slices there are enough for kubelet."""
    kubelet = KubeletTopology(
        TopologyManagerPolicy.SINGLE_NUMA_NODE,
        TopologyManagerScope.CONTAINER,
        knows_numa_nodes=True,
    )
    devices = [a_device(index=at, numa_node=at // 2) for at in range(4)]
    pool = a_slice_pool(slices=4, slice_placement=SlicePlacement.SAME_DEVICE)
    assert choose(device_rules(pool, devices, (4,) * 4, kubelet=kubelet), free, pod) == want


def test_without_a_policy_there_is_no_choice_of_kubelet():
    node = device_rules(a_pool(), [a_device(index=0)], (1,))
    with pytest.raises(InvariantViolatedError):
        choose_as_kubelet(node, (1,), [(MAIN, 1)], preference=[0])
