"""docs/reference/events.md is made from the reasons of Events, refusals and conditions, and their docstrings.

UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/unit/docs   # writes the pages of the reference
"""

import re
import sys
from collections.abc import Iterator
from enum import Enum

import pytest

from admission.decision import CODES
from api import names
from api.crd.docstrings import class_description, descriptions_by_class
from inventory.health.recovery import RecoveryAction
from pool.refusal import NodeReason
from pool.what_if.explanation import UnitWaitReason
from telemetry import conditions
from telemetry.reasons import CacheNodeEvent, EventReason, RefusalReason
from tests.support.reference_page import cell, check_page, code, table
from tests.support.refusal_texts import node_text

HEAD = """\
# Events, refusals and conditions
Made from the reasons in the code by `make golden`. [Troubleshooting](../troubleshooting.md) and [operations](../operations.md#when-something-is-wrong) say what to do.
"""
EVENTS = """
## Events
`kubectl get events -A --field-selector reason=REASON` lists them; the object that an Event is on, and the figures, are in its message. An Event that repeats is merged with the earlier one and counted.
"""
CACHES = """
### Events on nodes of kernel caches
On a GKMCacheNode or ClusterGKMCacheNode; the names are GKM's.
"""
REFUSALS = """
## Refusals at admission
The message of a refused request begins with the reason, and has the figures and the cure. `gpu_refusals_total{reason}` counts them. *Status* is the HTTP status that the client gets.
"""
NODES = """
## Why a node does not take a pod
Texts in the Event `FailedScheduling` of a waiting pod, behind `GPU pool NAME: `; each word in capitals is a figure or a name. With *preemption* the text can end when pods of a lower priority are evicted.
"""
WAITS = """
## Why a pod waits
Reasons of the condition `gpu.deckhouse.io/UnitsAvailable` of a waiting pod, and of `kubectl gpu why`.
"""
CONDITIONS = """
## Conditions
`kubectl describe` shows them with a message. A reason without a description says no more than its name.
"""
ENUMS = [
    value
    for value in vars(conditions).values()
    if isinstance(value, type) and issubclass(value, Enum) and value is not Enum
]
ENUMS.insert(ENUMS.index(conditions.DeviceHealthy) + 1, RecoveryAction)
TYPES = [enum for enum in ENUMS if class_description(enum).startswith("Condition type")]


NAME = re.compile(r"api\.names\.(\w+)")


def name_of(found: re.Match[str]) -> str:
    """Return what a constant of `api.names` says, in place of its name in the code."""
    return str(getattr(names, found[1]))


def described(enum: type[Enum]) -> Iterator[tuple[str, str]]:
    found = descriptions_by_class(sys.modules[enum.__module__]).get(enum.__name__, {})
    for member in enum:
        yield str(member.value), found.get(member.name, "")


def rows_of(enum: type[Enum]) -> Iterator[tuple[str, str]]:
    for value, text in described(enum):
        yield code(value), cell(text)


def refusal_rows() -> Iterator[tuple[str, str, str]]:
    for reason, (value, text) in zip(RefusalReason, described(RefusalReason), strict=True):
        yield code(value), str(CODES[reason]), cell(text)


def node_rows() -> Iterator[tuple[str, str, str]]:
    for reason, (_, text) in zip(NodeReason, described(NodeReason), strict=True):
        current = node_text(reason).removeprefix("GPU pool NAME: ")
        yield cell(current), cell(text), "yes" if reason.is_resolvable else ""


def condition_parts() -> Iterator[str]:
    for enum in sorted(ENUMS, key=TYPES.__contains__, reverse=True):
        title = NAME.sub(name_of, class_description(enum)).partition("\n")[0].partition(";")[0]
        title = title.rstrip(".").replace("`", "")
        head = "condition" if enum in TYPES else "reason"
        yield f"\n### {title}\n\n{table((head, 'meaning'), rows_of(enum))}"


def page() -> str:
    parts = [
        f"{HEAD}{EVENTS}\n{table(('reason', 'meaning'), rows_of(EventReason))}",
        f"{CACHES}\n{table(('reason', 'meaning'), rows_of(CacheNodeEvent))}",
        f"{REFUSALS}\n{table(('reason', 'status', 'meaning'), refusal_rows())}",
        f"{NODES}\n{table(('text', 'meaning', 'preemption'), node_rows())}",
        f"{WAITS}\n{table(('reason', 'meaning'), rows_of(UnitWaitReason))}",
        CONDITIONS,
        *condition_parts(),
    ]
    return "".join(parts)


def test_the_reference_has_every_reason_as_the_code_has_it():
    check_page("events.md", page())


@pytest.mark.parametrize("enum", [EventReason, RefusalReason, CacheNodeEvent, NodeReason, *TYPES])
def test_every_reason_and_every_condition_is_described(enum: type[Enum]):
    assert [value for value, text in described(enum) if not text] == []
