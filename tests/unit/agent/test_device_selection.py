"""A container gets its assigned units or the best substitutes, and never those of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.plugin.advertised import Unit
from agent.plugin.device_selection import (
    AllocatableUnits,
    AssignedUnits,
    SelectionRefused,
    SubstitutedUnits,
    UnassignedUnits,
    UnitSelection,
    select,
)
from api.kinds.gpupool import SlicePlacement
from api.kubelet.proto.deviceplugin_pb2 import ContainerPreferredAllocationRequest

WHOLE = {f"GPU-{n}": Unit(id=f"GPU-{n}", device=f"GPU-{n}", numa_node=n // 2) for n in range(4)}
SLICES = {
    f"GPU-{device}::{n}": Unit(id=f"GPU-{device}::{n}", device=f"GPU-{device}")
    for device in range(3)
    for n in range(3)
}


def choice(
    size: int,
    assigned: tuple[str, ...] | None = None,
    *,
    units: dict[str, Unit] = WHOLE,
    available: tuple[str, ...] | None = None,
    must: tuple[str, ...] = (),
    held: tuple[str, ...] = (),
    reserved: tuple[str, ...] = (),
    of_pod: tuple[str, ...] = (),
    slice_placement: SlicePlacement = SlicePlacement.DISTINCT_DEVICES,
) -> UnitSelection:
    pool = AllocatableUnits(
        resource="r/x",
        units=units,
        held_by=lambda unit: "ns/holder" if unit in held else None,
        reserved=reserved,
        of_pod=of_pod,
        slice_placement=slice_placement,
    )
    request = ContainerPreferredAllocationRequest(
        available_deviceIDs=units if available is None else available,
        must_include_deviceIDs=must,
        allocation_size=size,
    )
    return select(request, pool, assigned)


def test_assigned_units_are_selected():
    assert choice(2, ("GPU-3", "GPU-1")) == AssignedUnits(("GPU-3", "GPU-1"))


def test_what_an_init_container_has_is_part_of_it():
    assert choice(2, ("GPU-3", "GPU-1"), must=("GPU-1",)) == AssignedUnits(("GPU-1", "GPU-3"))


def test_a_unit_that_the_pod_has_for_another_container_is_no_substitute():
    """kubelet gave the one before GPU-1 of the init container, and this one the other."""
    of_pod = ("GPU-0", "GPU-1", "GPU-2")
    free = ("GPU-0", "GPU-2", "GPU-3")
    got = choice(2, ("GPU-1", "GPU-2"), must=("GPU-0",), available=free, of_pod=of_pod)
    assert got == AssignedUnits(("GPU-0", "GPU-2"))
    got = choice(
        2, ("GPU-1", "GPU-2"), must=("GPU-0",), available=free, of_pod=of_pod, held=("GPU-2",)
    )
    assert isinstance(got, SubstitutedUnits)
    assert (got.missing, got.given) == (("GPU-2",), ("GPU-3",))
    got = choice(2, ("GPU-1", "GPU-2"), must=("GPU-0",), available=free)
    assert isinstance(got, SubstitutedUnits)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param({"held": ("GPU-2",)}, "GPU-2 is held by ns/holder", id="held"),
        pytest.param({"available": ("GPU-0", "GPU-1", "GPU-3")}, "GPU-2 is in use", id="in use"),
        pytest.param(
            {
                "units": {
                    **WHOLE,
                    "GPU-2": Unit(id="GPU-2", device="GPU-2", is_healthy=False, numa_node=1),
                }
            },
            "GPU-2 is unhealthy",
            id="unhealthy",
        ),
        pytest.param(
            {"units": {k: v for k, v in WHOLE.items() if k in {"GPU-0", "GPU-3"}}},
            "GPU-2 is no longer advertised",
            id="gone",
        ),
    ],
)
def test_what_is_missing_is_substituted_and_said(more, why):
    found = choice(1, ("GPU-2",), **more)
    assert isinstance(found, SubstitutedUnits)
    assert (found.missing, found.why) == (("GPU-2",), why)
    assert found.units == found.given


def test_a_substitute_is_near_what_is_missing():
    found = choice(1, ("GPU-2",), held=("GPU-2",))
    assert isinstance(found, SubstitutedUnits)
    assert found.units == ("GPU-3",)


def test_units_assigned_to_others_come_last():
    found = choice(1, ("GPU-2",), held=("GPU-2",), reserved=("GPU-3",))
    assert isinstance(found, SubstitutedUnits)
    assert found.units == ("GPU-0",)
    everything = ("GPU-0", "GPU-1", "GPU-3")
    found = choice(1, ("GPU-2",), held=("GPU-2",), reserved=everything)
    assert isinstance(found, SubstitutedUnits)
    assert choice(2, None, reserved=("GPU-0", "GPU-1")) == UnassignedUnits(("GPU-2", "GPU-3"))


def test_too_little_is_refused_and_the_holder_named():
    found = choice(2, ("GPU-0", "GPU-1"), held=("GPU-1",), available=("GPU-0", "GPU-1"))
    assert found == SelectionRefused(
        "r/x: 2 requested, and only 1 of 4 can be allocated without sharing: GPU-1 is held by ns/holder"
    )


def test_what_must_be_given_and_is_anothers_is_refused():
    assert choice(2, None, must=("GPU-1",), held=("GPU-1",)) == SelectionRefused(
        "r/x: GPU-1 is held by ns/holder"
    )


@pytest.mark.parametrize(
    ("assigned", "held", "expected"),
    [
        pytest.param(
            ("GPU-0::0", "GPU-1::0"),
            ("GPU-0::0",),
            {"GPU-0::1", "GPU-1::0"},
            id="another of the same device",
        ),
        pytest.param(
            ("GPU-0::0", "GPU-1::0"),
            ("GPU-0::0", "GPU-0::1", "GPU-0::2"),
            {"GPU-2::0", "GPU-1::0"},
            id="of a third device rather than of its own second",
        ),
        pytest.param(
            ("GPU-0::0", "GPU-0::1", "GPU-2::0"),
            ("GPU-0::0", "GPU-0::1", "GPU-0::2"),
            {"GPU-1::0", "GPU-1::1", "GPU-2::0"},
            id="two of one device move together",
        ),
        pytest.param(
            ("GPU-0::0", "GPU-0::1"),
            ("GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0", "GPU-1::1"),
            {"GPU-2::0", "GPU-2::1"},
            id="to where there is room for both",
        ),
    ],
)
def test_slices_keep_their_shape(assigned, held, expected):
    found = choice(len(assigned), assigned, units=SLICES, held=held)
    assert isinstance(found, SubstitutedUnits)
    assert set(found.units) == expected


def test_without_assigned_units_slices_are_of_different_devices():
    found = choice(3, None, units=SLICES, held=("GPU-1::0",))
    assert isinstance(found, UnassignedUnits)
    assert {unit.partition("::")[0] for unit in found.units} == {"GPU-0", "GPU-1", "GPU-2"}


def of(device: int, *numbers: int) -> tuple[str, ...]:
    return tuple(f"GPU-{device}::{n}" for n in numbers)


def test_slices_of_the_same_device_are_assigned_as_before():
    found = choice(2, of(1, 2, 0), units=SLICES, slice_placement=SlicePlacement.SAME_DEVICE)
    assert found == AssignedUnits(of(1, 2, 0))


@pytest.mark.parametrize(
    ("size", "more", "expected"),
    [
        pytest.param(2, {}, of(0, 0, 1), id="all free"),
        pytest.param(2, {"held": of(1, 0)}, of(1, 1, 2), id="the fullest device with room"),
        pytest.param(2, {"held": of(1, 0, 1)}, of(0, 0, 1), id="no room on the fullest"),
        pytest.param(3, {"held": of(0, 0)}, of(1, 0, 1, 2), id="a whole device"),
        pytest.param(
            6, {"held": of(1, 1)}, (*of(0, 0, 1, 2), *of(2, 0, 1, 2)), id="two whole devices"
        ),
        pytest.param(
            4, {"held": of(1, 1)}, (*of(0, 0, 1, 2), *of(1, 0)), id="a whole one and the fullest"
        ),
        pytest.param(
            2,
            {"held": (*of(0, 0, 1), *of(1, 0, 1), *of(2, 2))},
            of(2, 0, 1),
            id="the only one with room",
        ),
        pytest.param(
            2,
            {"held": (*of(0, 0, 1), *of(1, 0, 1), *of(2, 1, 2))},
            (*of(0, 2), *of(1, 2)),
            id="several where none has room",
        ),
        pytest.param(2, {"reserved": of(0, 1, 2)}, of(1, 0, 1), id="units of others come last"),
        pytest.param(
            2, {"must": of(2, 1), "held": of(1, 0)}, of(2, 1, 0), id="beside the init container's"
        ),
        pytest.param(
            2,
            {"assigned": of(2, 0, 1), "held": of(2, 1)},
            of(2, 0, 2),
            id="the rest of its device",
        ),
        pytest.param(
            2,
            {"assigned": of(2, 0, 1), "held": of(2, 1, 2)},
            of(0, 0, 1),
            id="all of another device",
        ),
        pytest.param(
            3,
            {"assigned": of(2, 0, 1, 2), "held": of(2, 1), "must": of(2, 0)},
            (*of(2, 0, 2), *of(0, 0)),
            id="no other device than the init container's, as far as it goes",
        ),
    ],
)
def test_slices_of_the_same_device_stay_together(size, more, expected):
    found = choice(size, units=SLICES, slice_placement=SlicePlacement.SAME_DEVICE, **more)
    assert not isinstance(found, SelectionRefused)
    assert found.units == expected


def test_whole_devices_are_of_one_numa_node():
    units = {
        f"GPU-{device}::{n}": Unit(
            id=f"GPU-{device}::{n}", device=f"GPU-{device}", numa_node=device % 2
        )
        for device in range(4)
        for n in range(2)
    }
    found = choice(4, None, units=units, slice_placement=SlicePlacement.SAME_DEVICE)
    assert found == UnassignedUnits((*of(0, 0, 1), *of(2, 0, 1)))


some = st.sets(st.sampled_from([*WHOLE, "GPU-x"]))


@given(
    size=st.integers(1, 5),
    assigned=st.none() | st.lists(st.sampled_from([*WHOLE, "GPU-x"]), max_size=4).map(tuple),
    available=some,
    held=some,
    reserved=some,
)
def test_whatever_comes_nothing_is_shared(size, assigned, available, held, reserved):
    def ask() -> UnitSelection:
        return choice(
            size,
            assigned,
            available=tuple(sorted(available)),
            held=tuple(held),
            reserved=tuple(reserved),
        )

    found = ask()
    free = (available & WHOLE.keys()) - held
    if isinstance(found, SelectionRefused):
        assert len(free) < size
        return
    assert len(set(found.units)) == len(found.units) == size
    assert set(found.units) <= free
    own = set(assigned or ()) & free
    if len(own) <= size:
        assert own <= set(found.units)
    unassigned = free - own - reserved
    if not set(found.units) & reserved - own:
        return
    assert unassigned <= set(found.units)
    assert ask() == found
