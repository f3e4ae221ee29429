"""The oracle finds a device in two pools and one that is taken from under a pod, whatever comes first."""

import json

import pytest

from tests.fault.oracle import TAKEN_AWAY, TWO_POOLS, Oracle
from tests.fault.sights import Device, Pod, Sight, Thing


class Story:
    """Shows an oracle what happened at which version, in the order in which it is told."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.seen: list[str] = []

    def show(
        self, version: int, thing: Thing, *, is_gone: bool = False, is_exact: bool = True
    ) -> None:
        sight = Sight(at=0, version=version, is_gone=is_gone, thing=thing, is_exact=is_exact)
        self.seen += [one.rule for one in self.oracle.see(sight) if one.rule == TWO_POOLS]

    def in_the_end(self) -> list[str]:
        return [one.rule for one in self.oracle.expectations() if one.rule == TAKEN_AWAY]


def a_device(pool: str, uuid: str = "GPU-0") -> Device:
    return Device(name="n-0", node="n", uuid=uuid, pool=pool, assigned=pool)


def a_pod(pool: str = "a", phase: str = "Running", unit: str = "GPU-0") -> Pod:
    return Pod(
        name="p",
        uid="u",
        pool=pool,
        asked={"c": 1},
        node="n",
        phase=phase,
        devices=json.dumps({"c": [unit]}),
    )


@pytest.fixture
def story() -> Story:
    found = Story()
    found.show(10, a_device("a"))
    return found


def test_device_that_is_free_before_it_is_in_another_pool_is_all_right(story):
    story.show(11, a_device(""))
    story.show(12, a_device("b"))

    assert (story.seen, story.in_the_end()) == ([], [])


def test_device_that_goes_from_pool_to_pool_is_found(story):
    """Lesson 7."""
    story.show(11, a_device("b"))

    assert story.seen == [TWO_POOLS]


def test_device_of_which_a_gap_hides_the_way_is_not_judged(story):
    story.show(20, a_device("b"), is_exact=False)

    assert story.seen == []


def test_another_device_in_the_slot_comes_from_nowhere(story):
    story.show(11, a_device("b", uuid="GPU-1"))

    assert story.seen == []


@pytest.mark.parametrize("unit", ["GPU-0", "GPU-0::3"])
def test_device_that_is_released_under_a_pod_is_found(story, unit):
    """Lesson 7."""
    story.show(11, a_pod(unit=unit))
    story.show(12, a_device(""))

    assert story.in_the_end() == [TAKEN_AWAY]


def test_device_that_is_seen_to_leave_before_the_pod_is_seen_to_end_is_all_right(story):
    story.show(11, a_pod())
    story.show(13, a_device(""))
    assert story.in_the_end() == [TAKEN_AWAY]
    story.show(12, a_pod(phase="Succeeded"))

    assert story.in_the_end() == []


def test_pod_that_ended_after_its_device_had_left_is_found(story):
    story.show(11, a_pod())
    story.show(13, a_pod(), is_gone=True)
    story.show(12, a_device(""))
    story.show(14, a_device("b"))

    assert story.in_the_end() == [TAKEN_AWAY]


def test_pod_that_is_bound_to_a_device_that_has_left_is_found(story):
    story.show(11, a_device(""))
    story.show(12, a_pod())

    assert story.in_the_end() == [TAKEN_AWAY]


def test_pod_of_another_pool_on_the_device_is_found(story):
    story.show(11, a_pod(pool="b"))

    assert story.in_the_end() == [TAKEN_AWAY]


def test_end_that_a_gap_hides_is_taken_to_be_early(story):
    story.show(11, a_pod())
    story.show(13, a_device(""))
    story.show(20, a_pod(), is_gone=True, is_exact=False)

    assert story.in_the_end() == []


def test_device_that_is_gone_under_a_pod_is_the_operators_doing(story):
    story.show(11, a_pod())
    story.show(12, a_device("a"), is_gone=True)

    assert (story.seen, story.in_the_end()) == ([], [])
