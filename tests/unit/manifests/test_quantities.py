"""A quantity of our kinds may be a number: `cpu: 8` is how people write it."""

import re
from collections.abc import Iterator
from typing import Any

from manifests.caches.crds import build_cache_crds
from manifests.install.crds import build_crds

NUMBERS = ("8", "16")
WORDS = ("x", "gpu")


def parts_of(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in (schema.get("properties") or {}).items():
        yield from parts_of(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(part := schema.get(key), dict):
            yield from parts_of(part, f"{path}[]")


def parts_of_all_kinds() -> Iterator[tuple[str, dict[str, Any]]]:
    for definition in (*build_crds(), *build_cache_crds()):
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            yield from parts_of(schema, definition["spec"]["names"]["kind"])


def is_of_numbers(pattern: str) -> bool:
    return all(re.search(pattern, text) for text in NUMBERS) and not any(
        re.search(pattern, text) for text in WORDS
    )


def test_each_text_that_is_a_number_may_be_one():
    numeric = {
        path: schema.get("type")
        for path, schema in parts_of_all_kinds()
        if (pattern := schema.get("pattern")) and is_of_numbers(pattern)
    }
    assert "GPUPool.spec.autoscaling.shapes[].cpu" in numeric
    assert [path for path, type_ in numeric.items() if type_ == "string"] == []
