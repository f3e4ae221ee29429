"""Which units of a node each container gets."""

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import Strategy
from api.names import UnitId
from api.units import part_of
from pool.index.devices import DeviceEntry
from pool.layout import layout_of
from pool.model import ContainerRole
from pool.placement.device_rules import device_rules
from pool.placement.planner import is_intact, plan_devices
from tests.support.builders import a_demand, a_device, a_pool, a_slice_pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.annotations import Devices
    from pool.model import ContainerDemand

INIT, SIDECAR, MAIN = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.MAIN


def a_gpu(index: int = 0, *, slices: int = 0, observed: int = 0, assumed: int = 0, **changes):
    pool = a_slice_pool(slices=slices) if slices else a_pool()
    facts = a_device(index=index, pool=pool.name, uuid=f"G{index}", **changes)
    return DeviceEntry(facts, layout_of(facts, pool), observed, assumed)


def devices_of(units: "Sequence[UnitId]") -> list[str]:
    return [part_of(unit) for unit in units]


def plan(entries: "list[DeviceEntry]", *units: int, strategy=Strategy.BIN_PACK, roles=(), own=None):
    return planned(entries, a_demand(*units, roles=roles), strategy, own=own)


def planned(entries: "list[DeviceEntry]", demand, strategy=Strategy.BIN_PACK, *, own=None):
    facts = [entry.facts for entry in entries]
    capacity = tuple(entry.layout.count for entry in entries)
    devices = device_rules(a_pool(strategy=strategy), facts, capacity)
    return plan_devices(entries, demand, devices, own=own)


def test_every_container_gets_its_number_of_devices() -> None:
    assert plan([a_gpu(n) for n in range(3)], 2, 1) == {"c0": ("G0", "G1"), "c1": ("G2",)}


def test_too_few_units_are_no_plan() -> None:
    assert plan([a_gpu(0), a_gpu(1, observed=1)], 2) is None


def test_a_node_without_devices_is_no_plan() -> None:
    assert plan([], 1) is None


def test_a_faulted_device_is_not_allocated() -> None:
    assert plan([a_gpu(0, is_faulted=True), a_gpu(1)], 1) == {"c0": ("G1",)}


def test_a_device_whose_uuid_another_device_had_first_is_not_allocated() -> None:
    twin = a_gpu(0)
    twin.is_duplicate = True
    twin.update_usable()
    assert plan([twin, a_gpu(1)], 1) == {"c0": ("G1",)}


def test_neither_observed_nor_assumed_units_are_allocated() -> None:
    gpu = a_gpu(slices=4, observed=0b0001, assumed=0b0100)
    assert plan([gpu], 2) == {"c0": ("G0::1", "G0::3")}


def test_slices_of_one_container_are_on_distinct_devices_while_there_are_any() -> None:
    devices = plan([a_gpu(n, slices=4) for n in range(3)], 3)
    assert devices is not None
    assert devices_of(devices["c0"]) == ["G0", "G1", "G2"]


def test_slices_share_devices_evenly_when_there_are_more_slices_than_devices() -> None:
    devices = plan([a_gpu(n, slices=4) for n in range(2)], 5)
    assert devices is not None
    assert Counter(devices_of(devices["c0"])) == {"G0": 3, "G1": 2}


def test_a_full_device_does_not_stop_the_others_from_giving_a_second_slice() -> None:
    devices = plan([a_gpu(0, slices=2, observed=0b01), a_gpu(1, slices=2)], 3)
    assert devices == {"c0": ("G0::1", "G1::0", "G1::1")}


def test_the_fullest_device_is_taken_first() -> None:
    gpus = [
        a_gpu(0, slices=4),
        a_gpu(1, slices=4, observed=0b11),
        a_gpu(2, slices=4, assumed=1),
    ]
    assert plan(gpus, 1) == {"c0": ("G1::2",)}


def test_spread_takes_the_emptiest_device_first() -> None:
    gpus = [
        a_gpu(0, slices=4, assumed=1),
        a_gpu(1, slices=4, observed=0b11),
        a_gpu(2, slices=4),
    ]
    assert plan(gpus, 1, strategy=Strategy.SPREAD) == {"c0": ("G2::0",)}


def test_equal_devices_are_taken_in_order_of_their_names() -> None:
    gpus = [a_gpu(n) for n in range(3)]
    assert plan(gpus, 1, strategy=Strategy.SPREAD) == plan(gpus, 1) == {"c0": ("G0",)}


def test_a_container_reuses_what_an_init_container_left() -> None:
    devices = plan([a_gpu(n) for n in range(3)], 1, 2, roles=(INIT, MAIN))
    assert devices == {"c0": ("G0",), "c1": ("G0", "G1")}


def test_a_later_init_container_reuses_the_earlier_ones_units_too() -> None:
    devices = plan([a_gpu(n) for n in range(3)], 2, 3, 1, roles=(INIT, INIT, MAIN))
    assert devices == {"c0": ("G0", "G1"), "c1": ("G0", "G1", "G2"), "c2": ("G0",)}


def test_two_containers_share_what_an_init_container_left() -> None:
    devices = plan([a_gpu(n) for n in range(2)], 2, 1, 1, roles=(INIT, MAIN, MAIN))
    assert devices == {"c0": ("G0", "G1"), "c1": ("G0",), "c2": ("G1",)}


def test_a_sidecar_keeps_its_units() -> None:
    devices = plan([a_gpu(n) for n in range(2)], 1, 1, roles=(SIDECAR, MAIN))
    assert devices == {"c0": ("G0",), "c1": ("G1",)}


