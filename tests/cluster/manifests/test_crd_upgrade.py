"""Objects that were stored under the first CRDs keep every field under those of today.

`tests/data/crds/first.yaml` has the CRDs of the first installations. Objects with every field are
generated from its schemas, so that none is forgotten.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.install.crds import build_crds
from tests.cluster.environment import client, definitions, polling

FIRST = Path(__file__).parents[2] / "data" / "crds" / "first.yaml"
API = "/apis/gpu.deckhouse.io/v1alpha1"
Json = dict[str, Any]

EXAMPLES = {
    "^gpu[.]deckhouse[.]io/": "gpu.deckhouse.io/first-full",
    "^[0-9a-fA-F]{4}$": "10de",
    r"^[0-9]+g\.": "1g.10gb",
    r"^[0-9]+\.[0-9]+$": "8.0",
    "^([0-9]+(h|m|s))+$": "30m",
    "^[^/]+/[^/]+$": "ml/trainer",
}
"""Beginning of a pattern -> a text that it accepts; others accept a word."""
EXCLUSIVE = {
    "Exclusive": ("migProfile", "slicesPerDevice"),
    "MIG": ("slicesPerDevice",),
    "TimeSlice": ("migProfile",),
}
"""Mode of a pool -> the fields of its allocation that it may not have."""


def first_crds() -> list[Json]:
    return list(yaml.safe_load_all(FIRST.read_text(encoding="utf-8")))


def schema_of(crd: Json) -> Json:
    (version,) = crd["spec"]["versions"]
    schema: Json = version["schema"]["openAPIV3Schema"]
    return schema


def example(schema: Json) -> Any:
    """Return a value with every field of a schema."""
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {key: example(item) for key, item in schema["properties"].items()}
        case "object":
            return {"example.com/key": "value"} if "additionalProperties" in schema else {}
        case "array":
            return [example(schema["items"])]
        case "integer":
            return max(schema.get("minimum", 1), 1) + 1
        case "boolean":
            # Not the default, which could come from the schema of today.
            return not schema.get("default", False)
        case _:
            return _text(schema)


def _text(schema: Json) -> str:
    if "enum" in schema:
        return str(schema["enum"][-1])
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    pattern = schema.get("pattern", "")
    for beginning, text in EXAMPLES.items():
        if pattern.startswith(beginning):
            assert re.match(pattern, text), (pattern, text)
            return text
    assert not pattern or re.match(pattern, "word"), pattern
    return "word"


def pools(crd: Json) -> Iterator[Json]:
    """Yield a pool for each mode; together they have every field."""
    for mode, absent in EXCLUSIVE.items():
        pool = example(schema_of(crd))
        for key in absent:
            del pool["spec"]["allocation"][key]
        pool["spec"]["allocation"]["mode"] = mode
        # A label selector's expression with values, and conditions as the API has them.
        for selector in (
            pool["spec"]["nodeSelector"],
            pool["spec"]["assignment"]["autoApproveSelector"],
            pool["spec"]["access"]["namespaceSelector"],
        ):
            selector["matchExpressions"][0]["operator"] = "In"
        yield _named(crd, pool, f"first-{mode.lower()}")


def _named(crd: Json, body: Json, name: str) -> Json:
    identity = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": crd["spec"]["names"]["kind"],
        "metadata": {"name": name},
    }
    return body | identity


def objects() -> Iterator[tuple[str, Json]]:
    """Yield collection and object, of every kind."""
    for crd in first_crds():
        path = f"{API}/{crd['spec']['names']['plural']}"
        if crd["spec"]["names"]["kind"] == "GPUPool":
            for pool in pools(crd):
                yield path, pool
        else:
            yield path, _named(crd, example(schema_of(crd)), "first-full")


def leaves(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{at}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, f"{at}[]")
    else:
        yield at


def schema_leaves(schema: Json, at: str = "") -> Iterator[str]:
    if "properties" in schema:
        for key, item in schema["properties"].items():
            yield from schema_leaves(item, f"{at}.{key}")
    elif schema.get("type") == "array":
        yield from schema_leaves(schema["items"], f"{at}[]")
    elif schema.get("type") != "object":
        yield at


def lost(before: Any, after: Any, at: str = "") -> list[str]:
    """Return the places where something is missing or other than before; new fields are none."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            place
            for key, item in before.items()
            for place in (
                lost(item, after[key], f"{at}.{key}") if key in after else [f"{at}.{key}"]
            )
        ]
    return [] if before == after else [at]


def test_examples_have_every_field_of_the_first_schemas():
    for crd in first_crds():
        path = f"{API}/{crd['spec']['names']['plural']}"
        found = {leaf for where, body in objects() if where == path for leaf in leaves(body)}
        schema = schema_of(crd)
        missing = {
            leaf
            for part in ("spec", "status")
            if part in schema["properties"]
            for leaf in schema_leaves(schema["properties"][part], f".{part}")
        } - found
        assert missing == set()


async def apply(kubectl, api: client.ApiClient, crds: list[Json]) -> None:
    """Apply the definitions, and wait until the API server validates by them."""
    await kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(crds))
    await definitions.until_served(kubectl, crds)

    async def is_in_force() -> bool:
        served = (await api.get("/openapi/v3/apis/gpu.deckhouse.io/v1alpha1"))["components"]
        for crd in crds:
            kind = crd["spec"]["names"]["kind"]
            (schema,) = (
                item for key, item in served["schemas"].items() if key.endswith(f".{kind}")
            )
            for part in ("spec", "status"):
                expected = schema_of(crd)["properties"].get(part, {}).get("properties", {})
                current = schema["properties"].get(part, {}).get("properties", {})
                assert expected.keys() == current.keys(), kind
            assert schema.get("description") == schema_of(crd).get("description"), kind
        return True

    await polling.eventually(is_in_force, what="the schemas", every=0.5)


@pytest.fixture
async def first_installed(installed, kubectl, api):
    """The first definitions instead of today's, which are there again at the end."""
    today = build_crds()
    await apply(kubectl, api, first_crds())
    yield
    for path, body in objects():
        await api.delete(f"{path}/{body['metadata']['name']}")
    await apply(kubectl, api, today)


async def test_objects_of_the_first_definitions_keep_every_field(first_installed, kubectl, api):
    stored: dict[str, Json] = {}
    for path, body in objects():
        await api.create(path, body, fieldValidation="Strict")
        place = f"{path}/{body['metadata']['name']}"
        if "status" in body:
            await api.patch(f"{place}/status", {"status": body["status"]})
        stored[place] = await api.get(place)
        parts = {key: body[key] for key in ("spec", "status") if key in body}
        assert lost(parts, stored[place]) == [], "the first definitions themselves"

    await apply(kubectl, api, build_crds())
    for place, before in stored.items():
        parts = {key: before[key] for key in ("spec", "status") if key in before}
        assert lost(parts, await api.get(place)) == []
        # A write stores the object again, and is validated by the rules of today.
        await api.patch(place, {"metadata": {"annotations": {"example.com/touched": "yes"}}})
        if "status" in before:
            await api.patch(f"{place}/status", {"status": {"observedGeneration": 9}})
            parts["status"] = json.loads(json.dumps(parts["status"])) | (
                {"observedGeneration": 9} if "observedGeneration" in parts["status"] else {}
            )
        assert lost(parts, await api.get(place)) == []
    for crd in build_crds():
        definition = await api.get(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        )
        assert definition["status"]["storedVersions"] == ["v1alpha1"]
