"""Facts of definitions that other projects publish: whole, small, and from a named commit."""

import json
from typing import Any

from tests.support.published_crds import published_crd, published_sample
from tests.support.published_facts import (
    FOLDER,
    SOURCES,
    definition_of,
    facts_of,
    sample_of,
    values_of,
)

MOST_BYTES = 300_000
STORED = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.iterdir()}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "description": "A text for people.",
            "properties": {
                "description": {"type": "string", "default": "a", "pattern": "[a-z]"},
                "type": {"enum": ["A", "B"], "type": "string"},
                "any": {"x-kubernetes-preserve-unknown-fields": True},
                "lists": {
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                },
                "maps": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"a": {"type": "boolean"}},
                    },
                },
            },
        }
    },
}


def without_texts(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_texts(value)
        for key, value in schema.items()
        if key != "description" or isinstance(value, dict)
    }


def test_a_definition_comes_back_from_its_facts_without_texts():
    facts = facts_of(published_crd("nodefeatures.nfd.k8s-sigs.io"))
    definition = definition_of(facts)
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = SCHEMA
    again = definition_of(json.loads(json.dumps(facts_of(definition))))
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = without_texts(SCHEMA)
    assert again == definition


def test_an_object_comes_back_from_its_values():
    spec = {"a": {"b": "", "c": {}}, "d": [{"e": 1}], "f": None}
    body = {"apiVersion": "g.example/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec}
    facts = {"group": "g.example", "version": "v1", "names": {"kind": "K"}}
    assert sample_of(facts | {"sample": values_of(body)}) == body


def test_facts_name_their_source_and_are_small():
    assert STORED.keys() == {name for source in SOURCES for name in source.files}
    for source in SOURCES:
        for name, file in source.files.items():
            assert STORED[name]["source"] == f"{source.repository}/blob/{source.commit}/{file}"
            assert STORED[name]["source version"] == source.version
            assert published_crd(name)["metadata"]["name"] == name
        for name in source.samples:
            assert published_sample(name)["kind"] == STORED[name]["names"]["kind"]
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES
