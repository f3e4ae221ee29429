"""On which node a reservation is taken."""

from collections import Counter

import pytest

from api.foreign.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeTaint,
    Toleration,
)
from api.kinds.gpupool import Strategy
from api.meta import SelectorOperator, SelectorRequirement
from api.names import NodeName, PoolName
from pool.admission_planner import Exhausted
from pool.admission_rules import Deferral
from pool.model import Constraints
from pool.placement.planner import Placed, may_go_to
from pool.pods.observed import NOMINATED_FOR_S
from tests.support.allocation_state import (
    ANYWHERE,
    a_bound_pod,
    a_reserved_pod,
    plan_reservation,
    reserve,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import (
    a_demand,
    a_device,
    a_node,
    a_pod_facts,
    a_pool,
    a_slice_pool,
    at,
)


def chosen(
    allocation_state,
    units: int = 1,
    constraints: Constraints = ANYWHERE,
    pool: str = "whole",
    **about,
):
    placed = plan_reservation(allocation_state, a_demand(units, pool=pool), constraints, **about)
    return placed.node if isinstance(placed, Placed) else None


def allocation_state_with(strategy: Strategy, **devices_by_node: int):
    devices = [gpu for node, count in devices_by_node.items() for gpu in some_devices(count, node)]
    return some_allocation_state(a_pool(strategy=strategy), devices=devices, nodes=devices_by_node)


def take(allocation_state, node: str, *units: str) -> None:
    allocation_state.observe_pod(a_bound_pod(f"on-{node}", *units, node=node), at(0))


def test_bin_pack_prefers_the_fullest_node() -> None:
    allocation_state = allocation_state_with(Strategy.BIN_PACK, a=4, b=4)
    take(allocation_state, "b", "GPU-b-0", "GPU-b-1")
    assert chosen(allocation_state) == "b"


def test_bin_pack_weighs_what_is_left_by_the_nodes_size() -> None:
    allocation_state = allocation_state_with(Strategy.BIN_PACK, a=2, b=8)
    take(allocation_state, "b", *(f"GPU-b-{n}" for n in range(6)))
    assert chosen(allocation_state) == "b"


def test_spread_prefers_the_emptiest_node() -> None:
    allocation_state = allocation_state_with(Strategy.SPREAD, a=4, b=4)
    take(allocation_state, "a", "GPU-a-0")
    assert chosen(allocation_state) == "b"


def test_a_change_of_the_strategy_counts_for_the_next_pod() -> None:
    allocation_state = allocation_state_with(Strategy.BIN_PACK, a=4, b=4)
    take(allocation_state, "b", "GPU-b-0")
    before = chosen(allocation_state)
    allocation_state.index.replace_pool(a_pool(strategy=Strategy.SPREAD))
    assert (before, chosen(allocation_state)) == ("b", "a")


def test_least_fragmentation_prefers_the_node_that_is_left_with_the_fewest_units() -> None:
    allocation_state = allocation_state_with(Strategy.LEAST_FRAGMENTATION, a=8, b=2, c=4)
    assert [chosen(allocation_state, units) for units in (1, 2, 3, 5)] == ["b", "b", "c", "a"]


def test_least_fragmentation_breaks_up_as_few_untouched_devices_as_possible() -> None:
    pool = a_slice_pool(slices=2, strategy=Strategy.LEAST_FRAGMENTATION)
    devices = [*some_devices(1, "a", pool="slices"), *some_devices(2, "b", pool="slices")]
    allocation_state = some_allocation_state(pool, devices=devices, nodes=("a", "b"))
    for index in (0, 1):
        unit = f"GPU-b-{index}::0"
        allocation_state.observe_pod(a_bound_pod(f"p{index}", unit, node="b", pool="slices"), at(0))
    assert chosen(allocation_state, pool="slices") == "b"


@pytest.mark.parametrize("strategy", Strategy)
def test_equal_nodes_are_taken_in_order_of_their_names(strategy: Strategy) -> None:
    allocation_state = allocation_state_with(strategy, c=2, a=2, b=2)
    assert chosen(allocation_state) == "a"


def test_nodes_that_differ_only_in_what_the_strategy_ignores_are_taken_by_name() -> None:
    devices = [*some_devices(2, "a", pool="slices"), *some_devices(2, "b", pool="slices")]
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2), devices=devices, nodes=("a", "b")
    )
    allocation_state.observe_pod(
        a_bound_pod("x", "GPU-a-0::0", "GPU-a-1::0", node="a", pool="slices"), at(0)
    )
    allocation_state.observe_pod(
        a_bound_pod("y", "GPU-b-0::0", "GPU-b-0::1", node="b", pool="slices"), at(0)
    )
    assert chosen(allocation_state, pool="slices") == "a"


