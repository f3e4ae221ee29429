"""Unit-seconds add up: by pool, by state and by namespace, as a naive integral says."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.names import PodUid, PoolName, UnitId
from pool.allocation_state import AllocationState
from reconciler.pool.gauges import forget_all, forget_pool
from reconciler.pool.namespace_usage import KEPT_S, NamespaceUsage
from reconciler.pool.unit_seconds import UnitSeconds
from telemetry.metrics import POOL_UNIT_SECONDS, REGISTRY
from telemetry.usage_metrics import NAMESPACE_UNIT_SECONDS, USAGE_REGISTRY
from tests.support.allocation_state import (
    a_bound_pod,
    commit_to,
    reserve,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, at

WHOLE = PoolName("whole")
STATES = ("used", "reserved", "free", "withheld")
NODES = ("n1", "n2")
DEVICES = 4
"""Of each node."""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    clear()
    yield
    clear()


def clear() -> None:
    forget_all()
    POOL_UNIT_SECONDS.clear()
    NAMESPACE_UNIT_SECONDS.clear()


def counted(state: str, pool: str = "whole") -> float | None:
    labels = {"pool": pool, "state": state}
    return REGISTRY.get_sample_value("gpupool_unit_seconds_total", labels)


def by_namespace(namespace: str, state: str = "used") -> float | None:
    labels = {"pool": "whole", "namespace": namespace, "state": state}
    return USAGE_REGISTRY.get_sample_value("gpupool_namespace_unit_seconds_total", labels)


def units_of(namespace: str, state: str = "used") -> float | None:
    labels = {"pool": "whole", "namespace": namespace, "state": state}
    return USAGE_REGISTRY.get_sample_value("gpupool_namespace_units", labels)


def holders() -> dict[tuple[str, str, str], float]:
    return {
        (sample.labels["uuid"], sample.labels["namespace"], sample.labels["pod"]): sample.value
        for family in USAGE_REGISTRY.collect()
        if family.name == "gpu_device_holder"
        for sample in family.samples
    }


@dataclass
class Day:
    """A pool of two nodes, what its units are doing by a naive model, and both integrals."""

    allocation_state: AllocationState = field(
        default_factory=lambda: some_allocation_state(
            devices=[device for node in NODES for device in some_devices(DEVICES, node)],
            nodes=NODES,
        )
    )
    now: float = 0.0
    used: dict[str, str] = field(default_factory=dict)
    # unit -> namespace
    cordoned: set[str] = field(default_factory=set)
    expected: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    # state -> unit-seconds
    expected_by_namespace: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )
    used_until: dict[str, float] = field(default_factory=dict)
    # namespace without units -> when it had some last

    def __post_init__(self) -> None:
        self.seconds = UnitSeconds(self.allocation_state.index)
        self.usage = NamespaceUsage(self.allocation_state.index, self.allocation_state.reader)
        self.count_changes()

    def count_changes(self) -> None:
        self.seconds.count_changes([WHOLE], self.now)
        self.usage.update(self.allocation_state.index.changes.take().devices, self.now)

    def count(self) -> None:
        self.seconds.count([WHOLE], self.now)
        self.usage.count(self.now)
        for namespace, last in list(self.used_until.items()):
            if self.now - last > KEPT_S:
                self.expected_by_namespace.pop(namespace, None)
                del self.used_until[namespace]

    def go_on(self, seconds: float) -> None:
        for node in NODES:
            for number in range(DEVICES):
                unit = f"GPU-{node}-{number}"
                idle = "withheld" if node in self.cordoned else "free"
                self.expected["used" if unit in self.used else idle] += seconds
        for namespace in self.used.values():
            self.expected_by_namespace[namespace] += seconds
        self.now += seconds

    def toggle(self, node: str, number: int, namespace: str) -> None:
        """Bind a pod to a free unit, or end the one that has it."""
        unit, uid = f"GPU-{node}-{number}", PodUid(f"uid-{node}-{number}")
        if unit in self.used:
            last = self.used.pop(unit)
            if last not in self.used.values():
                self.used_until[last] = self.now
            self.allocation_state.discard_pod(uid)
        else:
            self.used[unit] = namespace
            self.used_until.pop(namespace, None)
            pod = a_bound_pod(f"{node}-{number}", unit, node=node, uid=uid, namespace=namespace)
            self.allocation_state.observe_pod(pod, at(self.now))

    def cordon(self, node: str) -> None:
        self.cordoned ^= {node}
        facts = a_node(node, is_cordoned=node in self.cordoned)
        self.allocation_state.index.replace_node(facts)


AN_IDLE_NAMESPACE = (
    *(("toggle", ("n1", 0, "a")), ("wait", 0.25), ("toggle", ("n1", 0, "a"))),
    *(("wait", KEPT_S), ("count", None), ("wait", 0.25)),
)
SOME_SECONDS = st.integers(0, 10_000).map(lambda quarters: quarters / 4)
STEPS = st.one_of(
    st.tuples(st.just("wait"), SOME_SECONDS),
    st.tuples(
        st.just("toggle"),
        st.tuples(st.sampled_from(NODES), st.integers(0, DEVICES - 1), st.sampled_from("ab")),
    ),
    st.tuples(st.just("cordon"), st.sampled_from(NODES)),
    st.tuples(st.just("count"), st.none()),
)


@example([*AN_IDLE_NAMESPACE])
@example([*AN_IDLE_NAMESPACE, ("toggle", ("n1", 0, "a")), ("wait", 1.0)])
@given(st.lists(STEPS, max_size=40))
def test_states_of_units_add_up_to_capacity_times_time(steps: list[tuple[str, object]]) -> None:
    clear()
    day = Day()
    last: dict[str, float] = dict.fromkeys(STATES, 0.0)
    for kind, about in steps:
        match kind, about:
            case "wait", float(seconds):
                day.go_on(seconds)
            case "toggle", (str(node), int(number), str(namespace)):
                day.toggle(node, number, namespace)
            case "cordon", str(node):
                day.cordon(node)
            case _:
                day.count()
        day.count_changes()
        current = {state: counted(state) or 0.0 for state in STATES}
        assert all(current[state] >= last[state] for state in STATES)
        last = current
    day.count()
    assert {state: counted(state) for state in STATES} == {
        state: day.expected[state] for state in STATES
    }
    assert sum(counted(state) or 0 for state in STATES) == len(NODES) * DEVICES * day.now
    for namespace in "ab":
        assert (by_namespace(namespace) or 0) == day.expected_by_namespace[namespace]
        assert (units_of(namespace) or 0) == list(day.used.values()).count(namespace)
    assert {uuid: name for uuid, name, _ in holders()} == day.used


def test_a_reservation_counts_as_reserved_until_its_pod_is_bound() -> None:
    day = Day()
    pod = a_pod_facts("p", namespace="default")
    day.allocation_state.observe_pod(pod, at(0))
    commit_to(day.allocation_state, pod)
    day.count_changes()
    day.now = 10
    bound = a_bound_pod("p", "GPU-n1-0", uid=pod.uid, namespace="default")
    day.allocation_state.observe_pod(bound, at(10))
    day.count_changes()
    day.now = 14
    day.count()
    assert (counted("reserved"), counted("used")) == (10, 4)
    assert (by_namespace("default", "reserved"), by_namespace("default")) == (10, 4)
    assert holders() == {("GPU-n1-0", "default", "p"): 1}


def test_a_reservation_of_a_pod_that_is_not_stored_yet_is_not_counted() -> None:
    """Until its pod is stored, its unit is free to pods that exist."""
    day = Day()
    reserve(day.allocation_state, a_demand(1))
    day.count_changes()
    day.now = 10
    day.count()
    assert (counted("reserved"), by_namespace("default", "reserved")) == (0, None)


def test_a_device_that_moves_away_takes_its_units_with_it() -> None:
    day = Day()
    day.toggle("n1", 0, "a")
    day.count_changes()
    day.now = 5
    day.allocation_state.index.replace_device(a_device("n1", 0, pool=None))
    day.count_changes()
    day.now = 9
    day.count()
    assert (by_namespace("a"), units_of("a"), holders()) == (5, 0, {})
    assert sum(counted(state) or 0 for state in STATES) == 8 * 5 + 7 * 4


def test_a_pool_that_is_gone_is_counted_no_further() -> None:
    day = Day()
    day.now = 5
    day.count()
    forget_pool(WHOLE)
    day.now = 9
    day.seconds.count([], day.now)
    assert [counted(state) for state in STATES] == [None] * 4


def test_a_namespace_keeps_its_counters_for_a_while_after_its_last_unit() -> None:
    day = Day()
    day.toggle("n1", 0, "a")
    day.count_changes()
    day.now = 5
    day.toggle("n1", 0, "a")
    day.count_changes()
    day.now += KEPT_S
    day.count()
    assert by_namespace("a") == 5
    day.now += 1
    day.count()
    assert (by_namespace("a"), units_of("a")) == (None, None)


def test_a_replica_that_leads_again_starts_with_no_namespace_and_goes_on_with_its_pools() -> None:
    day = Day()
    day.toggle("n1", 0, "a")
    day.count_changes()
    day.now = 5
    day.count()
    forget_all()
    assert (units_of("a"), holders()) == (None, {})
    NamespaceUsage(day.allocation_state.index, day.allocation_state.reader).begin()
    assert by_namespace("a") is None
    assert counted("used") == 5


def test_a_unit_of_a_pod_is_counted_once_by_name() -> None:
    day = Day()
    day.toggle("n1", 0, "a")
    day.count_changes()
    assert holders() == {("GPU-n1-0", "a", "n1-0"): 1}
    day.allocation_state.index.set_observed(PodUid("uid-n1-0"), (UnitId("GPU-n1-1"),))
    day.count_changes()
    assert holders() == {("GPU-n1-1", "a", "n1-0"): 1}
