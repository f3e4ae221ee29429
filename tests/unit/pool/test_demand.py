"""How many units a pod asks for."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.foreign.core import Container, PodSpec, ResourceRequirements
from pool.demand import (
    BadQuantity,
    ManyPools,
    _parse,
    _parse_cached,
    demand_of,
    distinct_units,
    names_a_pool,
)
from pool.model import ContainerDemand, ContainerRole, Demand

if TYPE_CHECKING:
    from collections.abc import Sequence

A100 = "gpu.deckhouse.io/a100"


def a_container(name: str, limits: "dict[str, str | int | float]", *, restart: str | None = None):
    return Container(
        name=name, resources=ResourceRequirements(limits=limits), restart_policy=restart
    )


def a_spec(*units: str | float) -> PodSpec:
    return PodSpec(containers=[a_container(f"c{i}", {A100: n}) for i, n in enumerate(units)])


def kubelet_hands_out(containers: "Sequence[ContainerDemand]") -> dict[str, set[int]]:
    """What kubelet's devicemanager does: ManagerImpl.Allocate with its devicesToReuse."""
    reusable: set[int] = set()
    in_use = 0
    given_to: dict[str, set[int]] = {}
    for container in containers:
        devices = set(sorted(reusable)[: container.units])
        while len(devices) < container.units:
            devices.add(in_use)
            in_use += 1
        given_to[container.name] = devices
        if container.role is ContainerRole.INIT:
            reusable |= devices
        else:
            reusable -= devices
    return given_to


def scheduler_counts(containers: "Sequence[ContainerDemand]") -> int:
    """What kube-scheduler does: resourcehelper.PodRequests."""
    sidecars_before = 0
    largest_init = 0
    for container in containers:
        if container.role is ContainerRole.SIDECAR:
            sidecars_before += container.units
            largest_init = max(largest_init, sidecars_before)
        if container.role is ContainerRole.INIT:
            largest_init = max(largest_init, container.units + sidecars_before)
    running = sum(
        container.units for container in containers if container.role is not ContainerRole.INIT
    )
    return max(running, largest_init)


@st.composite
def containers_in_order(draw: st.DrawFn) -> list[ContainerDemand]:
    inits = draw(
        st.lists(
            st.tuples(
                st.sampled_from([ContainerRole.INIT, ContainerRole.SIDECAR]), st.integers(1, 5)
            )
        )
    )
    mains = draw(st.lists(st.tuples(st.just(ContainerRole.MAIN), st.integers(1, 5))))
    return [ContainerDemand(f"c{i}", *item) for i, item in enumerate([*inits, *mains])]


@given(containers_in_order())
def test_distinct_units_are_what_kubelet_hands_out(containers: list[ContainerDemand]) -> None:
    handed_out = set().union(*kubelet_hands_out(containers).values())
    assert distinct_units(containers) == len(handed_out)


@given(containers_in_order())
def test_distinct_units_are_what_kube_scheduler_counts(containers: list[ContainerDemand]) -> None:
    assert distinct_units(containers) == scheduler_counts(containers)


@pytest.mark.parametrize(
    ("containers", "want"),
    [
        pytest.param(
            [("i", ContainerRole.INIT, 1), ("m", ContainerRole.MAIN, 2)],
            2,
            id="the app reuses the init's",
        ),
        pytest.param(
            [("i", ContainerRole.INIT, 3), ("m", ContainerRole.MAIN, 2)], 3, id="the init is larger"
        ),
        pytest.param(
            [
                ("i", ContainerRole.INIT, 2),
                ("j", ContainerRole.INIT, 3),
                ("m", ContainerRole.MAIN, 1),
            ],
            3,
            id="largest of inits",
        ),
        pytest.param(
            [("s", ContainerRole.SIDECAR, 1), ("m", ContainerRole.MAIN, 1)],
            2,
            id="a sidecar keeps its own",
        ),
        pytest.param(
            [
                ("s", ContainerRole.SIDECAR, 1),
                ("i", ContainerRole.INIT, 3),
                ("m", ContainerRole.MAIN, 1),
            ],
            4,
            id="an init runs beside the sidecars before it",
        ),
        pytest.param(
            [
                ("i", ContainerRole.INIT, 3),
                ("s", ContainerRole.SIDECAR, 1),
                ("m", ContainerRole.MAIN, 1),
            ],
            3,
            id="an init does not run beside the sidecars after it",
        ),
        pytest.param([], 0, id="nothing"),
    ],
)
def test_units_of_a_pod(containers: list[tuple[str, ContainerRole, int]], want: int) -> None:
    assert distinct_units([ContainerDemand(*container) for container in containers]) == want


