"""The condition of a pod that waits: what is written over what the pod shows, and its form in the API."""

import msgspec
import pytest

from api.foreign.core import Pod
from api.names import RESOURCE_PREFIX, UNITS_CONDITION
from pool.facts import pod_facts
from pool.model import PodPhase, UnitsCondition
from pool.what_if.explanation import UnitWaitReason
from reconciler.pod.wait_explanation import condition_body, next_condition, satisfied
from telemetry.conditions import PodUnitsAvailable
from tests.support.builders import a_pod_facts, at

EXHAUSTED = UnitWaitReason.UNITS_EXHAUSTED
CURRENT = UnitsCondition(
    False, "UnitsExhausted", "0 of 8", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z"
)
NOW = at(0).utc
NOW_TEXT = "2026-01-01T00:00:00Z"


def test_the_first_condition_has_the_time_of_its_write():
    assert next_condition(
        None, is_true=False, reason=EXHAUSTED, message="0 of 8", now=NOW
    ) == UnitsCondition(False, "UnitsExhausted", "0 of 8", NOW_TEXT, NOW_TEXT)


def test_what_the_pod_says_already_is_not_written():
    assert (
        next_condition(CURRENT, is_true=False, reason=EXHAUSTED, message="0 of 8", now=NOW) is None
    )


@pytest.mark.parametrize(
    ("reason", "message"),
    [(EXHAUSTED, "1 of 8"), (UnitWaitReason.UNITS_FRAGMENTED, "0 of 8")],
)
def test_new_figures_and_a_new_reason_are_no_transition(reason, message):
    found = next_condition(CURRENT, is_true=False, reason=reason, message=message, now=NOW)
    assert found == UnitsCondition(False, reason.value, message, CURRENT.transitioned, NOW_TEXT)


def test_the_end_of_the_wait_is_a_transition_and_is_written_once():
    reserved, allocated = PodUnitsAvailable.RESERVED, PodUnitsAvailable.ALLOCATED
    found = next_condition(CURRENT, is_true=True, reason=reserved, message="on n1", now=NOW)
    assert found == UnitsCondition(True, "UnitsReserved", "on n1", NOW_TEXT, NOW_TEXT)
    assert next_condition(found, is_true=True, reason=allocated, message="on n1", now=NOW) is None


def test_a_message_is_cut_and_what_was_cut_is_not_written_again():
    found = next_condition(None, is_true=False, reason=EXHAUSTED, message="x " * 900, now=NOW)
    assert found is not None
    assert len(found.message) <= 1024
    assert (
        next_condition(found, is_true=False, reason=EXHAUSTED, message="x " * 900, now=NOW) is None
    )


def a_stored_pod(condition: UnitsCondition, **spec: object) -> Pod:
    limits = {f"{RESOURCE_PREFIX}whole": "1"}
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": limits}}], **spec},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False"}, condition_body(condition)],
        },
    }
    return msgspec.convert(raw, Pod)


@pytest.mark.parametrize("is_true", [False, True])
def test_what_is_written_is_read_back(is_true):
    written = UnitsCondition(is_true, "R", "m", "2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z")
    facts = pod_facts(a_stored_pod(written))
    assert facts is not None
    assert facts.units_condition == written


def test_a_bound_pod_keeps_only_a_condition_that_is_wrong():
    bound = pod_facts(a_stored_pod(CURRENT, nodeName="n1"))
    right = pod_facts(a_stored_pod(msgspec.structs.replace(CURRENT, is_true=True), nodeName="n1"))
    assert bound is not None
    assert right is not None
    assert (bound.units_condition, right.units_condition) == (CURRENT, None)


def test_conditions_without_times_and_of_others_are_read():
    raw = {"conditions": [{"type": UNITS_CONDITION, "lastProbeTime": None}, {"type": "Ready"}]}
    pod = a_stored_pod(CURRENT)
    facts = pod_facts(msgspec.structs.replace(pod, status=msgspec.convert(raw, type(pod.status))))
    assert facts is not None
    assert facts.units_condition == UnitsCondition(False, "", "", "", "")


def test_a_pod_without_units_is_not_satisfied():
    assert satisfied(a_pod_facts(), None) is None
    assert satisfied(a_pod_facts(phase=PodPhase.ENDED), None) is None
    found = satisfied(a_pod_facts(phase=PodPhase.BOUND, node="n1"), None)
    assert found is not None
    assert found[0] is PodUnitsAvailable.ALLOCATED