def test_no_reservation_is_taken_where_too_little_is_free() -> None:
    allocation_state = allocation_state_with(Strategy.BIN_PACK, a=1, b=2)
    assert chosen(allocation_state, 2) == "b"


def test_an_exhausted_pool_says_what_it_has() -> None:
    allocation_state = allocation_state_with(Strategy.BIN_PACK, a=1, b=2)
    a_reserved_pod(allocation_state, units=2)
    answer = plan_reservation(allocation_state, a_demand(2))
    assert isinstance(answer, Exhausted)
    assert (answer.requested, answer.largest_node) == (2, 2)
    assert (answer.capacity.total, answer.capacity.reserved, answer.capacity.available) == (3, 2, 1)


def test_a_pool_that_nobody_knows_is_exhausted() -> None:
    assert isinstance(
        plan_reservation(some_allocation_state(), a_demand(1, pool="ghost"), pool=a_pool("ghost")),
        Exhausted,
    )


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(a_node("n1", is_cordoned=True), id="cordoned"),
        pytest.param(a_node("n1", is_ready=False), id="not ready"),
        pytest.param(a_node("other"), id="unknown"),
    ],
)
def test_no_reservation_is_taken_on_a_node_that_takes_no_pods(node) -> None:
    assert chosen(some_allocation_state(devices=some_devices(1), nodes=(node,))) is None


def test_a_node_that_is_ready_again_is_reserved_on_again() -> None:
    allocation_state = some_allocation_state(
        devices=some_devices(1), nodes=(a_node("n1", is_ready=False),)
    )
    allocation_state.index.replace_node(a_node("n1"))
    assert chosen(allocation_state) == "n1"


def test_no_reservation_is_taken_on_a_node_that_is_gone() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.index.discard_node(NodeName("n1"))
    assert chosen(allocation_state) is None


def test_no_reservation_is_taken_beside_an_unaccounted_pod() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(4), *some_devices(1, "n2")])
    allocation_state.observe_pod(a_bound_pod("stranger", node="n1"), at(0))
    assert chosen(allocation_state) == "n2"


def test_room_made_for_a_nominated_pod_is_not_reserved_by_another() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(2), *some_devices(4, "n2")])
    allocation_state.observe_pod(a_pod_facts("preemptor", 1, nominated_node=NodeName("n1")), at(0))
    assert chosen(allocation_state, 2) == "n2"
    assert chosen(allocation_state, 1) == "n1"


def test_a_nomination_ends_with_its_pods_own_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts("preemptor", 1, nominated_node=NodeName("n1")), at(0))
    assert chosen(allocation_state) is None
    allocation_state.observe_pod(a_pod_facts("preemptor", 1), at(1))
    assert chosen(allocation_state, priority=1) == "n1"