def test_the_demand_lists_containers_in_kubelets_order_with_their_roles() -> None:
    spec = PodSpec(
        containers=[a_container("main", {A100: "2"})],
        init_containers=[
            a_container("plain", {A100: 1}),
            a_container("side", {A100: "1"}, restart="Always"),
        ],
    )
    assert demand_of(spec) == Demand(
        A100,
        (
            ContainerDemand("plain", ContainerRole.INIT, 1),
            ContainerDemand("side", ContainerRole.SIDECAR, 1),
            ContainerDemand("main", ContainerRole.MAIN, 2),
        ),
        3,
    )


def test_a_limit_wins_over_a_request() -> None:
    resources = ResourceRequirements(limits={A100: "2"}, requests={A100: "1"})
    demand = demand_of(PodSpec(containers=[Container(name="c", resources=resources)]))
    assert isinstance(demand, Demand)
    assert demand.units == 2


@pytest.mark.parametrize("limits", [None, {"cpu": "1"}])
def test_a_request_alone_counts(limits: dict[str, str | int | float] | None) -> None:
    resources = ResourceRequirements(limits=limits, requests={A100: "1"})
    demand = demand_of(PodSpec(containers=[Container(name="c", resources=resources)]))
    assert isinstance(demand, Demand)
    assert demand.units == 1


def test_containers_that_ask_for_nothing_are_left_out() -> None:
    spec = PodSpec(
        containers=[
            Container(name="plain"),
            a_container("cpu", {"cpu": "4", "nvidia.com/gpu": 1}),
            a_container("zero", {A100: 0}),
            a_container("gpu", {A100: 1}),
        ]
    )
    demand = demand_of(spec)
    assert isinstance(demand, Demand)
    assert [container.name for container in demand.containers] == ["gpu"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(PodSpec(), id="no containers"),
        pytest.param(a_spec(0), id="zero units"),
        pytest.param(PodSpec(containers=[Container(name="c")]), id="no resources"),
    ],
)
def test_a_pod_that_asks_for_no_unit_has_no_demand(spec: PodSpec) -> None:
    assert demand_of(spec) is None


def test_two_pools_in_one_pod_are_told_apart() -> None:
    spec = PodSpec(
        containers=[a_container("a", {A100: 1})],
        init_containers=[a_container("b", {"gpu.deckhouse.io/h100": 1})],
    )
    assert demand_of(spec) == ManyPools((A100, "gpu.deckhouse.io/h100"))


@pytest.mark.parametrize("other", ["0", 0])
def test_zero_units_of_another_pool_are_no_demand_on_it(other: str | int) -> None:
    """Charts set the pools that they do not use to 0."""
    unused = "gpu.deckhouse.io/h100"
    spec = PodSpec(
        containers=[a_container("a", {A100: 2, unused: other}), a_container("b", {unused: other})]
    )
    assert demand_of(spec) == demand_of(PodSpec(containers=[a_container("a", {A100: 2})]))


@pytest.mark.parametrize(
    "value",
    ["-1", -1, "0.5", 0.5, "two", "", "1500m", "1e400000000", "1e9999", "9" * 40, 2**31, "4Gi"],
)
def test_a_quantity_that_is_no_countable_number_of_units_is_reported(value: str | float) -> None:
    assert demand_of(a_spec(value)) == BadQuantity("c0", A100, str(value))


@pytest.mark.parametrize("value", ["2", 2, "2000m", "2.0", 2.0, "0.002k", "2e0"])
def test_two_units_may_be_written_in_many_ways(value: str | float) -> None:
    demand = demand_of(a_spec(value))
    assert isinstance(demand, Demand)
    assert demand.units == 2


def test_a_pod_names_a_pool_even_with_a_quantity_of_zero() -> None:
    assert names_a_pool(a_spec(0))


def test_other_extended_resources_name_no_pool() -> None:
    assert not names_a_pool(PodSpec(containers=[a_container("c", {"nvidia.com/gpu": 1})]))


def test_equal_demands_are_one_object() -> None:
    assert demand_of(a_spec("2")) is demand_of(a_spec("2"))


@pytest.mark.parametrize(("one", "other"), [("1", 1), (1, 1.0), ("1000m", "1"), ("x", "y")])
def test_quantities_that_are_written_alike_are_not_taken_for_each_other(
    one: "str | float", other: "str | float"
) -> None:
    """What was read before is found by what was written, and Python thinks 1 and 1.0 equal."""
    fresh = [_parse(_asked(value)) for value in (one, other)]
    assert [demand_of(a_spec(one)), demand_of(a_spec(other))] == fresh


def _asked(value: "str | float") -> "tuple[tuple[str, str, str, str | int], ...]":
    return (("c0", "main", A100, value if isinstance(value, int) else str(value)),)


def test_a_huge_name_is_judged_and_not_remembered() -> None:
    """Admission reads pods before anybody has validated them."""
    before = _parse_cached.cache_info().currsize
    spec = PodSpec(containers=[a_container("c" * 100_000, {A100: 1})])
    demand = demand_of(spec)
    assert isinstance(demand, Demand)
    assert demand.units == 1
    assert _parse_cached.cache_info().currsize == before
