"""What a bound pod has, by its annotation and by what its node reports."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpunodeinventory import ContainerDevices
from api.names import NodeName, UnitId
from pool.model import ContainerRole
from pool.pods.reported import ActualAllocation, from_annotation, from_report
from tests.support.allocation_state import N1, a_bound_pod
from tests.support.builders import a_demand

if TYPE_CHECKING:
    from pool.model import PodFacts
    from pool.pods.reported import PodReport

MAIN, INIT, SIDECAR = ContainerRole.MAIN, ContainerRole.INIT, ContainerRole.SIDECAR
WHOLE = "gpu.deckhouse.io/whole"


def devices(**units: str) -> Any:
    return {name: tuple(map(UnitId, item.split())) for name, item in units.items()}


def a_pod(promised: Any, *roles_and_units: tuple[ContainerRole, int], **changes: Any) -> "PodFacts":
    demand = a_demand(
        *(units for _, units in roles_and_units), roles=tuple(role for role, _ in roles_and_units)
    )
    return a_bound_pod("p", devices=promised, demand=demand, **changes)


def a_report(resource: str = WHOLE, **units: str) -> "PodReport":
    return tuple(
        ContainerDevices(
            namespace="default", pod="p", container=name, resource=resource, units=item.split()
        )
        for name, item in units.items()
    )


def everywhere(_unit: UnitId) -> bool:
    return True


def truth(
    pod: "PodFacts", report: "PodReport", is_here: Callable[[UnitId], bool] = everywhere
) -> ActualAllocation:
    return from_report(pod, N1, report, is_here=is_here)


@pytest.mark.parametrize(
    ("promised", "roles", "reported", "has", "unassigned"),
    [
        pytest.param({"c0": "X"}, [(MAIN, 1)], {"c0": "X"}, "X", "", id="as promised"),
        pytest.param({"c0": "X"}, [(MAIN, 1)], {"c0": "Y"}, "Y", "Y", id="another one"),
        pytest.param(
            {"c0": "X1", "c1": "X2"},
            [(MAIN, 1), (MAIN, 1)],
            {"c0": "X2", "c1": "X1"},
            "X1 X2",
            "",
            id="its containers have each other's",
        ),
        pytest.param(
            {"c0": "X1", "c1": "X2"},
            [(MAIN, 1), (MAIN, 1)],
            {"c0": "Y"},
            "Y X2",
            "Y",
            id="one container is not reported yet: it has what it was promised",
        ),
        pytest.param(
            {"c0": "X1", "c1": "X2"},
            [(MAIN, 1), (MAIN, 1)],
            {"c0": "X2"},
            "X1 X2",
            "",
            id="one has what the other was promised, and that is not reported yet",
        ),
        pytest.param(
            {"c0": "X1", "c1": "X1 X2"},
            [(INIT, 1), (MAIN, 2)],
            {"c1": "Y1 Y2"},
            "Y1 Y2",
            "Y1 Y2",
            id="an init container that asks for less is within what the others have",
        ),
        pytest.param(
            {"c0": "X1 X2 X3", "c1": "X1 X2"},
            [(INIT, 3), (MAIN, 2)],
            {"c1": "X2 X3"},
            "X1 X2 X3",
            "",
            id="an init container that asks for more keeps the rest",
        ),
        pytest.param(
            {"c0": "S", "c1": "X1 X2 X3", "c2": "X1 X2"},
            [(SIDECAR, 1), (INIT, 3), (MAIN, 2)],
            {"c0": "S", "c2": "X1 X3"},
            "S X1 X2 X3",
            "",
            id="beside a sidecar",
        ),
        pytest.param(
            {"c0": "X1 X2 X3", "c1": "X1 X2"},
            [(INIT, 3), (MAIN, 2)],
            {"c1": "Y1 Y2"},
            "Y1 Y2 X1",
            "Y1 Y2",
            id="what an init container keeps is a guess of the right size where kubelet took others",
        ),
        pytest.param(
            {"c0": "X"}, [(MAIN, 1)], {"c0": "X Y"}, "X Y", "Y", id="more than it asks for"
        ),
        pytest.param({"c0": "X"}, [(MAIN, 1)], {}, "X", "", id="nothing"),
        pytest.param({"c0": "X"}, [(MAIN, 1)], {"c0": ""}, "X", "", id="a container without units"),
        pytest.param(
            {"c0": "X"}, [(MAIN, 1)], {"other": "Y"}, "Y", "Y", id="a container nobody knows of"
        ),
    ],
)
def test_a_pod_has_what_is_reported_and_of_what_was_assigned_as_much_as_it_lacks(
    promised: dict[str, str],
    roles: list[tuple[ContainerRole, int]],
    reported: dict[str, str],
    has: str,
    unassigned: str,
) -> None:
    found = truth(a_pod(devices(**promised), *roles), a_report(**reported))
    assert (set(found.units), found.missing) == (set(has.split()), {})
    assert len(found.units) == len(set(found.units))
    assert (set(found.unassigned), found.foreign) == (set(unassigned.split()), ())


def test_a_unit_of_no_device_of_the_node_is_ignored_and_said() -> None:
    pod = a_pod(devices(c0="X1 X2"), (MAIN, 2))
    found = truth(pod, a_report(c0="Y Z"), is_here=lambda unit: unit == "Y")
    assert (set(found.units), found.unassigned, found.foreign) == ({"X1", "Y"}, ("Y",), ("Z",))


def test_a_report_of_foreign_units_only_leaves_the_assignment() -> None:
    pod = a_pod(devices(c0="X1 X2 X3"), (MAIN, 2))
    found = truth(pod, a_report(c0="Z"), is_here=lambda unit: unit != "Z")
    assert (found.units, found.unassigned) == (("X1", "X2", "X3"), ())
    assert found.foreign == ("Z",)


def test_a_unit_of_another_resource_is_none_of_the_pods() -> None:
    found = truth(a_pod(devices(c0="X"), (MAIN, 1)), a_report("nvidia.com/gpu", c0="Y"))
    assert (found.units, found.unassigned, found.foreign) == (("X",), (), ())


@pytest.mark.parametrize("promised", [None, {}])
def test_a_pod_bound_without_a_word_is_accounted_for_by_its_node(promised: Any) -> None:
    pod = a_pod(promised, (MAIN, 2))
    assert truth(pod, a_report(c0="Y")) == ActualAllocation((UnitId("Y"),), {(WHOLE, N1): 1})
    assert truth(pod, a_report(c0="Y Z")) == ActualAllocation((UnitId("Y"), UnitId("Z")), {})


def test_a_pod_of_several_pools_is_accounted_for_by_each() -> None:
    pod = a_bound_pod(
        "p", devices=None, inadmissible_units=(("gpu.deckhouse.io/other", 2), (WHOLE, 1))
    )
    report = (*a_report(c0="W"), *a_report("gpu.deckhouse.io/other", c1="V"))
    found = truth(pod, report)
    assert (set(found.units), found.missing) == ({"W", "V"}, {("gpu.deckhouse.io/other", N1): 1})
    assert found.unassigned == ()


UNITS = st.lists(st.sampled_from(["X1", "X2", "X3", "Y1", "Y2"]), unique=True, max_size=3)


@given(st.tuples(UNITS, UNITS, UNITS), st.tuples(UNITS, UNITS), st.integers(1, 3))
def test_whatever_is_reported_is_had_and_nothing_is_had_that_nobody_spoke_of(
    promised: tuple[list[str], ...], reported: tuple[list[str], ...], init: int
) -> None:
    names = dict(zip(("c0", "c1", "c2"), map(" ".join, promised), strict=True))
    pod = a_pod(devices(**names), (INIT, init), (MAIN, 1), (MAIN, 1))
    said = {f"c{number}": " ".join(item) for number, item in enumerate(reported, 1)}
    found = truth(pod, a_report(**said))
    given_, spoken = {unit for item in reported for unit in item}, {u for s in promised for u in s}
    assert given_ <= set(found.units) <= given_ | spoken
    assert set(found.unassigned) == (given_ - spoken if spoken else set())
    have = len(found.units) + sum(found.missing.values())
    assert have == max(pod.demand.units, len(given_)) or not given_


def test_without_a_report_a_pod_has_what_it_was_bound_with() -> None:
    pod = a_pod(devices(c0="X1", c1="X1 X2"), (INIT, 1), (MAIN, 3))
    assert from_annotation(pod, N1) == ActualAllocation(
        (UnitId("X1"), UnitId("X2")), {(WHOLE, N1): 1}
    )
    assert from_annotation(pod, NodeName("n2")).missing == {(WHOLE, "n2"): 1}
