"""ClusterPolicy and NVIDIADriver have the schema that NVIDIA publishes; each difference is named, with its reason."""

from collections.abc import Iterator
from typing import Any

import pytest

from api.crd.openapi import crd_schema
from tests.support.nvidia.operator_kinds import MODELS, OURS, published, schema_of

Schema = dict[str, Any]

LATE = "rules that say early what the operator says late: tests/support/nvidia/stricter_rules.py"
OWN = "beyond upstream: readiness by state, and upgrades by node"
DIFFERENCES = {
    "ClusterPolicy": {
        ".spec.daemonsets.rollingUpdate.maxUnavailable pattern": LATE,
        ".spec.driver.upgradePolicy.maxUnavailable minimum": LATE,
        ".spec.driver.upgradePolicy.maxUnavailable pattern": LATE,
        ".status.conditions x-kubernetes-list-type": LATE,
        ".status.conditions x-kubernetes-list-map-keys": LATE,
        ".status.states": OWN,
        ".status.upgrade": OWN,
    },
    "NVIDIADriver": {
        ".spec.upgradePolicy.maxUnavailable minimum": LATE,
        ".spec.upgradePolicy.maxUnavailable pattern": LATE,
        ".status.conditions x-kubernetes-list-type": LATE,
        ".status.conditions x-kubernetes-list-map-keys": LATE,
        ".status.states": OWN,
        ".status.upgrade": OWN,
    },
}
RULES_OF_OURS = {
    "ClusterPolicy": {
        "": 2,
        "ccManager": 1,
        "dcgm": 1,
        "dcgmExporter": 1,
        "devicePlugin": 1,
        "driver": 3,
        "gdrcopy": 1,
        "gds": 1,
        "gfd": 1,
        "kataSandboxDevicePlugin": 1,
        "migManager": 1,
        "nodeStatusExporter": 1,
        "sandboxDevicePlugin": 1,
        "toolkit": 1,
        "validator": 1,
        "vfioManager": 2,
        "vgpuDeviceManager": 1,
        "vgpuManager": 2,
    },
    "NVIDIADriver": {"": 6, "gdrcopy": 1, "gds": 1},
}
"""Part of the spec -> number of CEL rules beyond upstream's."""
SORTED = ("enum", "required")
NESTED = ("properties", "items", "additionalProperties", "x-kubernetes-validations")


def comparable(schema: Schema) -> Schema:
    """Return the keywords that decide what is accepted, and what becomes of it; a list is atomic if nothing is said."""
    found = {key: value for key, value in schema.items() if key not in {"description", *NESTED}}
    if found.get("x-kubernetes-list-type") == "atomic":
        del found["x-kubernetes-list-type"]
    return found | {key: sorted(found[key]) for key in SORTED if key in found}


def differences(theirs: Schema, ours: Schema, path: str = "") -> Iterator[str]:
    """Yield where and in which keyword the schemas differ, rules apart."""
    one, other = comparable(theirs), comparable(ours)
    yield from (
        f"{path} {key}" for key in one.keys() | other.keys() if one.get(key) != other.get(key)
    )
    fields, our_fields = theirs.get("properties", {}), ours.get("properties", {})
    yield from (f"{path}.{name}" for name in fields.keys() ^ our_fields.keys())
    for name in fields.keys() & our_fields.keys():
        yield from differences(fields[name], our_fields[name], f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        inner, our_inner = theirs.get(keyword), ours.get(keyword)
        if isinstance(inner, dict) and isinstance(our_inner, dict):
            yield from differences(inner, our_inner, f"{path}[]")
        elif inner != our_inner:
            yield f"{path} {keyword}"


def rules(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["rule"]
    for name, inner in schema.get("properties", {}).items():
        yield from rules(inner, f"{path}.{name}")


@pytest.mark.parametrize("kind", MODELS)
def test_schema_is_the_published_one_but_for_differences_with_a_reason(kind):
    """Types, formats, limits, defaults, required fields, quantities, unknown fields, and merges."""
    found = sorted(differences(schema_of(published(kind)), crd_schema(MODELS[kind])))
    assert found == sorted(DIFFERENCES[kind])


@pytest.mark.parametrize("kind", MODELS)
def test_no_rule_of_the_published_schema_is_missing(kind):
    theirs = set(rules(schema_of(published(kind))))
    ours = list(rules(crd_schema(MODELS[kind])))
    assert theirs <= set(ours)
    beyond: dict[str, int] = {}
    for path, _ in sorted(set(ours) - theirs):
        name = path.removeprefix(".spec").removeprefix(".")
        beyond[name] = beyond.get(name, 0) + 1
    assert beyond == RULES_OF_OURS[kind]
    assert len(ours) == len(set(ours))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        pytest.param({"default": "x"}, ".a default", id="default"),
        pytest.param({"enum": ["x"]}, ".a enum", id="enum"),
        pytest.param({"nullable": True}, ".a nullable", id="nullable"),
        pytest.param({"properties": {"b": {}}}, ".a.b", id="field"),
        pytest.param({"items": {"type": "string"}}, ".a items", id="items"),
        pytest.param(
            {"x-kubernetes-preserve-unknown-fields": True},
            ".a x-kubernetes-preserve-unknown-fields",
            id="unknown fields",
        ),
    ],
)
def test_a_difference_is_found(change, difference):
    plain = {"type": "string", "description": "A text."}
    theirs = {"properties": {"a": plain}}
    assert list(differences(theirs, {"properties": {"a": {"type": "string"}}})) == []
    assert list(differences(theirs, {"properties": {"a": plain | change}})) == [difference]


@pytest.mark.parametrize("kind", MODELS)
def test_names_scope_and_columns_are_the_published_ones(kind):
    """Age is shown as an age; further columns are wide."""
    ours, theirs = OURS[kind]["spec"], published(kind)["spec"]
    assert OURS[kind]["metadata"]["name"] == published(kind)["metadata"]["name"]
    assert (ours["group"], ours["scope"]) == (theirs["group"], theirs["scope"])
    assert ours["names"] == theirs["names"]
    [version], [their_version] = ours["versions"], theirs["versions"]
    assert (version["name"], version["subresources"]) == (
        their_version["name"],
        their_version["subresources"],
    )
    current = [
        [(column["name"], column["jsonPath"]) for column in columns if not column.get("priority")]
        for columns in (
            version["additionalPrinterColumns"],
            their_version["additionalPrinterColumns"],
        )
    ]
    assert current[0] == current[1]
    wide = [
        column["name"] for column in version["additionalPrinterColumns"] if column.get("priority")
    ]
    assert wide == ["Not-Ready", "Missing", "Why"]


def test_spec_of_a_policy_has_the_26_keys_of_upstream():
    spec = crd_schema(MODELS["ClusterPolicy"])["properties"]["spec"]
    assert len(spec["properties"]) == 26
    assert len(spec["required"]) == 9
