"""Schemas say to the API server what the models say to us, in the words that it takes."""

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, cast

import msgspec
import pytest
from msgspec import Meta

from api.crd.openapi import UnsupportedShapeError, crd_schema
from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import AllocationMode, GPUPool, PoolPhase, Reserve, Strategy, WhenExhausted
from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.meta import Model, SparseModel

OBSERVED = [GPUPool, GPUDevice, GPUNodeInventory]
"""Kinds that may be written empty, and have a status."""
CACHES = [GKMCache, ClusterGKMCache]
CACHE_NODES = [GKMCacheNode, ClusterGKMCacheNode]
KINDS = [*OBSERVED, GPUControlPlaneTerm, *CACHES, *CACHE_NODES, ClusterPolicy, NVIDIADriver]

TAKEN = {
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "items",
    "properties",
    "required",
    "additionalProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "maxItems",
    "maxProperties",
    "minProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "x-kubernetes-preserve-unknown-fields",
}
"""Keywords that the API server neither refuses nor drops."""
INT_OR_STRING = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
"""Exactly these in place of a type: the API server accepts no other `anyOf` with types."""


def every_schema(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, nested in schema.get("properties", {}).items():
        yield from every_schema(nested, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from every_schema(schema[keyword], f"{path}[]")


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    return dict(every_schema(schema))[path]


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_has_a_type_and_only_keywords_that_are_taken(kind):
    for path, schema in every_schema(crd_schema(kind)):
        if "type" not in schema:
            assert {name: schema.pop(name) for name in INT_OR_STRING} == INT_OR_STRING, path
            schema["type"] = "integer or string"
        assert set(schema) <= TAKEN, path


OF_THE_API_SERVER = {".apiVersion", ".kind", ".metadata"}
"""It describes them itself, and refuses a description of `metadata`."""


def undescribed(schema: dict[str, Any]) -> set[str]:
    """Return the paths of fields that `kubectl explain` would show without a word."""
    return {
        path
        for path, nested in every_schema(schema)
        if path and not path.endswith("[]") and not nested.get("description", "").strip()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_description(kind):
    schema = crd_schema(kind)
    assert schema["description"]
    assert undescribed(schema) == OF_THE_API_SERVER


def test_a_field_without_a_description_is_found_at_any_depth():
    class Inner(Model, frozen=True):
        size: int = 0

    class Outer(Model, frozen=True):
        """Described."""

        many: list[Inner] | None = None
        by_name: dict[str, Inner] | None = None

    class Kind(Model, frozen=True):
        spec: Outer = Outer()

    fields = {".spec.many", ".spec.many[].size", ".spec.byName", ".spec.byName[].size"}
    assert undescribed(crd_schema(Kind)) == fields | OF_THE_API_SERVER


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_says_how_it_is_merged(kind):
    for path, schema in every_schema(crd_schema(kind)):
        if schema.get("type") == "array":
            assert schema["x-kubernetes-list-type"] in {"atomic", "map", "set"}, path


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_a_list_are_fields_that_its_items_must_have(kind):
    for path, schema in every_schema(crd_schema(kind)):
        for key in schema.get("x-kubernetes-list-map-keys", []):
            assert key in schema["items"]["required"], path


@pytest.mark.parametrize("kind", CACHES)
def test_cache_without_a_spec_stays_without_one(kind):
    """A default would lack the image, which is required: lesson 17."""
    schema = crd_schema(kind)
    assert "default" not in schema["properties"]["spec"]
    assert schema["properties"]["spec"]["required"] == ["image"]
    assert "required" not in schema


@pytest.mark.parametrize("kind", OBSERVED)
def test_object_read_back_with_the_defaults_is_the_object_that_was_written(kind):
    """Lesson 17: every schema accepts its own defaults."""
    schema = crd_schema(kind)
    filled = {"metadata": {"name": "a"}, "spec": defaults_of(schema["properties"]["spec"])}
    filled["status"] = defaults_of(schema["properties"]["status"])
    assert msgspec.convert(filled, kind) == msgspec.convert({"metadata": {"name": "a"}}, kind)


def defaults_of(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: nested["default"] for name, nested in properties.items() if "default" in nested}


def test_defaults_of_a_pool_are_those_that_an_operator_should_see():
    assert crd_schema(GPUPool)["properties"]["spec"]["default"] == {
        "allocation": {"mode": "Exclusive"},
        "assignment": {"requireAnnotation": True},
        "scheduling": {
            "topologyKey": "topology.kubernetes.io/zone",
            "deviceTopology": "Preferred",
            "reserve": "Node",
        },
        "reservation": {"ttl": "2m", "whenExhausted": "Pend"},
        "maintenance": {"policy": "Wait", "deadline": "1h"},
        "repair": "Off",
        "maxRepairsPerHour": 4,
        "podBaseline": "Off",
    }


def test_status_that_was_never_written_stays_absent():
    assert "default" not in crd_schema(GPUPool)["properties"]["status"]


def test_kind_without_a_status_has_none_in_its_schema():
    schema = crd_schema(GPUControlPlaneTerm)
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert schema["required"] == ["spec"]


@pytest.mark.parametrize("kind", CACHE_NODES)
def test_kind_without_a_spec_has_none_in_its_schema(kind):
    assert set(crd_schema(kind)["properties"]) == {"apiVersion", "kind", "metadata", "status"}


def test_optional_object_is_not_conjured_up():
    assert "default" not in at(crd_schema(GPUPool), ".spec.assignment.autoApproveSelector")
    assert "default" not in at(crd_schema(GPUDevice), ".status.poolRef")


@pytest.mark.parametrize(
    ("path", "enum"),
    [
        (".spec.allocation.mode", AllocationMode),
        (".spec.scheduling.strategy", Strategy),
        (".spec.reservation.whenExhausted", WhenExhausted),
        (".spec.scheduling.reserve", Reserve),
        (".status.phase", PoolPhase),
    ],
)
def test_enum_lists_and_explains_its_members(path, enum):
    schema = at(crd_schema(GPUPool), path)
    assert schema["enum"] == [member.value for member in enum]
    for member in enum:
        assert f"{member.value}: " in schema["description"]


def test_the_model_reads_a_phase_of_a_later_version():
    assert msgspec.convert({"status": {"phase": "Later"}}, GPUPool).status.phase == "Later"


@pytest.mark.parametrize("kind", [*OBSERVED, *CACHES, ClusterPolicy, NVIDIADriver])
def test_a_condition_has_all_that_kubernetes_requires_of_one(kind):
    condition = at(crd_schema(kind), ".status.conditions[]")
    assert condition["required"] == ["lastTransitionTime", "message", "reason", "status", "type"]


def test_label_selector_takes_no_operators_of_node_affinity():
    operator = at(crd_schema(GPUPool), ".spec.nodeSelector.matchExpressions[].operator")
    assert operator["enum"] == ["In", "NotIn", "Exists", "DoesNotExist"]


def test_pci_ids_are_taken_in_any_case():
    """Lesson 16 (the schema takes them; `inventory.assignment.selector` compares them whatever the case)."""
    pattern = at(crd_schema(GPUPool), ".spec.deviceSelector.include.pciVendors[]")["pattern"]
    assert pattern == "^[0-9a-fA-F]{4}$"


def test_taint_needs_key_and_effect():
    taint = at(crd_schema(GPUPool), ".spec.scheduling.taints[]")
    assert taint["required"] == ["effect", "key"]
    assert taint["properties"]["effect"]["enum"] == ["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Colour(Enum):
    RED = "Red"


class Nested(Model, frozen=True):
    """A thing inside."""

    size: int = 3


class Sparse(SparseModel, frozen=True):
    """A part."""

    size: int = 3


class Shapes(Model, frozen=True):
    """Shapes that a model may have."""

    name: Annotated[str, Meta(min_length=1, max_length=9, pattern="^a$")]
    """What it is called."""
    count: Annotated[int, Meta(ge=1, le=5)] | None = None
    either: Colour | Annotated[int, Meta(ge=2)] | None = None
    amount: int | Annotated[str, Meta(pattern="^[0-9]+%$")] = "25%"
    whole: Annotated[int, Meta(extra_json_schema={"format": None})] = 2
    sparse: Sparse = Sparse()
    colour: Colour = Colour.RED
    here: Nested = Nested()
    elsewhere: Nested | None = None
    tags: dict[str, str] | None = None
    numbers: list[int] | None = None


class Holder(Model, frozen=True):
    spec: Shapes
    status: Nested = Nested()


def test_model_becomes_its_schema():
    assert crd_schema(Holder)["properties"]["spec"] == {
        "type": "object",
        "description": "Shapes that a model may have.",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a$"},
            "count": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 5},
            "either": {**INT_OR_STRING, "pattern": "^(Red)$", "minimum": 2},
            "amount": {**INT_OR_STRING, "pattern": "^[0-9]+%$", "default": "25%"},
            "whole": {"type": "integer", "default": 2},
            "sparse": {"type": "object", "description": "A part.", "properties": SIZE},
            "colour": {"type": "string", "enum": ["Red"], "default": "Red"},
            "here": {**NESTED, "default": {"size": 3}},
            "elsewhere": NESTED,
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            "numbers": {
                "type": "array",
                "items": {"type": "integer", "format": "int64"},
                "x-kubernetes-list-type": "set",
            },
        },
    }


SIZE = {"size": {"type": "integer", "format": "int64", "default": 3}}
NESTED = {"type": "object", "description": "A thing inside.", "properties": SIZE}


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(int | bool, id="union of types"),
        pytest.param(Any, id="anything"),
        pytest.param(tuple[int, str], id="tuple of unlike items"),
        pytest.param(float, id="fraction"),
        pytest.param(Annotated[int, Meta(gt=0)], id="bound that is excluded"),
        pytest.param(dict[Annotated[str, Meta(max_length=3)], str], id="limited keys"),
    ],
)
def test_shape_that_cannot_be_said_is_an_error(shape):
    odd = msgspec.defstruct("Odd", [("status", shape)], bases=(Model,), frozen=True)
    with pytest.raises(UnsupportedShapeError):
        crd_schema(cast("type[Model]", odd))
