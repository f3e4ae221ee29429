"""Server-side apply of empty maps and lists, and of nulls.

A map that is applied empty after the same manager applied its last members becomes null, which a custom resource's
schema refuses, and keeps refusing. A map that is left out is removed.
"""

from typing import TYPE_CHECKING, Any

import pytest

from manifests import constants
from server.configuration.config_definition import build_config_crd
from tests.support.conformance import CRDS, GROUP_PATH, Widgets, until

if TYPE_CHECKING:
    from tests.support.api_servers import Answer, Api

Json = dict[str, Any]


async def _applied_in_turn(api: "Api", widgets: Widgets, *specs: Json) -> "Answer":
    """Apply the specs as one manager, and return the last answer."""
    return [
        await api.apply(f"{widgets.path}/w", widgets.make("w", {"mode": "A"} | spec), "m")
        for spec in specs
    ][-1]


def _fields(answer: "Answer", manager: str) -> Json:
    return next(
        entry["fieldsV1"]["f:spec"]
        for entry in answer.body["metadata"]["managedFields"]
        if entry["manager"] == manager
    )


@pytest.mark.parametrize(
    ("full", "empty", "path"),
    [
        pytest.param({"map": {"a": "1"}}, {"map": {}}, "spec.map", id="map"),
        pytest.param({"free": {"a": "1"}}, {"free": {}}, "spec.free", id="free-map"),
        pytest.param({"maps": {"k": {"a": "1"}}}, {"maps": {}}, "spec.maps", id="outer-map"),
        pytest.param(
            {"maps": {"k": {"a": "1"}}}, {"maps": {"k": {}}}, "spec.maps.k", id="inner-map"
        ),
    ],
)
async def test_a_map_that_loses_its_last_member_cannot_be_applied_empty(
    api: "Api", widgets: Widgets, full: Json, empty: Json, path: str
) -> None:
    answer = await _applied_in_turn(api, widgets, empty, full, empty)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (
        f'{path}: Invalid value: "null": {path} in body must be of type object: "null"'
        in answer.message
    )
    stored = await api.get(f"{widgets.path}/w")
    assert stored.body["spec"].items() >= full.items()
    assert full.keys().isdisjoint((await _applied_in_turn(api, widgets, {})).body["spec"])


async def test_a_status_that_loses_its_last_field_cannot_be_applied_empty(
    api: "Api", widgets: Widgets
) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    path = f"{widgets.path}/w/status"
    await api.apply(path, widgets.make("w", status={"phase": "x"}), "m")
    answer = await api.apply(path, widgets.make("w", status={}), "m")
    assert answer.status == 422
    assert 'status: Invalid value: "null": ' in answer.message
    answer = await api.apply(path, widgets.make("w"), "m")
    assert (answer.status, "status" in answer.body) == (200, False)


async def test_an_empty_map_keeps_the_members_of_others(api: "Api", widgets: Widgets) -> None:
    await _applied_in_turn(api, widgets, {"map": {"a": "1"}})
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"map": {"b": "2"}}), "other")
    answer = await _applied_in_turn(api, widgets, {"map": {}})
    assert (answer.status, answer.body["spec"]["map"]) == (200, {"b": "2"})


async def test_a_map_that_another_manager_applies_empty_cannot_be_given_up(
    api: "Api", widgets: Widgets
) -> None:
    await _applied_in_turn(api, widgets, {"map": {"a": "1"}})
    await api.apply(f"{widgets.path}/w", widgets.make("w", {"map": {}}), "other")
    answer = await _applied_in_turn(api, widgets, {})
    assert answer.status == 422
    assert 'spec.map: Invalid value: "null"' in answer.message


