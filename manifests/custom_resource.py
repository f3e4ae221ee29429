"""One CustomResourceDefinition: the schema from `api`, names and columns from the caller."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.crd.openapi import crd_schema
from api.names import GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.meta import Model


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    is_wide: bool = False

    def build(self) -> dict[str, Any]:
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.is_wide:
            column["priority"] = 1
        return column


AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")


def condition_column(
    column: str, condition: str, *, is_wide: bool = False, field: str = "status"
) -> Column:
    path = f'.status.conditions[?(@.type=="{condition}")].{field}'
    return Column(name=column, path=path, is_wide=is_wide)


def figure_column(column: str, path: str, description: str, *, is_wide: bool = False) -> Column:
    return Column(name=column, path=path, type="integer", description=description, is_wide=is_wide)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CustomResource:
    """A kind, as the API server serves it."""

    model: "type[Model]"
    plural: str
    columns: tuple[Column, ...]
    group: str = GROUP
    version: str = VERSION
    is_namespaced: bool = False
    short_names: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("gpu",)

    def build(self) -> dict[str, Any]:
        kind = self.model.__name__
        schema = msgspec.json.decode(_encoded_schema(self.model))
        has_status = "status" in schema["properties"]
        version: dict[str, Any] = {
            "name": self.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            **({"subresources": {"status": {}}} if has_status else {}),
            "additionalPrinterColumns": [column.build() for column in self.columns],
        }
        if self.selectable:
            version["selectableFields"] = [{"jsonPath": path} for path in self.selectable]
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": "Namespaced" if self.is_namespaced else "Cluster",
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": self.plural,
                    "singular": kind.lower(),
                    **({"shortNames": [*self.short_names]} if self.short_names else {}),
                    **({"categories": [*self.categories]} if self.categories else {}),
                },
                "versions": [version],
            },
        }


@functools.cache
def _encoded_schema(model: "type[Model]") -> bytes:
    """Return the schema, which takes a hundred times as long to make as to decode."""
    return msgspec.json.encode(crd_schema(model))


def build_definitions(
    kinds: "Iterable[CustomResource]", annotations: "Mapping[str, str] | None" = None
) -> list[dict[str, Any]]:
    definitions = [kind.build() for kind in kinds]
    if annotations:
        for definition in definitions:
            definition["metadata"]["annotations"] = dict(annotations)
    return definitions
