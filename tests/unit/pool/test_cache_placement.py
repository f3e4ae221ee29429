"""Placement of pods with kernel caches beside a naive model: devices that fit, and warm nodes by the formula."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cache_name import CacheName
from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import AllocationMode, Strategy
from api.names import NodeName, PodUid, ReservationId, UnitId
from kernelcache.cache_index import CacheIndex
from pool.admission_planner import Exhausted
from pool.allocation_state import AllocationState
from pool.index.cache_fit import WARM_SCORE, fits_no_device
from pool.model import Constraints, KubeletTopology, PodPhase, PoolFacts
from pool.placement.planner import Placed, PlacementRefused
from pool.refusal import CacheIncompatibility, NodeReason
from pool.reservations.reservation import PlacementRequest, Reservation
from pool.reservations.restore import note_of
from pool.what_if.evictions import fits_when_empty
from telemetry.reasons import node_refusal_text
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool, at
from tests.support.cache_demands import LLAMA, MISTRAL, SHARED, a_resolved_cache, set_warm

ARCHS = {"8.0": 80, "9.0": 90, "": 0}
CACHES = (LLAMA, MISTRAL, SHARED)
MAX = 9


@dataclass(frozen=True)
class World:
    """Devices by node with their capability and the bits of their taken units; caches with their archs."""

    strategy: Strategy
    slices: int
    nodes: dict[str, tuple[tuple[str, int], ...]]
    caches: dict[CacheName, tuple[int, ...]]
    warm: dict[CacheName, frozenset[str]]
    mounted: tuple[CacheName, ...]
    units: int

    def fits(self, capability: str) -> bool:
        archs = [self.caches[item] for item in self.mounted if item in self.caches]
        return all(ARCHS[capability] in arch for arch in archs)

    def total(self, node: str) -> int:
        return self.slices * sum(self.fits(capability) for capability, _ in self.nodes[node])

    def free(self, node: str) -> int:
        taken = sum(
            mask.bit_count() for capability, mask in self.nodes[node] if self.fits(capability)
        )
        return self.total(node) - taken

    def is_incompatible(self, node: str) -> bool:
        return any(not self.fits(capability) for capability, _ in self.nodes[node])

    def reason(self, node: str) -> NodeReason | None:
        if self.free(node) >= self.units:
            return None
        if not self.is_incompatible(node):
            is_small = self.total(node) < self.units
            return NodeReason.NODE_TOO_SMALL if is_small else NodeReason.INSUFFICIENT_UNITS
        if not self.total(node):
            return NodeReason.CACHE_FITS_NO_DEVICE
        if self.total(node) < self.units:
            return NodeReason.CACHE_FITS_TOO_FEW
        return NodeReason.INSUFFICIENT_FITTING_UNITS

    def is_warm(self, node: str) -> bool:
        resolved = [item for item in self.mounted if item in self.caches]
        return bool(resolved) and all(node in self.warm[item] for item in resolved)

    def score(self, node: str) -> int:
        left, total = self.free(node) - self.units, self.total(node)
        match self.strategy:
            case Strategy.BIN_PACK:
                score = MAX * (total - left) // total
            case Strategy.SPREAD:
                score = MAX * left // total
            case _:
                score = max(0, MAX - left)
        if not any(item in self.caches for item in self.mounted):
            return score
        return score * (MAX - WARM_SCORE) // MAX + WARM_SCORE * self.is_warm(node)


@st.composite
def worlds(draw: Any) -> World:
    slices = draw(st.sampled_from((1, 2)))
    device = st.tuples(
        st.sampled_from(("9.0", "8.0", "")), st.integers(min_value=0, max_value=2**slices - 1)
    )
    names = draw(st.lists(st.sampled_from(("n1", "n2", "n3", "n4")), min_size=1, unique=True))
    caches = {
        name: tuple(draw(st.sets(st.sampled_from((80, 90)), min_size=1)))
        for name in draw(st.sets(st.sampled_from(CACHES)))
    }
    return World(
        strategy=draw(st.sampled_from(Strategy)),
        slices=slices,
        nodes={name: tuple(draw(st.lists(device, min_size=1, max_size=4))) for name in names},
        caches=caches,
        warm={name: frozenset(draw(st.sets(st.sampled_from(names)))) for name in CACHES},
        mounted=tuple(sorted(draw(st.sets(st.sampled_from(CACHES))))),
        units=draw(st.integers(1, 5)),
    )


def state_of(world: World) -> AllocationState:
    state, caches = AllocationState(), CacheIndex()
    state.index.caches = caches
    for name, archs in world.caches.items():
        caches.set_cache(name, a_resolved_cache(*archs))
    set_warm(caches, dict(world.warm))
    sliced: dict[str, Any] = {"mode": AllocationMode.TIME_SLICE, "slices_per_device": world.slices}
    state.index.replace_pool(
        a_pool(strategy=world.strategy, **(sliced if world.slices > 1 else {}))
    )
    for node, devices in world.nodes.items():
        state.index.replace_node(a_node(node))
        for number, (capability, _) in enumerate(devices):
            state.index.replace_device(a_device(node, number, compute_capability=capability))
    for node, devices in world.nodes.items():
        for number, (_, mask) in enumerate(devices):
            for slot in range(world.slices):
                if mask >> slot & 1:
                    take(state, node, number, slot if world.slices > 1 else None)
    return state


def take(state: AllocationState, node: str, number: int, slot: int | None) -> None:
    unit = f"GPU-{node}-{number}" + ("" if slot is None else f"::{slot}")
    pod = a_pod_facts(
        unit, 1, phase=PodPhase.BOUND, node=NodeName(node), devices={"c0": (UnitId(unit),)}
    )
    state.observe_pod(pod, at(0))


def asked(world: World) -> Any:
    return msgspec.structs.replace(a_demand(world.units), caches=world.mounted)


def assert_compatible(world: World, placed: Placed) -> None:
    units = [unit for device in placed.devices.values() for unit in device]
    assert len(set(units)) == world.units
    for unit in units:
        node, number = unit.partition("::")[0].removeprefix("GPU-").rsplit("-", 1)
        assert node == placed.node
        assert world.fits(world.nodes[node][int(number)][0])


@given(worlds())
def test_nodes_are_refused_exactly_where_no_plan_exists_and_devices_fit(world: World):
    state = state_of(world)
    index, reader, demand = state.index, state.reader, asked(world)
    pool = index.pools()[0]
    view = index.view(pool.name, demand)
    for name in world.nodes:
        node, reason = NodeName(name), world.reason(name)
        refusal = view.refusals[node]
        assert (refusal and refusal.reason) == reason
        assert (refusal is not None and refusal.incompatibility is not None) == (
            reason is not None and world.is_incompatible(name)
        )
        planned = reader.plan_bind(node, pool, demand, uid=PodUid("p"))
        on = reader.plan_on(node, pool, demand)
        if reason is None:
            assert isinstance(planned, Placed)
            assert on is not None
            assert_compatible(world, planned)
            assert_compatible(world, on)
        else:
            assert isinstance(planned, PlacementRefused)
            assert planned.refusal.reason is reason
            assert on is None
        holders = [pod.uid for pod in reader.pods_of_pool(pool, node)]
        is_resolvable = reader.fits_without(holders, node, (pool, demand))
        assert is_resolvable == (reason is None or reason.is_resolvable)
        assert is_resolvable == (world.total(name) >= world.units)


@given(worlds())
def test_reservations_go_to_the_node_of_the_best_score_a_warm_one_where_scores_are_equal(
    world: World,
):
    state = state_of(world)
    index = state.index
    pool = index.pools()[0]
    fitting = {name: world.score(name) for name in world.nodes if world.reason(name) is None}
    planned = state.reader.admission.plan(pool, asked(world), Constraints())
    if not fitting:
        assert isinstance(planned, Exhausted)
        return
    assert isinstance(planned, Placed)
    assert_compatible(world, planned)
    best = max(fitting.values())
    assert fitting[planned.node] == best
    if not world.is_warm(planned.node):
        assert not any(world.is_warm(name) for name, score in fitting.items() if score == best)


@given(worlds(), worlds())
def test_the_view_follows_devices_and_caches_that_change(before: World, after: World):
    state = state_of(before)
    pool = state.index.pools()[0]
    for world in (before, after):
        state.index.view(pool.name, asked(world))
    fresh = state_of(after)
    for name in before.nodes:
        for number in range(len(before.nodes[name])):
            state.index.discard_device(a_device(name, number).name)
    for uid in [pod.uid for pod in state.reader.pods.all()]:
        state.discard_pod(uid)
    state.index.caches = fresh.index.caches
    state.index.replace_pool(fresh.index.pools()[0])
    for node, devices in after.nodes.items():
        state.index.replace_node(a_node(node))
        for number, (capability, _) in enumerate(devices):
            state.index.replace_device(a_device(node, number, compute_capability=capability))
    for pod in list(fresh.reader.pods.all()):
        state.observe_pod(pod, at(0))
    for world in (before, after):
        got, want = (item.index.view(pool.name, asked(world)) for item in (state, fresh))
        assert got.refusals == want.refusals
        assert got.scores == want.scores


@pytest.mark.parametrize("resolved", [True, False])
def test_a_pool_of_one_product_keeps_its_views_for_pods_whose_caches_fit(resolved: bool):
    state, caches = AllocationState(), CacheIndex()
    state.index.caches = caches
    if resolved:
        caches.set_cache(LLAMA, a_resolved_cache(90))
    state.index.replace_pool(a_pool())
    state.index.replace_node(a_node())
    state.index.replace_device(a_device(compute_capability="9.0" if resolved else "8.0"))
    pool, demand = a_pool().name, a_demand(1)
    mounting = msgspec.structs.replace(demand, caches=(LLAMA,))
    assert state.index.view(pool, mounting) is state.index.view(pool, demand)


def a_mixed_pool(**nodes: tuple[str, ...]) -> AllocationState:
    """Nodes with devices of these capabilities, and cache llama for 90."""
    state, caches = AllocationState(), CacheIndex()
    state.index.caches = caches
    caches.set_cache(LLAMA, a_resolved_cache(90))
    state.index.replace_pool(a_pool(strategy=Strategy.BIN_PACK))
    for node, capabilities in nodes.items():
        state.index.replace_node(a_node(node))
        for number, capability in enumerate(capabilities):
            state.index.replace_device(a_device(node, number, compute_capability=capability))
    return state


MOUNTING = msgspec.structs.replace(a_demand(1), caches=(LLAMA,))


def test_the_view_of_some_devices_follows_units_that_are_taken_and_come_free():
    state = a_mixed_pool(n1=("9.0", "8.0"))
    index, pool, n1 = state.index, a_pool().name, NodeName("n1")
    assert index.view(pool, MOUNTING).refusals == {n1: None}
    take(state, "n1", 0, None)
    refusal = index.view(pool, MOUNTING).refusals[n1]
    assert refusal is not None
    assert (refusal.reason, refusal.free, refusal.used, refusal.total) == (
        NodeReason.INSUFFICIENT_FITTING_UNITS,
        0,
        1,
        1,
    )
    state.discard_pod(PodUid("uid-GPU-n1-0"))
    assert index.view(pool, MOUNTING).refusals == {n1: None}


def test_a_warm_node_wins_where_scores_are_equal():
    """n1 has 3 of 9 by BinPack, of which 2 are left; n2 has 1, of which 0 are left, and 2 for its warmth."""
    state = a_mixed_pool(n1=("9.0",) * 9, n2=("9.0",) * 9)
    for number in range(2):
        take(state, "n1", number, None)
    assert isinstance(state.index.caches, CacheIndex)
    set_warm(state.index.caches, {LLAMA: ["n2"]})
    pool = state.index.pools()[0]
    assert state.index.view(pool.name, MOUNTING).scores == {NodeName("n1"): 3, NodeName("n2"): 1}
    planned = state.reader.admission.plan(pool, MOUNTING, Constraints())
    assert isinstance(planned, Placed)
    assert planned.node == "n2"


def test_where_kubelet_chooses_devices_all_of_a_node_have_to_fit():
    state = a_mixed_pool(n1=("9.0", "8.0"), n2=("9.0", "9.0"))
    index, pool = state.index, a_pool().name
    for node in ("n1", "n2"):
        index.replace_kubelet(
            NodeName(node),
            KubeletTopology(
                TopologyManagerPolicy.RESTRICTED,
                TopologyManagerScope.CONTAINER,
                knows_numa_nodes=True,
            ),
        )
    refusals = index.view(pool, MOUNTING).refusals
    assert refusals[NodeName("n2")] is None
    refusal = refusals[NodeName("n1")]
    assert refusal is not None
    assert node_refusal_text(refusal, pool) == (
        "GPU pool whole: kernel cache GKMCache default/llama fits no device of the pool on this node: kubelet chooses"
        " among them, and not all fit (arch 90 of the cache, device has 80)"
    )


def test_a_reservation_whose_cache_gets_another_image_is_planned_again():
    """The image that the pod was admitted with had kernels for both devices."""
    state = a_mixed_pool(n1=("8.0", "9.0"))
    caches = state.index.caches
    assert isinstance(caches, CacheIndex)
    caches.set_cache(LLAMA, a_resolved_cache(80, 90))
    pool = state.index.pools()[0]
    first = a_reservation(state, pool)
    assert first.devices == {"c0": ("GPU-n1-0",)}
    planned = state.reader.plan_bind(NodeName("n1"), pool, MOUNTING, uid=PodUid("uid-p"))
    assert isinstance(planned, Placed)
    assert planned.devices == first.devices
    caches.set_cache(LLAMA, a_resolved_cache(90))
    planned = state.reader.plan_bind(NodeName("n1"), pool, MOUNTING, uid=PodUid("uid-p"))
    assert isinstance(planned, Placed)
    assert planned.devices == {"c0": ("GPU-n1-1",)}


def a_reservation(state: AllocationState, pool: PoolFacts) -> Reservation:
    planned = state.reader.admission.plan(pool, MOUNTING, Constraints())
    assert isinstance(planned, Placed)
    request = PlacementRequest(
        id=ReservationId("r"), pool=pool, demand=MOUNTING, namespace="default", name="p"
    )
    reservation = state.reserve(request, planned, at(0))
    state.tie(reservation.id, PodUid("uid-p"), name="p", now=at(0))
    return reservation


def test_a_reservation_is_kept_over_a_restart_with_the_devices_that_fit():
    before = a_mixed_pool(n1=("8.0", "9.0"))
    reservation = a_reservation(before, before.index.pools()[0])
    assert reservation.devices == {"c0": ("GPU-n1-1",)}
    after = a_mixed_pool(n1=("8.0", "9.0"))
    note = note_of(reservation, at(0))
    after.observe_pod(a_pod_facts("p", demand=MOUNTING, reservation=note), at(1))
    restored = after.reader.ledger.of_pod(PodUid("uid-p"))
    assert restored is not None
    assert (restored.node, restored.devices) == ("n1", {"c0": ("GPU-n1-1",)})
    pool = after.index.pools()[0]
    planned = after.reader.plan_bind(NodeName("n1"), pool, MOUNTING, uid=PodUid("uid-p"))
    assert isinstance(planned, Placed)
    assert planned.devices == reservation.devices


def test_a_node_without_pods_is_judged_by_the_devices_that_fit():
    state = a_mixed_pool(n1=("8.0", "9.0"))
    requested = state.index.pools()[0], msgspec.structs.replace(a_demand(2), caches=(LLAMA,))
    assert not fits_when_empty(state.index, requested, NodeName("n1"))
    assert fits_when_empty(state.index, (requested[0], MOUNTING), NodeName("n1"))


def test_a_pool_without_a_device_that_fits_is_told_from_one_without_devices():
    state = a_mixed_pool(n1=("8.0",))
    found = fits_no_device(state.index, a_pool().name, MOUNTING)
    assert found == CacheIncompatibility(
        "kernel cache GKMCache default/llama fits", "arch 90 of the cache, device has 80"
    )
    assert fits_no_device(state.index, a_pool().name, a_demand(1)) is None
    state.index.discard_device(a_device("n1", 0).name)
    assert fits_no_device(state.index, a_pool().name, MOUNTING) is None


def test_caches_that_fit_different_devices_are_named_together():
    state = a_mixed_pool(n1=("8.0", "9.0"))
    caches = state.index.caches
    assert isinstance(caches, CacheIndex)
    caches.set_cache(MISTRAL, a_resolved_cache(80))
    both = msgspec.structs.replace(a_demand(1), caches=(LLAMA, MISTRAL))
    refusal = state.index.view(a_pool().name, both).refusals[NodeName("n1")]
    assert refusal is not None
    assert refusal.reason is NodeReason.CACHE_FITS_NO_DEVICE
    assert refusal.incompatibility == CacheIncompatibility(
        "kernel caches GKMCache default/llama, GKMCache default/mistral together fit",
        "arch 90 of the cache, device has 80",
    )
