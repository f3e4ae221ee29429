"""Objects of the next version: their definitions know a value that this version's models refuse."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kube.client import KubeClient
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS

Json = dict[str, Any]

NEXT: Final = "OfTheNextVersion"


READ_AS_TEXT = {("GPUPool", ("status", "phase")), ("GPUDevice", ("status", "repair", "step"))}
"""Enums of kinds whose value of a later version is read and kept as text."""


def enums_of(schema: Json) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all enums of plain fields; those below lists and maps are left out."""
    for name, part in sorted(schema.get("properties", {}).items()):
        if "enum" in part:
            yield (name,)
        for path in enums_of(part):
            yield (name, *path)


def schema_of(crd: Json) -> Json:
    """Return the schema of the first version, to be changed."""
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def body_of(path: tuple[str, ...]) -> Json:
    """Return a patch that gives the field its value of the next version."""
    body: Any = NEXT
    for part in reversed(path):
        body = {part: body}
    found: Json = body
    return found


async def allow_next_version(
    client: KubeClient, crds: Iterable[Json], kind: str, *path: str
) -> None:
    """Let the API server take the value of the next version for a field of the kind."""
    (crd,) = (crd for crd in crds if crd["spec"]["names"]["kind"] == kind)
    part = schema_of(crd)
    for name in path:
        part = part["properties"][name]
    part["enum"].append(NEXT)
    # Rules of a value that is known decide nothing about one that is not.
    await client.merge_patch(
        CUSTOM_RESOURCE_DEFINITIONS, {"spec": crd["spec"]}, name=crd["metadata"]["name"]
    )


def next_version_of(crds: list[Json]) -> list[Json]:
    """Return the definitions with one more field in each spec, and one more value of every enum."""
    for crd in crds:
        schema = schema_of(crd)
        for path in enums_of(schema):
            part = schema
            for name in path:
                part = part["properties"][name]
            part["enum"].append(NEXT)
        spec = schema["properties"].get("spec", {}).get("properties")
        if spec is not None:
            spec["ofTheNextVersion"] = {"type": "string"}
    return crds
