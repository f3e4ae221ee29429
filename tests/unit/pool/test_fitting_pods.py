"""How many pods fit a pool is what comes of placing them."""

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import DeviceTopology
from api.names import NodeName, PodUid, PoolName, ReservationId
from pool.allocation_state import AllocationState
from pool.fitting_pods import SIZES, FittingPods, fitting_pods
from pool.model import PoolFacts
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from tests.support.builders import a_demand, a_device, a_node, a_pool, at
from tests.support.waiting_worlds import NOW, a_waiting_world

MAIN = PoolName("main")


def placed_one_by_one(state: AllocationState, pool: PoolFacts, size: int) -> int:
    """Bind pods on each node until none fits; the state has them afterwards."""
    count = 0
    demand = a_demand(size, pool=pool.name)
    for name, node in sorted(state.index.state(pool.name).nodes().items()):
        if not node.is_reservable:
            continue
        while isinstance(
            plan := state.reader.plan_bind(name, pool, demand, uid=PodUid(f"tried-{count}")), Placed
        ):
            request = PlacementRequest(
                id=ReservationId(f"tried-{count}"), pool=pool, demand=demand, namespace=""
            )
            state.commit(request, plan, uid=PodUid(f"tried-{count}"), now=at(NOW))
            count += 1
    return count


@given(seed=st.integers(0, 10**9), size=st.sampled_from(SIZES))
def test_as_many_pods_fit_as_can_be_placed(seed: int, size: int):
    world = a_waiting_world(seed)
    pool = world.pools["main"]
    counted = fitting_pods(world.built().index, MAIN)
    assert counted[size] == placed_one_by_one(world.built(), pool, size)


@given(seed=st.integers(0, 10**9))
def test_counting_changes_nothing(seed: int):
    state = a_waiting_world(seed).built()
    state.index.changes.take()
    before = state.index.state(MAIN).nodes() | {}
    masks = [(device.observed, device.assumed) for device in state.index.devices.all()]
    fitting_pods(state.index, MAIN)
    assert state.index.state(MAIN).nodes() == before
    assert [(device.observed, device.assumed) for device in state.index.devices.all()] == masks
    changes = state.index.changes
    assert not (changes.devices)
    assert not (changes.nodes)
    assert not (changes.pools)


@given(seed=st.integers(0, 10**9), ended=st.lists(st.integers(0, 20), max_size=6))
def test_counts_that_are_kept_follow_each_change(seed: int, ended: list[int]):
    world = a_waiting_world(seed)
    state = world.built()
    kept = FittingPods(state.index, MAIN)
    for number in ended:
        assert kept.counts() == fitting_pods(state.index, MAIN)
        pods = sorted(world.bound)
        if pods:
            state.discard_pod(world.bound[pods[number % len(pods)]].uid)
    assert kept.counts() == fitting_pods(state.index, MAIN)


@given(seed=st.integers(0, 10**9), nodes_a_step=st.integers(1, 3), ended=st.integers(0, 20))
def test_counting_in_steps_comes_to_the_same(seed: int, nodes_a_step: int, ended: int):
    """Also where a pod ends between two steps."""
    world = a_waiting_world(seed)
    state = world.built()
    kept = FittingPods(state.index, MAIN)
    pods = sorted(world.bound)
    for number, _ in enumerate(kept.count_in_steps(nodes_a_step)):
        if number == 0 and pods:
            state.discard_pod(world.bound[pods[ended % len(pods)]].uid)
    assert kept.counts() == fitting_pods(state.index, MAIN)
    assert list(kept.count_in_steps(nodes_a_step)) == []


def test_where_devices_must_be_near_each_other_pods_are_tried():
    """8 free devices on two NUMA nodes: two pods of 4, and none of 8."""
    state = AllocationState()
    state.index.replace_pool(a_pool("main", device_topology=DeviceTopology.REQUIRED))
    state.index.replace_node(a_node("n1"))
    for number in range(8):
        state.index.replace_device(a_device("n1", number, "main", numa_node=number // 4))
    assert fitting_pods(state.index, MAIN) == {1: 8, 2: 4, 4: 2, 8: 0}
    assert NodeName("n1") in state.index.state(MAIN).nodes()
