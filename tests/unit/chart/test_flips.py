"""Every value changes something, and what it makes is valid for every version of Kubernetes."""

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from cli.installed_objects import build_groups, build_installed_objects
from manifests.install.installation import overlaid
from manifests.install.values import ChartValues
from server.values_file import build_installation
from tests.support.chart_values import FLIPS, FOREIGN_KINDS
from tests.support.kubernetes_schemas import SchemaError, check_object

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]


@functools.cache
def objects_of(name: str, *, hooks: bool = False) -> list[dict[str, Any]]:
    """Return the objects of a flip; not to be changed."""
    defaults = ChartValues().model_dump(mode="json", by_alias=True)
    values = ChartValues.model_validate(overlaid(defaults, FLIPS[name]))
    installation = build_installation(values, namespace="gpu")
    objects = build_installed_objects(installation)
    if hooks:
        expected = [item for item in build_groups(installation) if item.is_selected(values)]
        objects += [object_ for group in expected if group.is_hook for object_ in group.objects]
    return objects


@functools.cache
def different_objects() -> tuple[str, ...]:
    """Return each object of any flip once, as JSON."""
    texts = {
        json.dumps(object_): None
        for name in FLIPS
        for object_ in objects_of(name, hooks=True)
        if object_["kind"] not in FOREIGN_KINDS
    }
    return tuple(texts)


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        inner = (*path, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, inner)
        else:
            yield inner


def has(values: dict[str, Any], path: tuple[str, ...]) -> bool:
    place: Any = values
    for part in path:
        if not isinstance(place, dict) or part not in place:
            return False
        place = place[part]
    return True


def test_every_value_is_flipped_once():
    paths = list(leaves(ChartValues))
    assert len(paths) > 50
    assert [
        ".".join(path) for path in paths if not any(has(values, path) for values in FLIPS.values())
    ] == []


@pytest.mark.parametrize("name", [name for name in FLIPS if name != "default"])
def test_flip_changes_the_objects(name: str):
    assert objects_of(name, hooks=True) != objects_of("default", hooks=True)


@pytest.mark.parametrize("place", range(len(VERSIONS)), ids=VERSIONS)
def test_objects_are_valid_for_the_version(place: int, *, is_long: bool):
    """Each object is checked against all versions in the long form, and otherwise against one in turn."""
    texts = different_objects()
    assert len(texts) > 70
    for text in texts if is_long else texts[place :: len(VERSIONS)]:
        check_object(json.loads(text), VERSIONS[place])


def test_invalid_object_is_found():
    objects = copy.deepcopy(objects_of("default"))
    deployment = next(object_ for object_ in objects if object_["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["tolerationz"] = []
    with pytest.raises(SchemaError, match="tolerationz"):
        check_object(deployment, "1.30")
