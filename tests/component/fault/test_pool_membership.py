"""The oracle finds a device in two pools and one that is taken from under a pod, whatever comes first."""

import json

import pytest

from tests.fault.observations import Device, Observation, Pod, Pool, Thing
from tests.fault.oracle import RELEASED, TAKEN_AWAY, TWO_POOLS, Oracle
from tests.fault.rules.pool_membership import CHANGE_LATENESS_S
from tests.fault.upgrades.upgrade_oracle import LATENESS_S


class Story:
    """Shows an oracle what happened at which version, in the order in which it is told."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.seen: list[str] = []
        self.at = 0.0

    def show(
        self, version: int, thing: Thing, *, is_gone: bool = False, is_exact: bool = True
    ) -> None:
        observation = Observation(
            at=self.at, version=version, is_gone=is_gone, thing=thing, is_exact=is_exact
        )
        self.seen += [item.rule for item in self.oracle.see(observation) if item.rule == TWO_POOLS]

    def in_the_end(self, rule: str = TAKEN_AWAY) -> list[str]:
        return [
            expectation.rule
            for expectation in self.oracle.expectations()
            if expectation.rule == rule
        ]


def a_device(pool: str, uuid: str = "GPU-0", assigned: str | None = None) -> Device:
    expected = pool if assigned is None else assigned
    return Device(name="n-0", node="n", uuid=uuid, pool=pool, assigned=expected)


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


@pytest.mark.parametrize("assigned", ["a", ""])
def test_device_that_leaves_a_pool_which_is_there_is_found(story, assigned):
    story.show(10, Pool(name="a"))
    story.at += CHANGE_LATENESS_S + 1
    story.show(11, a_device("", assigned=assigned))

    assert story.in_the_end(RELEASED) == [RELEASED]


def test_device_leaves_a_pool_that_a_restored_etcd_lacked_for_a_while(story):
    story.show(10, Pool(name="a"))
    story.show(11, a_device("", assigned="a"))

    assert story.in_the_end(RELEASED) == []


def test_device_that_is_meant_for_another_pool_leaves_its_own(story):
    story.show(10, Pool(name="a"))
    story.show(11, a_device("a", assigned="b"))
    story.at += LATENESS_S - 1
    story.show(12, a_device("", assigned="a"))

    assert story.in_the_end(RELEASED) == []


@pytest.mark.parametrize("after_s", [0.0, CHANGE_LATENESS_S + 1])
def test_device_leaves_a_pool_that_is_deleted_and_made_again(story, after_s):
    story.show(10, Pool(name="a"))
    story.show(11, Pool(name="a"), is_gone=True)
    story.show(12, Pool(name="a"))
    story.at += after_s
    story.show(13, a_device("", assigned="a"))

    assert story.in_the_end(RELEASED) == ([RELEASED] if after_s else [])


def test_device_that_leaves_before_its_pool_is_seen_to_go_is_all_right(story):
    story.show(10, Pool(name="a"))
    story.show(12, a_device("", assigned="a"))
    story.show(11, Pool(name="a"), is_gone=True)

    assert story.in_the_end(RELEASED) == []