def test_a_nomination_that_is_not_taken_back_ends_by_itself() -> None:
    """kube-scheduler keeps it where an extender leaves no node to preempt on; its pod waits on."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    for seconds in (0, NOMINATED_FOR_S - 1):
        waits = a_pod_facts("preemptor", 1, nominated_node=NodeName("n1"))
        allocation_state.observe_pod(waits, at(seconds))
    assert chosen(allocation_state, priority=1, now=NOMINATED_FOR_S - 0.1) is None
    assert chosen(allocation_state, priority=1, now=NOMINATED_FOR_S) == "n1"
    plan = plan_reservation(allocation_state, a_demand(1), now=NOMINATED_FOR_S)
    assert isinstance(plan, Exhausted)
    assert plan.deferral is Deferral.WAITING_PODS


def test_another_nomination_begins_again() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    for seconds, node in ((0, "n2"), (NOMINATED_FOR_S, "n1")):
        facts = a_pod_facts("preemptor", 1, nominated_node=NodeName(node))
        allocation_state.observe_pod(facts, at(seconds))
    assert chosen(allocation_state, priority=1, now=NOMINATED_FOR_S + 1) == "n2"


def test_a_nominated_pod_that_is_gone_leaves_its_room() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    for name in ("one", "two"):
        allocation_state.observe_pod(a_pod_facts(name, 1, nominated_node=NodeName("n1")), at(0))
    for name in ("one", "two"):
        assert chosen(allocation_state) is None
        allocation_state.discard_pod(a_pod_facts(name).uid)
    assert chosen(allocation_state) == "n1"


def test_reserves_fill_the_pool_one_after_the_other() -> None:
    allocation_state = allocation_state_with(Strategy.BIN_PACK, a=2, b=3)
    all_reserved = [reserve(allocation_state, a_demand(1), id_=f"r{n}") for n in range(6)]
    assert Counter(reserved.node for reserved in all_reserved) == {"a": 2, "b": 3, None: 1}
    assert len({unit for reserved in all_reserved for unit in reserved.units}) == 5


def requires(*requirements: SelectorRequirement, field: bool = False) -> Constraints:
    term = (
        NodeSelectorTerm(match_fields=list(requirements))
        if field
        else NodeSelectorTerm(match_expressions=list(requirements))
    )
    selector = NodeSelector(node_selector_terms=[term])
    return Constraints(affinity=Affinity(node_affinity=NodeAffinity(required=selector)))


ZONE_A = SelectorRequirement(key="zone", operator=SelectorOperator.IN, values=["a"])
NOT_N1 = SelectorRequirement(key="metadata.name", operator=SelectorOperator.NOT_IN, values=["n1"])


@pytest.mark.parametrize(
    "constraints",
    [
        pytest.param(Constraints(), id="none"),
        pytest.param(Constraints(node_selector={"zone": "a"}), id="selector"),
        pytest.param(requires(ZONE_A), id="affinity"),
        pytest.param(Constraints(affinity=Affinity()), id="empty affinity"),
        pytest.param(
            Constraints(affinity=Affinity(node_affinity=NodeAffinity())), id="only preferences"
        ),
    ],
)
def test_a_node_that_meets_the_constraints_is_accepted(constraints: Constraints) -> None:
    assert may_go_to(a_node(labels={"zone": "a"}), constraints)


@pytest.mark.parametrize(
    "constraints",
    [
        pytest.param(Constraints(node_selector={"zone": "b"}), id="selector"),
        pytest.param(Constraints(node_selector={"zone": "a", "disk": "ssd"}), id="half a selector"),
        pytest.param(requires(NOT_N1, field=True), id="field"),
        pytest.param(requires(), id="an empty term selects nothing"),
        pytest.param(
            Constraints(affinity=Affinity(node_affinity=NodeAffinity(required=NodeSelector()))),
            id="no term selects nothing",
        ),
    ],
)
def test_a_node_that_breaks_the_constraints_is_not_accepted(constraints: Constraints) -> None:
    assert not may_go_to(a_node("n1", labels={"zone": "a"}), constraints)


def test_every_expression_of_a_term_must_reserve() -> None:
    other = SelectorRequirement(key="disk", operator=SelectorOperator.EXISTS)
    assert not may_go_to(a_node(labels={"zone": "a"}), requires(ZONE_A, other))


TAINT = NodeTaint(key="pool", value="whole", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param(Toleration(key="pool", value="whole", effect="NoSchedule"), True, id="equal"),
        pytest.param(Toleration(key="pool", operator="Exists"), True, id="exists"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key="pool", value="whole"), True, id="every effect"),
        pytest.param(Toleration(key="pool", value="other"), False, id="other value"),
        pytest.param(Toleration(value="whole"), False, id="no key"),
        pytest.param(Toleration(key="other", operator="Exists"), False, id="other key"),
        pytest.param(
            Toleration(key="pool", operator="Exists", effect="NoExecute"), False, id="other effect"
        ),
        pytest.param(Toleration(), False, id="empty"),
    ],
)
def test_a_tainted_node_takes_only_pods_that_tolerate_it(
    toleration: Toleration, want: bool
) -> None:
    node = a_node(taints=(TAINT,))
    assert may_go_to(node, Constraints(tolerations=(toleration,))) is want


def test_a_soft_taint_keeps_nobody_away() -> None:
    assert may_go_to(a_node(taints=(NodeTaint(key="x", effect="PreferNoSchedule"),)), ANYWHERE)


def test_a_reservation_respects_selector_affinity_and_taints() -> None:
    nodes = (
        a_node("a", taints=(TAINT,)),
        a_node("b", labels={"zone": "b"}),
        a_node("c", labels={"zone": "a"}),
    )
    allocation_state = some_allocation_state(
        devices=[a_device(node.name) for node in nodes], nodes=nodes
    )
    assert chosen(allocation_state) == "b"
    assert chosen(allocation_state, constraints=requires(ZONE_A)) == "c"
    assert (
        chosen(
            allocation_state, constraints=Constraints(tolerations=(Toleration(operator="Exists"),))
        )
        == "a"
    )


def test_pools_do_not_see_each_others_devices() -> None:
    devices = [a_device("n1"), a_device("n2", pool="other")]
    allocation_state = some_allocation_state(a_pool(), a_pool("other"), devices=devices)
    assert (chosen(allocation_state), chosen(allocation_state, pool="other")) == ("n1", "n2")
    assert set(allocation_state.index.state(PoolName("other")).nodes()) == {"n2"}
