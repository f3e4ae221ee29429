"""Reasons are a closed, readable set; a node's refusal is one exact line."""

import re
from enum import Enum

import pytest

from api.names import PoolName
from pool.refusal import NodeReason, NodeRefusal
from telemetry.conditions import PoolCondition, PoolPhase, PoolReady
from telemetry.reasons import EventReason, RefusalReason, node_refusal_text

KINDS = (EventReason, RefusalReason, PoolCondition, PoolReady, PoolPhase, NodeReason)
TEXTS = {
    NodeReason.UNKNOWN_NODE: "GPU pool whole: node is not known to the GPU control plane",
    NodeReason.NODE_NOT_IN_POOL: "GPU pool whole: node has no device of the pool",
    NodeReason.NODE_TOO_SMALL: "GPU pool whole: 9 requested, node has 8, 2 of them unhealthy",
    NodeReason.INSUFFICIENT_UNITS: (
        "GPU pool whole: 9 requested, 1 free (3 used, 2 reserved, 2 unhealthy of 8)"
    ),
    NodeReason.UNACCOUNTED_PODS: "GPU pool whole: node runs a pod with unknown devices",
    NodeReason.POOL_CHANGING: (
        "GPU pool whole: pool is in maintenance and takes no pods until its new allocation is in effect"
        " (3 of 8 used on this node)"
    ),
    NodeReason.POOL_ENDING: "GPU pool whole: pool is being deleted",
}


@pytest.mark.parametrize("kind", KINDS)
def test_reasons_are_pascal_case(kind: type[Enum]):
    assert [one.value for one in kind if not re.fullmatch("([A-Z]+[a-z]*)+", one.value)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_reasons_of_a_kind_are_the_same_word(kind: type[Enum]):
    # An enum takes a second member of the same value for an alias, and hides it from iteration.
    assert len(kind.__members__) == len(list(kind))


def test_event_reasons_fit_into_an_event():
    assert all(len(one.value) <= 128 for one in EventReason)


@pytest.mark.parametrize("reason", NodeReason)
def test_every_refusal_of_a_node_is_one_exact_line(reason: NodeReason):
    refusal = NodeRefusal(reason=reason, wanted=9, free=1, reserved=2, used=3, unhealthy=2, total=8)
    assert node_refusal_text(refusal, PoolName("whole")) == TEXTS[reason]


def test_figures_that_are_zero_are_left_out():
    small = NodeRefusal(reason=NodeReason.NODE_TOO_SMALL, wanted=9, total=8)
    full = NodeRefusal(reason=NodeReason.INSUFFICIENT_UNITS, wanted=2, free=0, used=8, total=8)
    pool = PoolName("whole")
    assert node_refusal_text(small, pool) == "GPU pool whole: 9 requested, node has 8"
    assert node_refusal_text(full, pool) == "GPU pool whole: 2 requested, 0 free (8 used of 8)"
