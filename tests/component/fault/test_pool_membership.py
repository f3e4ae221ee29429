"""The oracle finds a device in two pools and one that is taken from under a pod, whatever comes first."""

import json

import pytest

from tests.fault.observations import Device, Observation, ObservedObject, Pod, Pool
from tests.fault.oracle import RELEASED, TAKEN_AWAY, TWO_POOLS, Oracle
from tests.fault.rules.pool_membership import CHANGE_LATENESS_S
from tests.fault.upgrades.upgrade_oracle import LATENESS_S


class MembershipRun:
    """Feeds an oracle observations in the order of the calls, each with its version."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.violations: list[str] = []
        self.at = 0.0

    def observe(
        self, version: int, subject: ObservedObject, *, is_gone: bool = False, is_exact: bool = True
    ) -> None:
        observation = Observation(
            at=self.at, version=version, is_gone=is_gone, subject=subject, is_exact=is_exact
        )
        self.violations += [
            item.rule for item in self.oracle.observe(observation) if item.rule == TWO_POOLS
        ]

    def unmet(self, rule: str = TAKEN_AWAY) -> list[str]:
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
def run() -> MembershipRun:
    found = MembershipRun()
    found.observe(10, a_device("a"))
    return found


def test_device_that_is_free_before_it_is_in_another_pool_is_all_right(run):
    run.observe(11, a_device(""))
    run.observe(12, a_device("b"))

    assert (run.violations, run.unmet()) == ([], [])


def test_device_that_goes_from_pool_to_pool_is_found(run):
    """Lesson 7."""
    run.observe(11, a_device("b"))

    assert run.violations == [TWO_POOLS]


def test_device_of_which_a_gap_hides_the_way_is_not_judged(run):
    run.observe(20, a_device("b"), is_exact=False)

    assert run.violations == []


def test_another_device_in_the_slot_comes_from_nowhere(run):
    run.observe(11, a_device("b", uuid="GPU-1"))

    assert run.violations == []


@pytest.mark.parametrize("unit", ["GPU-0", "GPU-0::3"])
def test_device_that_is_released_under_a_pod_is_found(run, unit):
    """Lesson 7."""
    run.observe(11, a_pod(unit=unit))
    run.observe(12, a_device(""))

    assert run.unmet() == [TAKEN_AWAY]


def test_device_that_is_seen_to_leave_before_the_pod_is_seen_to_end_is_all_right(run):
    run.observe(11, a_pod())
    run.observe(13, a_device(""))
    assert run.unmet() == [TAKEN_AWAY]
    run.observe(12, a_pod(phase="Succeeded"))

    assert run.unmet() == []


def test_pod_that_ended_after_its_device_had_left_is_found(run):
    run.observe(11, a_pod())
    run.observe(13, a_pod(), is_gone=True)
    run.observe(12, a_device(""))
    run.observe(14, a_device("b"))

    assert run.unmet() == [TAKEN_AWAY]


def test_pod_that_is_bound_to_a_device_that_has_left_is_found(run):
    run.observe(11, a_device(""))
    run.observe(12, a_pod())

    assert run.unmet() == [TAKEN_AWAY]


def test_pod_of_another_pool_on_the_device_is_found(run):
    run.observe(11, a_pod(pool="b"))

    assert run.unmet() == [TAKEN_AWAY]


def test_end_that_a_gap_hides_is_taken_to_be_early(run):
    run.observe(11, a_pod())
    run.observe(13, a_device(""))
    run.observe(20, a_pod(), is_gone=True, is_exact=False)

    assert run.unmet() == []


def test_device_that_is_gone_under_a_pod_is_the_operators_doing(run):
    run.observe(11, a_pod())
    run.observe(12, a_device("a"), is_gone=True)

    assert (run.violations, run.unmet()) == ([], [])


@pytest.mark.parametrize("assigned", ["a", ""])
def test_device_that_leaves_a_pool_which_is_there_is_found(run, assigned):
    run.observe(10, Pool(name="a"))
    run.at += CHANGE_LATENESS_S + 1
    run.observe(11, a_device("", assigned=assigned))

    assert run.unmet(RELEASED) == [RELEASED]


def test_device_leaves_a_pool_that_a_restored_etcd_lacked_for_a_while(run):
    run.observe(10, Pool(name="a"))
    run.observe(11, a_device("", assigned="a"))

    assert run.unmet(RELEASED) == []


def test_device_that_is_meant_for_another_pool_leaves_its_own(run):
    run.observe(10, Pool(name="a"))
    run.observe(11, a_device("a", assigned="b"))
    run.at += LATENESS_S - 1
    run.observe(12, a_device("", assigned="a"))

    assert run.unmet(RELEASED) == []


@pytest.mark.parametrize("after_s", [0.0, CHANGE_LATENESS_S + 1])
def test_device_leaves_a_pool_that_is_deleted_and_made_again(run, after_s):
    run.observe(10, Pool(name="a"))
    run.observe(11, Pool(name="a"), is_gone=True)
    run.observe(12, Pool(name="a"))
    run.at += after_s
    run.observe(13, a_device("", assigned="a"))

    assert run.unmet(RELEASED) == ([RELEASED] if after_s else [])


def test_device_that_leaves_before_its_pool_is_seen_to_go_is_all_right(run):
    run.observe(10, Pool(name="a"))
    run.observe(12, a_device("", assigned="a"))
    run.observe(11, Pool(name="a"), is_gone=True)

    assert run.unmet(RELEASED) == []
