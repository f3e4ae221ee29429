"""Layouts of MIG instances: the counts of every product, and no layout that the device cannot hold."""

import itertools

import pytest

from api.mig.layout import (
    InstancePlacement,
    instances_of,
    nearest_layout,
    placements_of,
    plan_layout,
)
from api.mig.profile import compute_slices
from operands.nvidia.devices.mig_layouts import PRODUCTS
from tests.support.nvml.library import H100_PROFILES

EACH_PRODUCT = pytest.mark.parametrize("product", PRODUCTS)
H100 = tuple((profile.name, profile.capacity) for profile in H100_PROFILES)
A30 = tuple(PRODUCTS["A30"].instances.items())
RTX = tuple(PRODUCTS["RTX PRO 6000"].instances.items())


def are_apart(placements: tuple[InstancePlacement, ...]) -> bool:
    return sum(item.mask.bit_count() for item in placements) == _all(placements).bit_count()


def _all(placements: tuple[InstancePlacement, ...]) -> int:
    taken = 0
    for placement in placements:
        taken |= placement.mask
    return taken


def achievable(capacities: tuple[tuple[str, int], ...]) -> set[tuple[int, ...]]:
    """Every number of instances by profile, found by placing them one after the other in every way."""
    places = [placements_of(name, capacities) for name, _ in capacities]
    found: set[tuple[int, ...]] = set()
    states = {(0, (0,) * len(capacities))}
    while states:
        found |= {counts for _, counts in states}
        states = {
            (taken | place.mask, (*counts[:at], counts[at] + 1, *counts[at + 1 :]))
            for taken, counts in states
            for at, options in enumerate(places)
            if counts[at] < capacities[at][1]
            for place in options
            if not place.mask & taken
        }
    return found


@EACH_PRODUCT
def test_as_many_instances_of_a_profile_fit_as_the_guide_says(product: str):
    capacities = tuple(PRODUCTS[product].instances.items())
    for profile, count in capacities:
        assert len(placements_of(profile, capacities)) >= count
        assert instances_of(((profile, None),), capacities) == (count,)
        assert instances_of(((profile, count),), capacities) == (count,)
        assert instances_of(((profile, count + 1),), capacities) is None


def test_places_are_those_of_the_driver():
    for profile in H100_PROFILES:
        places = placements_of(profile.name, H100)
        assert tuple(place.start for place in places) == profile.starts
        assert {place.size for place in places} == {profile.memory_slices}


@pytest.mark.parametrize(
    "capacities",
    [
        pytest.param(tuple(item for item in H100 if "+" not in item[0]), id="seven slices"),
        pytest.param(tuple(item for item in A30 if "+" not in item[0]), id="four slices"),
    ],
)
def test_a_layout_is_planned_where_the_device_can_hold_it_and_nowhere_else(capacities):
    possible = achievable(capacities)
    most = max(compute_slices(name) or 0 for name, _ in capacities)
    for counts in itertools.product(*(range(capacity + 1) for _, capacity in capacities)):
        numbers = zip(capacities, counts, strict=True)
        shares = tuple((name, count) for (name, _), count in numbers if count)
        planned = plan_layout(shares, capacities) if shares else ()
        assert (planned is not None) == (counts in possible), shares
        if planned:
            assert are_apart(planned)
            assert tuple(sorted(p.profile for p in planned)) == tuple(
                sorted(name for name, count in shares for _ in range(count))
            )
            assert sum(compute_slices(place.profile) or 0 for place in planned) <= most


@pytest.mark.parametrize(
    ("shares", "counts"),
    [
        ((("3g.40gb", 1), ("1g.10gb", None)), (1, 4)),
        ((("1g.10gb", None), ("3g.40gb", 1)), (4, 1)),
        ((("2g.20gb", None), ("1g.20gb", 1)), (3, 1)),
        ((("1g.10gb", None), ("1g.10gb+me", 1)), (6, 1)),
        ((("3g.40gb", 2), ("1g.10gb", None)), None),
        ((("7g.80gb", 1), ("1g.10gb", 1)), None),
        ((("5g.50gb", 1),), None),
    ],
)
def test_the_share_without_a_number_gets_what_is_left(shares, counts):
    assert instances_of(shares, H100) == counts


def test_media_engines_are_there_once():
    assert instances_of((("1g.6gb+me", 1), ("2g.12gb+me", 1)), A30) is None
    assert instances_of((("1g.24gb+me.all", 1), ("1g.24gb", 1)), RTX) is None
    assert instances_of((("1g.24gb+me.all", 1), ("1g.24gb-me", None)), RTX) == (1, 3)


def test_what_is_there_keeps_its_place():
    shares = (("3g.40gb", 1), ("1g.10gb", 4))
    small = InstancePlacement("1g.10gb", 0, 1)
    planned = plan_layout(shares, H100, [small])
    assert planned is not None
    assert are_apart((small, *planned))
    assert len(planned) == 4
    # In both halves, small instances leave no capacity for a large one.
    assert plan_layout(shares, H100, [small, InstancePlacement("1g.10gb", 4, 1)]) is None


@pytest.mark.parametrize(
    ("shares", "nearest"),
    [
        ((("3g.40gb", 3),), "2 of 3g.40gb"),
        ((("4g.40gb", 1), ("3g.40gb", 1), ("1g.10gb", None)), "1 of 3g.40gb, 1 of 4g.40gb"),
        ((("3g.20gb", 1), ("1g.5gb", None)), "1 of 3g.40gb, 4 of 1g.10gb"),
        ((("5g.50gb", 1),), ""),
    ],
)
def test_the_nearest_layout_is_named(shares, nearest):
    assert nearest_layout(shares, H100) == nearest


def test_of_an_unknown_product_as_many_as_its_driver_says_fit():
    capacities = (("1g.32gb", 9), ("9g.288gb", 1))
    assert instances_of((("1g.32gb", None),), capacities) == (9,)
    assert instances_of((("1g.32gb", 2), ("9g.288gb", None)), capacities) is None