def test_a_sidecar_takes_what_an_init_container_left_away_for_good() -> None:
    devices = plan([a_gpu(n) for n in range(2)], 1, 1, 1, roles=(INIT, SIDECAR, MAIN))
    assert devices == {"c0": ("G0",), "c1": ("G0",), "c2": ("G1",)}


def test_new_units_beside_reused_slices_are_on_other_devices() -> None:
    devices = plan([a_gpu(n, slices=4) for n in range(2)], 1, 2, roles=(INIT, MAIN))
    assert devices == {"c0": ("G0::0",), "c1": ("G0::0", "G1::0")}


def test_the_pods_own_reservation_counts_as_free() -> None:
    gpus = [a_gpu(0, slices=2, observed=0b01, assumed=0b10), a_gpu(1, slices=2, assumed=0b11)]
    devices = plan(gpus, 2, own={gpus[0].facts.name: 0b10, gpus[1].facts.name: 0b01})
    assert devices == {"c0": ("G0::1", "G1::0")}


def test_the_pods_own_reservation_does_not_make_a_device_fuller() -> None:
    gpus = [a_gpu(0, slices=4, assumed=0b0011), a_gpu(1, slices=4, assumed=0b0001)]
    assert plan(gpus, 1, own={gpus[0].facts.name: 0b0011}) == {"c0": ("G1::1",)}


@st.composite
def nodes_of_devices(draw: st.DrawFn) -> list[DeviceEntry]:
    slices = draw(st.sampled_from([0, 2, 4]))
    masks = st.integers(0, (1 << max(slices, 1)) - 1)
    return [
        a_gpu(
            n,
            slices=slices,
            observed=draw(masks),
            assumed=draw(masks),
            is_faulted=draw(st.booleans()) and draw(st.booleans()),
        )
        for n in range(draw(st.integers(1, 5)))
    ]


def free_units(entries: list[DeviceEntry]) -> set[UnitId]:
    return {
        unit
        for entry in entries
        if not entry.facts.is_faulted
        for slot, unit in enumerate(entry.layout.ids)
        if not (entry.observed | entry.assumed) & 1 << slot
    }


def kubelet_permits(devices: "Devices", containers: "Sequence[ContainerDemand]") -> bool:
    """Replay kubelet: reusable units first, all of them if the container needs as many."""
    reusable: set[UnitId] = set()
    in_use: set[UnitId] = set()
    for container in containers:
        units = set(devices[container.name])
        reused = units & in_use
        if reused != units & reusable or len(reused) != min(container.units, len(reusable)):
            return False
        in_use |= units
        reusable = reusable | units if container.role is INIT else reusable - units
    return True


@given(st.data())
def test_a_plan_takes_free_units_that_kubelet_would_hand_out(data: st.DataObject) -> None:
    entries = data.draw(nodes_of_devices())
    roles = (*data.draw(st.lists(st.sampled_from([INIT, SIDECAR]), max_size=3)), MAIN)
    units = data.draw(st.lists(st.integers(1, 4), min_size=len(roles), max_size=len(roles)))
    demand = a_demand(*units, roles=roles)
    devices = planned(entries, demand, data.draw(st.sampled_from(Strategy)))
    free = free_units(entries)
    if devices is None:
        assert demand.units > len(free)
        return
    taken = {unit for given_units in devices.values() for unit in given_units}
    assert taken <= free
    assert len(taken) == demand.units
    assert {name: len(set(given_units)) for name, given_units in devices.items()} == {
        container.name: container.units for container in demand.containers
    }
    assert kubelet_permits(devices, demand.containers)


@given(st.data())
def test_a_single_container_is_on_as_many_devices_as_possible(data: st.DataObject) -> None:
    entries = data.draw(nodes_of_devices())
    units = data.draw(st.integers(1, 6))
    devices = planned(entries, a_demand(units), data.draw(st.sampled_from(Strategy)))
    if devices is not None:
        open_devices = {part_of(unit) for unit in free_units(entries)}
        assert len(set(devices_of(devices["c0"]))) == min(units, len(open_devices))


@given(st.data())
def test_the_same_node_gives_the_same_plan(data: st.DataObject) -> None:
    entries = data.draw(nodes_of_devices())
    demand = a_demand(data.draw(st.integers(1, 6)))
    assert planned(entries, demand) == planned(list(entries), demand)


def intact(gpu: DeviceEntry, own: int, *units: str) -> bool:
    return is_intact({"c0": tuple(map(UnitId, units))}, {gpu.facts.name: own}, [gpu])


def test_a_reservation_on_healthy_devices_is_intact() -> None:
    assert intact(a_gpu(slices=4, assumed=0b0110), 0b0110, "G0::1", "G0::2")


def test_a_reservation_on_a_faulted_device_is_not_intact() -> None:
    assert not intact(a_gpu(assumed=1, is_faulted=True), 1, "G0")


def test_a_reservation_that_a_bound_pod_took_is_not_intact() -> None:
    assert not intact(a_gpu(assumed=1, observed=1), 1, "G0")


def test_a_reservation_on_a_device_that_is_gone_is_not_intact() -> None:
    assert not is_intact({"c0": (UnitId("G9"),)}, {}, [a_gpu(0)])


def test_a_reservation_on_units_that_are_cut_otherwise_now_is_not_intact() -> None:
    assert not intact(a_gpu(slices=2, assumed=0b11), 0b11, "G0")


def test_a_reservation_that_another_reservation_overlaps_is_not_intact() -> None:
    assert not intact(a_gpu(slices=2, assumed=0b11), 0b00, "G0::0")
