"""The columns of `kubectl get`: what they read exists, and the page explains each of them in order."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from manifests.install.crds import build_crds

PAGE: Final = Path(__file__).parents[3] / "docs" / "operations.md"
ROW: Final = re.compile(r"^\| (GPU\w+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
CRDS: Final = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in build_crds()}
CONDITION: Final = re.compile(r'^[.]status[.]conditions\[[?]\(@[.]type=="\w+"\)\][.](\w+)$')


def columns(kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = CRDS[kind]["versions"][0]["additionalPrinterColumns"]
    return [column for column in found if column["name"] != "Age"]


def field_at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.removeprefix(".").split("."):
        schema = schema["properties"][name]
    return schema


def explained(kind: str) -> Iterator[tuple[str, bool]]:
    """Yield the columns of a kind that the page explains, and whether it calls them wide."""
    for of, names in ROW.findall(PAGE.read_text(encoding="utf-8")):
        if of == kind:
            is_wide = names.endswith(" (wide)")
            yield from ((name, is_wide) for name in names.removesuffix(" (wide)").split(", "))


@pytest.mark.parametrize("kind", CRDS)
def test_the_page_explains_every_column_and_no_other(kind: str) -> None:
    current = [(column["name"], column.get("priority", 0) == 1) for column in columns(kind)]
    assert list(explained(kind)) == current


@pytest.mark.parametrize("kind", CRDS)
def test_every_column_reads_a_field_of_its_type(kind: str) -> None:
    schema = CRDS[kind]["versions"][0]["schema"]["openAPIV3Schema"]
    for column in columns(kind):
        path = column["jsonPath"]
        condition = CONDITION.match(path)
        if condition is not None:
            items = field_at(schema, ".status.conditions")["items"]
            assert items["properties"][condition[1]]["type"] == column["type"] == "string"
        elif not path.startswith(".metadata."):
            field = field_at(schema, path)
            kind_of_field = "date" if field.get("format") == "date-time" else field["type"]
            assert kind_of_field == column["type"], path


def test_users_see_no_internal_kind_in_their_category() -> None:
    listed = {kind for kind, spec in CRDS.items() if "gpu" in spec["names"].get("categories", ())}
    assert listed == {"GPUPool", "GPUDevice", "GPUNodeInventory"}
