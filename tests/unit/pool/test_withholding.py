"""A device that is to leave its pool gives nothing out, from the moment that it is decided."""

import pytest

from api.names import DeviceName, PodUid, PoolName, UnitId
from pool.allocation_state import AllocationState
from pool.index.device_index import DeviceIndex
from tests.support.builders import a_demand, a_device, a_node, a_pool

WHOLE = PoolName("whole")
FIRST = DeviceName("n1-0")


@pytest.fixture
def index() -> DeviceIndex:
    found = DeviceIndex()
    found.replace_pool(a_pool())
    found.replace_node(a_node())
    found.replace_device(a_device(index=0))
    found.replace_device(a_device(index=1))
    found.changes.take()
    return found


def free(index: DeviceIndex) -> int:
    return index.state(WHOLE).capacity().available


def test_withheld_device_gives_nothing_out(index):
    index.withhold(FIRST)

    assert free(index) == 1
    assert FIRST in index.changes.take().devices
    generation = index.generation
    index.withhold(FIRST)
    assert index.generation == generation


def test_withheld_device_stays_so_whatever_is_observed_of_it(index):
    index.withhold(FIRST)

    index.replace_device(a_device(index=0, mig_instances=(("1g.10gb", "MIG-1"),)))

    assert free(index) == 1


def test_device_that_is_readmitted_is_allocated_again(index):
    index.withhold(FIRST)
    index.readmit(FIRST)
    index.readmit(FIRST)

    assert free(index) == 2


def test_readmitting_does_not_overrule_what_the_object_says(index):
    index.replace_device(a_device(index=0, is_draining=True))
    index.withhold(FIRST)

    index.readmit(FIRST)

    assert free(index) == 1


def test_device_that_went_and_came_back_is_a_new_one(index):
    index.withhold(FIRST)
    index.discard_device(FIRST)

    index.replace_device(a_device(index=0))

    assert free(index) == 2


def test_units_in_use_stay_their_pods(index):
    index.set_observed(PodUid("p"), (UnitId("GPU-n1-0"),))

    index.withhold(FIRST)

    assert index.state(WHOLE).capacity().used == 1
    entry = index.devices.get(FIRST)
    assert entry is not None
    assert index.claims.holders(entry) == {"p": ("GPU-n1-0",)}


def test_reservation_on_a_withheld_device_is_not_what_its_pod_is_bound_to():
    allocation_state = AllocationState()
    allocation_state.index.replace_pool(a_pool())
    allocation_state.index.replace_node(a_node())
    for number in (0, 1):
        allocation_state.index.replace_device(a_device(index=number))
    allocation_state.index.withhold(FIRST)

    plan = allocation_state.reader.plan_bind(a_node().name, a_pool(), a_demand(1), uid=PodUid("p"))

    assert "GPU-n1-1" in str(plan)
