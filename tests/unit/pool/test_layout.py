"""How a device is cut into units."""

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import AllocationMode
from api.names import UnitId
from api.units import part_of, slices_of
from pool.layout import NO_UNITS, Layout, layout_of
from tests.support.builders import a_device, a_pool, a_slice_pool

if TYPE_CHECKING:
    from pool.model import DeviceFacts

MIG_POOL = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")


def a_mig_device(*instances: tuple[str, str], **changes: Any) -> "DeviceFacts":
    return a_device(pool="mig", mig_instances=instances, **changes)


def test_a_whole_device_is_one_unit_named_by_its_uuid() -> None:
    assert layout_of(a_device(uuid="GPU-7"), a_pool()).ids == ("GPU-7",)


def test_a_sliced_device_has_a_numbered_unit_for_every_slice() -> None:
    layout = layout_of(a_device(uuid="GPU-7", pool="slices"), a_slice_pool(slices=3))
    assert layout.ids == ("GPU-7::0", "GPU-7::1", "GPU-7::2")
    assert (layout.count, layout.full) == (3, 0b111)


def test_a_mig_device_has_only_its_own_instances_of_the_pools_profile() -> None:
    """Lesson 5: instances were counted for the node and given to every device."""
    devices = [
        a_mig_device(("1g.10gb", "MIG-b"), ("1g.10gb", "MIG-a"), ("3g.40gb", "MIG-c")),
        a_mig_device(("1g.10gb", "MIG-d"), index=1),
    ]
    assert [layout_of(device, MIG_POOL).ids for device in devices] == [
        ("MIG-a", "MIG-b"),
        ("MIG-d",),
    ]


def test_a_mig_instance_reported_twice_is_one_unit() -> None:
    device = a_mig_device(("1g.10gb", "MIG-a"), ("1g.10gb", "MIG-a"))
    assert layout_of(device, MIG_POOL).ids == ("MIG-a",)


def test_a_mig_instance_without_a_uuid_is_no_unit() -> None:
    assert layout_of(a_mig_device(("1g.10gb", "")), MIG_POOL) == NO_UNITS


@pytest.mark.parametrize(
    ("device", "pool"),
    [
        pytest.param(a_device(), None, id="the pool is unknown"),
        pytest.param(a_device(pool="other"), a_pool(), id="in another pool"),
        pytest.param(a_device(pool=None), a_pool(), id="in no pool"),
        pytest.param(a_device(uuid=""), a_pool(), id="the driver has not reported the uuid"),
        pytest.param(a_device(uuid="GPU::x"), a_pool(), id="a slice for a uuid"),
        pytest.param(a_device(is_partitioned=True), a_pool(), id="still partitioned"),
        pytest.param(
            a_device(pool="slices", is_partitioned=True),
            a_slice_pool(slices=4),
            id="still partitioned, in a pool of slices",
        ),
        pytest.param(
            a_mig_device(("1g.10gb", "MIG-a::0")), MIG_POOL, id="a slice for an instance's uuid"
        ),
        pytest.param(
            a_device(pool="slices"),
            a_slice_pool(slices=2**31),
            id="more slices than a pool may have",
        ),
    ],
)
def test_a_device_that_is_outside_of_the_pool_or_of_all_bounds_has_no_units(device, pool) -> None:
    assert layout_of(device, pool).ids == ()


def test_a_unit_takes_its_own_slot() -> None:
    layout = layout_of(a_device(uuid="G", pool="slices"), a_slice_pool(slices=4))
    assert layout.mask_of((UnitId("G::2"),)) == 0b0100


def test_a_unit_of_another_cut_takes_the_whole_device() -> None:
    layout = layout_of(a_device(uuid="G", pool="slices"), a_slice_pool(slices=4))
    assert layout.mask_of((UnitId("G"),)) == layout.mask_of((UnitId("G::7"),)) == 0b1111


@pytest.mark.parametrize(
    ("unit", "want"), [("GPU-7", "GPU-7"), ("GPU-7::3", "GPU-7"), ("MIG-a", "MIG-a")]
)
def test_the_part_of_a_unit_is_the_device_or_instance_that_it_belongs_to(
    unit: str, want: str
) -> None:
    assert part_of(unit) == want


def test_each_slice_of_a_hundred_is_its_own_bit() -> None:
    layout = Layout(slices_of("GPU-1", 100))
    assert [layout.mask_of((UnitId(str(unit)),)) for unit in layout.ids] == [
        1 << slot for slot in range(100)
    ]


@pytest.mark.parametrize("count", [4, 100])
@given(data=st.data())
def test_units_in_any_order_are_the_bits_of_each(count: int, data: st.DataObject) -> None:
    layout = Layout(slices_of("GPU-1", count))
    slots = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    units = [layout.ids[slot] for slot in slots]
    assert layout.mask_of(units) == sum(1 << slot for slot in slots)
    assert layout.mask_of([*units, UnitId("GPU-1")]) == layout.full


@pytest.mark.parametrize("unit", ["GPU-2::7", "GPU-1", "GPU-1::100", "GPU-1::07", "GPU-1::٣", "7"])
def test_a_unit_that_is_none_of_a_hundred_slices_takes_the_whole_device(unit: str) -> None:
    layout = Layout(slices_of("GPU-1", 100))
    assert layout.mask_of((UnitId(unit),)) == layout.full
