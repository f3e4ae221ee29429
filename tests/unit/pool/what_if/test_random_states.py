"""Explanations of random states: each remedy is carried out on a state built from nothing, and none is left out.

300 states by default, 10,000 with `--long`. A failure names its seed: `a_waiting_world(seed)` is that state.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
import pytest

from pool.allocation_state import AllocationState
from pool.what_if.explanation import (
    HAVE_UNITS,
    AnyRemedy,
    AskFewerUnits,
    DevicesJoin,
    Explanation,
    PodsEnd,
    ReservationsExpire,
    UnitsReturn,
    UnitWaitReason,
    UsePool,
    WithheldBy,
)
from tests.support.naive_remedies import NaivePlacement, NaiveSearch
from tests.support.proved_remedies import carried_out, explained, is_placed, reservations_of
from tests.support.waiting_worlds import NOW, WaitingWorld, a_waiting_world

Kind = TypeVar("Kind", bound=AnyRemedy)
States = list[tuple[int, WaitingWorld, Explanation]]
CHUNKS = 10
OF_NODES = {WithheldBy.CORDONED, WithheldBy.NOT_READY}


@pytest.fixture(scope="module", params=range(CHUNKS))
def states(request: pytest.FixtureRequest, is_long: bool) -> States:
    """A tenth of the random states, with what is said about their pods."""
    every = 10_000 if is_long else 300
    worlds = [(seed, a_waiting_world(seed)) for seed in range(request.param, every, CHUNKS)]
    return [(seed, world, explained(world)) for seed, world in worlds]


def test_every_remedy_makes_the_pod_fit(states: States):
    unproved = [
        (seed, remedy)
        for seed, world, explanation in states
        for remedy in explanation.remedies
        if not is_placed(carried_out(remedy, world), remedy.node)
    ]
    assert unproved == []


def test_units_are_available_where_a_node_of_the_pods_choice_has_them(states: States):
    for seed, world, explanation in states:
        is_available = bool(NaivePlacement(world).taking())
        says_so = explanation.reason in HAVE_UNITS
        assert says_so == (is_available and not world.pod.is_gated), seed
        if explanation.reason is UnitWaitReason.RESERVATION_PENDING:
            assert world.pod.awaits_capacity, seed


def test_a_pod_that_units_do_not_keep_waiting_needs_no_remedy(states: States):
    needless = [
        seed
        for seed, world, explanation in states
        if not does_wait(world, explanation) and explanation.remedies
    ]
    assert needless == []


def test_the_largest_smaller_size_that_fits_is_named(states: States):
    for seed, world, explanation in waits(states):
        sizes = [units for units, _ in NaiveSearch(world).smaller_sizes()]
        named = [item.units for item in of_kind(explanation, AskFewerUnits)]
        assert named == ([max(sizes)] if sizes else []), seed


def test_the_soonest_expiry_that_suffices_is_named_with_the_reservations_that_it_takes(
    states: States,
):
    for seed, world, explanation in waits(states):
        expiries = list(NaiveSearch(world).expiries())
        named = of_kind(explanation, ReservationsExpire)
        assert bool(named) == bool(expiries), seed
        for entry in named:
            assert entry.within_s == min(expiries)[0] - NOW, seed
            names = set(reservations_of(entry.holders, world))
            on_node = [set(item) for _, item, node in expiries if node == entry.node]
            assert names in on_node, seed
            assert not any(item < names for item in on_node), seed


def test_every_other_pool_that_takes_the_pod_is_named(states: States):
    for seed, world, explanation in waits(states):
        pools = {pool for pool, _ in NaiveSearch(world).other_pools()}
        named = [item.pool for item in of_kind(explanation, UsePool)]
        assert sorted(named) == sorted(pools), seed


def test_a_node_that_is_withheld_is_named_where_one_would_do(states: States):
    for seed, world, explanation in waits(states):
        nodes = set(NaiveSearch(world).schedulable_nodes())
        named = [item for item in of_kind(explanation, UnitsReturn) if item.cause in OF_NODES]
        assert len(named) == bool(nodes), seed
        assert {item.node for item in named} <= nodes, seed


def test_no_more_withheld_devices_are_named_than_it_takes(states: States):
    for seed, world, explanation in waits(states):
        search = NaiveSearch(world)
        sets = [item for cause in WithheldBy for item in search.restored_devices(cause)]
        named = [item for item in of_kind(explanation, UnitsReturn) if item.cause not in OF_NODES]
        is_least(seed, [item.devices for item in named], sets)


def test_no_more_devices_without_a_pool_are_named_than_it_takes(states: States):
    for seed, world, explanation in waits(states):
        named = [item.devices for item in of_kind(explanation, DevicesJoin)]
        is_least(seed, named, list(NaiveSearch(world).joining_devices()))


def test_the_fewest_pods_whose_end_makes_room_are_named(states: States):
    for seed, world, explanation in waits(states):
        sets = list(NaiveSearch(world).ending_pods())
        named = [[pod.uid for pod in item.holders] for item in of_kind(explanation, PodsEnd)]
        is_least(seed, named, sets)
        if named:
            assert len(named[0]) == min(map(len, sets)), seed


def test_figures_of_a_node_add_up_and_its_holders_have_what_is_taken(states: States):
    for seed, world, explanation in states:
        for item in explanation.nodes:
            assert item.total == item.free + item.used + item.reserved + item.withheld, seed
            assert min(item.free, item.used, item.reserved, item.withheld) >= 0, seed
            naive = NaivePlacement(world)
            assert item.takes_pod == naive.takes(item.node), seed
            assert bool(item.exclusion) != naive.may_go_to(item.node), seed
            if not item.exclusion:
                assert bool(item.shortage) != naive.has_capacity(item.node), seed


def test_an_explanation_goes_through_json(states: States):
    for seed, _, explanation in states:
        encoded = msgspec.json.encode(explanation)
        assert msgspec.json.decode(encoded, type=Explanation) == explanation, seed


def test_to_explain_changes_nothing(states: States):
    for seed, world, explanation in states:
        state = world.built()
        before = fingerprint(state)
        assert explained(world, state) == explanation, seed
        assert explained(world, state) == explanation, seed
        assert fingerprint(state) == before, seed


def test_the_random_states_show_every_reason_and_every_remedy():
    """What the tests above say is worth what the states show."""
    explanations = [explained(a_waiting_world(seed)) for seed in range(600)]
    reasons = Counter(explanation.reason for explanation in explanations)
    assert set(reasons) == set(UnitWaitReason)
    remedies = Counter(
        kind_of(remedy) for explanation in explanations for remedy in explanation.remedies
    )
    kinds = {"AskFewerUnits", "ReservationsExpire", "UsePool", "DevicesJoin", "PodsEnd"}
    assert set(remedies) == kinds | {cause.value for cause in WithheldBy}
    assert min(remedies.values()) >= 5, remedies


def waits(states: States) -> States:
    return [state for state in states if does_wait(state[1], state[2])]


def does_wait(world: WaitingWorld, explanation: Explanation) -> bool:
    """Whether units keep the pod waiting, so that remedies are due."""
    return explanation.reason not in HAVE_UNITS and not world.pod.is_gated


def of_kind(explanation: Explanation, kind: type[Kind]) -> list[Kind]:
    return [remedy for remedy in explanation.remedies if isinstance(remedy, kind)]


def is_least(seed: int, named: Sequence[Iterable[str]], sets: Sequence[Iterable[str]]) -> None:
    """Assert that a set is named where one suffices, and that it needs all of its members."""
    assert len(named) == bool(sets), seed
    for item in map(set, named):
        assert item in map(set, sets), seed
        assert not any(set(set_) < item for set_ in sets), seed


def kind_of(remedy: AnyRemedy) -> str:
    return remedy.cause.value if isinstance(remedy, UnitsReturn) else type(remedy).__name__


def fingerprint(state: AllocationState) -> object:
    index = state.index
    return (
        index.generation,
        sorted(reservation.id for reservation in state.reader.ledger.all()),
        {pool.name: dict(index.state(pool.name).nodes()) for pool in index.pools()},
        sorted(pod.uid for pod in state.reader.pods.all()),
        {
            device.facts.name: (device.facts, device.observed, device.assumed)
            for device in index.devices.all()
        },
    )