@pytest.mark.parametrize(
    ("field", "full", "stored"),
    [
        pytest.param("nullableMap", {"a": "1"}, None, id="nullable"),
        pytest.param("atomicMap", {"a": "1"}, {}, id="atomic"),
        pytest.param("inner", {"key": "mine"}, {"key": "filled"}, id="with-a-default"),
    ],
)
async def test_a_schema_may_accept_a_map_that_loses_its_last_member(
    api: "Api", widgets: Widgets, field: str, full: Json, stored: Json | None
) -> None:
    answer = await _applied_in_turn(api, widgets, {field: full}, {field: {}})
    assert (answer.status, answer.body["spec"][field]) == (200, stored)
    assert _fields(answer, "m")[f"f:{field}"] == {}


async def test_an_empty_map_in_a_free_one_becomes_null(api: "Api", widgets: Widgets) -> None:
    answer = await _applied_in_turn(api, widgets, {"free": {"k": {"a": "1"}}}, {"free": {"k": {}}})
    assert (answer.status, answer.body["spec"]["free"]) == (200, {"k": None})


async def test_a_list_that_loses_its_last_item_is_empty_or_removed(
    api: "Api", widgets: Widgets
) -> None:
    full, empty = {"list": ["a"], "tags": ["a"]}, Json(list=[], tags=[])
    answer = await _applied_in_turn(api, widgets, empty)
    assert answer.body["spec"].items() >= empty.items()
    answer = await _applied_in_turn(api, widgets, full, empty)
    assert answer.body["spec"]["list"] == []
    assert "tags" not in answer.body["spec"]
    assert _fields(answer, "m") == {"f:mode": {}, "f:list": {}}


@pytest.mark.parametrize("field", ["map", "list", "name"])
async def test_a_null_is_a_value_where_it_is_applied(
    api: "Api", widgets: Widgets, field: str
) -> None:
    answer = await _applied_in_turn(api, widgets, {field: None})
    assert answer.status == 422
    assert f'spec.{field}: Invalid value: "null"' in answer.message
    answer = await _applied_in_turn(api, widgets, {}, {field: None})
    assert answer.status == 422


async def test_maps_of_built_in_kinds_may_be_applied_empty(api: "Api", namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/d"

    def config(members: Json) -> Json:
        template = {
            "metadata": {"labels": {"app": "d"}, "annotations": members},
            "spec": {
                "nodeSelector": members,
                "containers": [
                    {
                        "name": "main",
                        "image": "localhost/image:1",
                        "resources": {"limits": {"cpu": "1"} if members else {}},
                    }
                ],
            },
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "d", "labels": members, "annotations": members},
            "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
        }

    assert (await api.apply(path, config({"a": "1"}), "m")).status == 201
    answer = await api.apply(path, config({}), "m")
    assert answer.status == 200
    template = answer.body["spec"]["template"]
    assert "labels" not in answer.body["metadata"]
    assert "a" not in answer.body["metadata"].get("annotations", {})
    assert "annotations" not in template["metadata"]
    assert not template["spec"].get("nodeSelector")  # the real one omits it
    assert template["spec"]["containers"][0]["resources"] == {}


async def test_sections_and_mappings_of_our_settings_may_be_applied_empty(api: "Api") -> None:
    definition = build_config_crd()
    assert (await api.post(CRDS, definition)).status in {201, 409}
    kinds = f"{GROUP_PATH}/gpucontrolplaneconfigs"
    await until(lambda: api.get(kinds), lambda answer: answer.status == 200)
    path = f"{kinds}/{constants.NAME}"

    def config(**content: object) -> Json:
        return {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUControlPlaneConfig",
            "metadata": {"name": constants.NAME},
            **content,
        }

    full = {"health": {"xid_actions": {"13": "None"}}, "drain_s": 1}
    for health, stored in (({"xid_actions": {}}, {"xid_actions": {}}), ({}, None)):
        await api.apply(path, config(spec=full), "m")
        answer = await api.apply(path, config(spec=full | {"health": health}), "m")
        assert (answer.status, answer.body["spec"]["health"]) == (200, stored)
    for applied in (full, {}):
        answer = await api.apply(f"{path}/status", config(status={"applied": applied}), "m")
        assert (answer.status, answer.body["status"]["applied"]) == (200, applied)
    await api.delete(path)
