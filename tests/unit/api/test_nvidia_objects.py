"""What NVIDIA's published schema accepts ours accepts, and what it refuses ours refuses, apart from the named rules.

600 seeded objects of the published schema, and 8,000 with `--long`, half of them with one fault, are judged by both
schemas; the second opinion on our rules is in `stricter_rules`. `tests/cluster/manifests/test_nvidia_kinds.py` asks the API server.
"""

import copy
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from simulator.apiserver.errors import InvalidField
from simulator.apiserver.schema.cel_rules import NOT_CHECKED
from simulator.apiserver.schema.structural import StructuralSchema
from tests.support.nvidia.operator_kinds import (
    MODELS,
    OURS,
    published,
    published_objects,
    sample,
    schema_of,
)
from tests.support.nvidia.stricter_rules import RULES
from tests.support.seeded_objects import damages

SEED = 18
OBJECTS, MANY_OBJECTS = 150, 2_000
"""Of each kind, with and without a fault."""
REASONS = ("unknown", "FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueInvalid")
SCHEMAS = {kind: StructuralSchema(schema_of(crd)) for kind, crd in OURS.items()}

Json = dict[str, Any]


def judged(body: Json, schema: StructuralSchema) -> tuple[list[str], list[InvalidField]]:
    """Fill in the defaults, and return unknown fields and refusals, in the order of the API server."""
    unknown = schema.prune(body)
    schema.default(body)
    return unknown, [fault for fault in schema.validate(body, None) if fault != NOT_CHECKED]


def is_named(fault: InvalidField) -> bool:
    return any(rule.says(fault) for rule in RULES)


@pytest.mark.parametrize("kind", MODELS)
def test_what_the_published_schema_accepts_ours_accepts_but_for_the_named_rules(kind, *, is_long):
    count = MANY_OBJECTS if is_long else OBJECTS
    theirs = StructuralSchema(schema_of(published(kind)))
    kept: Counter[str] = Counter()
    for body in published_objects(kind, seed=SEED, count=count):
        ours = copy.deepcopy(body)
        assert judged(body, theirs) == ([], [])
        unknown, refused = judged(ours, SCHEMAS[kind])
        assert ours == body
        assert unknown == []
        broken = [rule.text for rule in RULES if rule.is_broken(body)]
        assert [rule.text for rule in RULES if any(map(rule.says, refused))] == broken
        assert [fault for fault in refused if not is_named(fault)] == []
        msgspec.convert(ours, MODELS[kind])
        kept.update(broken or ["accepted"])
    assert kept["accepted"] > count / 2


@pytest.mark.parametrize("kind", MODELS)
def test_what_the_published_schema_refuses_ours_refuses(kind, *, is_long):
    count = MANY_OBJECTS if is_long else OBJECTS
    schema = schema_of(published(kind))
    theirs = StructuralSchema(schema)
    rng = random.Random(SEED)
    reasons: Counter[str] = Counter()
    for body in published_objects(kind, seed=SEED + 1, count=count):
        parts = {key: body[key] for key in ("spec", "status") if key in body}
        found = list(damages(schema, parts))
        if not found:
            continue
        damaged = rng.choice(found).applied(body)
        ours = copy.deepcopy(damaged)
        unknown, refused = judged(damaged, theirs)
        assert unknown or refused
        our_unknown, our_refused = judged(ours, SCHEMAS[kind])
        assert our_unknown == unknown
        expected = {(fault.field, fault.reason) for fault in refused}
        assert expected <= {(fault.field, fault.reason) for fault in our_refused}
        remaining = [fault for fault in our_refused if (fault.field, fault.reason) not in expected]
        assert [fault for fault in remaining if not is_named(fault)] == []
        reasons.update({fault.reason for fault in refused} or {"unknown"})
    assert [reason for reason in REASONS if not reasons[reason]] == []


def test_every_named_rule_has_a_reason_and_is_kept_and_broken_by_some_object():
    results: dict[str, set[bool]] = {rule.text: set() for rule in RULES if rule.why}
    for kind in MODELS:
        for body in published_objects(kind, seed=SEED, count=250):
            SCHEMAS[kind].default(body)
            for rule in RULES:
                results[rule.text].add(rule.is_broken(body))
    assert [text for text, found in results.items() if found != {True, False}] == []


@pytest.mark.parametrize("kind", MODELS)
def test_published_sample_is_accepted_and_decoded(kind):
    body = sample(kind)
    assert judged(body, SCHEMAS[kind]) == ([], [])
    decoded: Any = msgspec.convert(body, MODELS[kind])
    assert decoded.metadata.name == body["metadata"]["name"]


@pytest.mark.parametrize(
    ("kind", "field", "old", "new"),
    [
        ("NVIDIADriver", "driverType", "gpu", "vgpu"),
        ("NVIDIADriver", "usePrecompiled", False, True),
    ],
)
def test_field_that_cannot_change_does_not(kind, field, old, new):
    before, after = sample(kind), sample(kind)
    before["spec"][field], after["spec"][field] = old, new
    for body in (before, after):
        SCHEMAS[kind].default(body)
    [fault] = SCHEMAS[kind].validate(after, before)
    assert (fault.field, f"{field} cannot change" in fault.message) == (f"spec.{field}", True)
    assert SCHEMAS[kind].validate(after, after) == []
