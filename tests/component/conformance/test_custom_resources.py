"""CustomResourceDefinitions and what they serve."""

from typing import Any

import pytest

from tests.support.api_servers import STRATEGIC, Api, unique
from tests.support.conformance import CRDS, Widgets, a_definition

Json = dict[str, Any]


async def test_a_definition_becomes_established(api: Api, widgets: Widgets) -> None:
    body = (await api.get(f"{CRDS}/widgets.{widgets.group}")).body
    conditions = {
        condition["type"]: condition["status"] for condition in body["status"]["conditions"]
    }
    assert conditions["NamesAccepted"] == conditions["Established"] == "True"
    assert body["spec"]["names"]["listKind"] == "WidgetList"
    assert body["spec"]["names"]["singular"] == "widget"
    assert body["status"]["storedVersions"] == ["v1"]


async def test_an_object_is_stored_with_defaults(api: Api, widgets: Widgets) -> None:
    answer = await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    assert answer.body["spec"] == {"mode": "A", "size": 2, "inner": {"key": "filled"}}
    assert answer.body["metadata"]["generation"] == 1
    assert (await api.get(f"{widgets.path}/w")).body == answer.body


async def test_a_namespaced_kind_lives_in_namespaces(
    api: Api, spaced_widgets: Widgets, namespace: str
) -> None:
    answer = await api.created(spaced_widgets.path, spaced_widgets.make("w", {"mode": "A"}))
    assert answer.body["metadata"]["namespace"] == namespace
    everywhere = f"/apis/{spaced_widgets.group}/v1/widgets"
    selector = {"fieldSelector": f"metadata.namespace={namespace}"}
    assert (await api.get(everywhere, **selector)).names == ["w"]


async def test_items_of_a_list_carry_their_kind(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    answer = await api.get(widgets.path)
    assert answer.body["kind"] == "WidgetList"
    assert answer.body["items"][0]["kind"] == "Widget"


async def test_selectable_fields_select(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("a", {"mode": "A"}))
    await api.created(widgets.path, widgets.make("b", {"mode": "B"}))
    assert (await api.get(widgets.path, fieldSelector="spec.mode=B")).names == ["b"]
    assert (await api.get(widgets.path, fieldSelector="spec.size=2")).status == 400


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({}, "spec.mode: Required value", id="required"),
        pytest.param(
            {"mode": "C"},
            'spec.mode: Unsupported value: "C": supported values: "A", "B"',
            id="enum",
        ),
        pytest.param(
            {"mode": "A", "size": 0},
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
            id="minimum",
        ),
        pytest.param(
            {"mode": "A", "size": 9},
            "spec.size: Invalid value: 9: spec.size in body should be less than or equal to 5",
            id="maximum",
        ),
        pytest.param(
            {"mode": "A", "size": "x"},
            'spec.size: Invalid value: "string": spec.size in body must be of type integer: '
            '"string"',
            id="type",
        ),
        pytest.param(
            {"mode": "A", "name": "A1"},
            "spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'",
            id="pattern",
        ),
        pytest.param(
            {"mode": "A", "name": "abcdef"},
            "spec.name: Too long: may not be more than 5 bytes",
            id="longest",
        ),
        pytest.param(
            {"mode": "A", "name": "a"},
            'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long',
            id="shortest",
        ),
        pytest.param(
            {"mode": "A", "list": ["a", "b", "c"]},
            "spec.list: Too many: 3: must have at most 2 items",
            id="most items",
        ),
        pytest.param(
            {"mode": "A", "list": [1]},
            'spec.list[0]: Invalid value: "integer": spec.list[0] in body must be of type string',
            id="type of an item",
        ),
        pytest.param(
            {"mode": "A", "tags": ["a", "a"]},
            'spec.tags[1]: Duplicate value: "a"',
            id="a set with duplicates",
        ),
        pytest.param(
            {"mode": "A", "map": {"a": 1}},
            'spec.map.a: Invalid value: "integer": spec.map.a in body must be of type string',
            id="type of a map's value",
        ),
        pytest.param(
            {"mode": "A", "either": True},
            'spec.either: Invalid value: "boolean": spec.either in body must be of type '
            "integer,string",
            id="int or string",
        ),
        pytest.param("text", 'spec: Invalid value: "string": spec in body must be', id="no object"),
    ],
)
async def test_what_the_schema_forbids_is_invalid(
    api: Api, widgets: Widgets, spec: object, text: str
) -> None:
    answer = await api.post(widgets.path, widgets.make("w", spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith(f'Widget.{widgets.group} "w" is invalid: ')
    assert text in answer.message
    assert answer.body["details"]["group"] == widgets.group


async def test_every_error_is_listed(api: Api, widgets: Widgets) -> None:
    answer = await api.post(widgets.path, widgets.make("w", {"mode": "C", "size": 9}))
    assert {cause["field"] for cause in answer.causes} == {"spec.mode", "spec.size"}


async def test_int_or_string_takes_both(api: Api, widgets: Widgets) -> None:
    for name, value in (("a", 5), ("b", "5")):
        answer = await api.created(widgets.path, widgets.make(name, {"mode": "A", "either": value}))
        assert answer.body["spec"]["either"] == value


async def test_an_unknown_field_is_pruned_with_a_warning(api: Api, widgets: Widgets) -> None:
    answer = await api.created(widgets.path, widgets.make("w", {"mode": "A", "foo": 1}))
    assert "foo" not in answer.body["spec"]
    assert answer.warnings == ['299 - "unknown field \\"spec.foo\\""']


async def test_an_unknown_field_is_refused_where_the_client_is_strict(
    api: Api, widgets: Widgets
) -> None:
    body = widgets.make("w", {"mode": "A", "foo": 1, "inner": {"bar": 1}})
    answer = await api.post(widgets.path, body, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.foo", unknown field "spec.inner.bar"' in (
        answer.message
    ) or 'unknown field "spec.inner.bar", unknown field "spec.foo"' in (answer.message)


async def test_unknown_fields_can_be_ignored(api: Api, widgets: Widgets) -> None:
    body = widgets.make("w", {"mode": "A", "foo": 1})
    answer = await api.post(widgets.path, body, fieldValidation="Ignore")
    assert (answer.status, answer.warnings) == (201, [])


async def test_free_form_parts_are_kept_as_they_are(api: Api, widgets: Widgets) -> None:
    free = {"a": {"b": [1, {"c": "d"}]}}
    answer = await api.created(widgets.path, widgets.make("w", {"mode": "A", "free": free}))
    assert answer.body["spec"]["free"] == free


async def test_nulls_are_dropped_defaulted_or_kept_by_the_schema(
    api: Api, widgets: Widgets
) -> None:
    spec = {"mode": "A", "size": None, "map": None, "nullable": None}
    answer = await api.created(widgets.path, widgets.make("w", spec))
    found = answer.body["spec"]
    assert found["size"] == 2
    assert "map" not in found
    assert found["nullable"] is None


async def test_a_status_at_creation_is_dropped(api: Api, widgets: Widgets) -> None:
    body = widgets.make("w", {"mode": "A"}, status={"phase": "x"})
    answer = await api.created(widgets.path, body)
    assert "status" not in answer.body


async def test_the_status_path_changes_nothing_but_the_status(api: Api, widgets: Widgets) -> None:
    created = await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    body = {**created.body, "spec": {"mode": "B"}, "status": {"phase": "x"}}
    body["metadata"] = {**created.body["metadata"], "labels": {"a": "b"}}
    answer = await api.put(f"{widgets.path}/w/status", body)
    assert answer.body["status"] == {"phase": "x"}
    assert answer.body["spec"] == created.body["spec"]
    assert "labels" not in answer.body["metadata"]
    assert answer.body["metadata"]["generation"] == 1


async def test_the_main_path_changes_nothing_of_the_status(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    path = f"{widgets.path}/w"
    written = await api.merge(f"{path}/status", {"status": {"phase": "x"}})
    body = {**written.body, "spec": {"mode": "B"}, "status": {"phase": "y"}}
    answer = await api.put(path, body)
    assert answer.body["spec"]["mode"] == "B"
    assert answer.body["status"] == {"phase": "x"}
    assert answer.body["metadata"]["generation"] == 2


async def test_another_uid_in_a_patch_of_the_status_is_ignored(api: Api, widgets: Widgets) -> None:
    created = await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    patch = {"metadata": {"uid": "other"}, "status": {"phase": "x"}}
    answer = await api.merge(f"{widgets.path}/w/status", patch)
    assert (answer.status, answer.uid) == (200, created.uid)


async def test_a_put_needs_a_version(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    answer = await api.put(f"{widgets.path}/w", widgets.make("w", {"mode": "B"}))
    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value: 0" in answer.message


async def test_a_strategic_merge_is_unsupported(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    answer = await api.call("PATCH", f"{widgets.path}/w", {}, content_type=STRATEGIC)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_a_kind_is_demanded_and_checked(api: Api, widgets: Widgets) -> None:
    body: Json = {"metadata": {"name": "w"}, "spec": {"mode": "A"}}
    answer = await api.post(widgets.path, body)
    assert answer.status == 400
    assert "Object 'Kind' is missing" in answer.message
    body = {**widgets.make("w", {"mode": "A"}), "apiVersion": f"{widgets.group}/v2"}
    answer = await api.post(widgets.path, body)
    assert answer.status == 400
    assert "does not match the expected API version" in answer.message


async def test_changes_of_custom_resources_are_watched(api: Api, widgets: Widgets) -> None:
    version = (await api.get(widgets.path)).version
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    async with api.watch(widgets.path, resourceVersion=version) as events:
        event = await events.next()
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Widget")


async def test_a_definition_has_to_be_named_after_its_kind(api: Api) -> None:
    body = a_definition(unique("g") + ".example")
    body["metadata"]["name"] = "wrong.example"
    answer = await api.post(CRDS, body)
    assert answer.status == 422
    assert (
        'metadata.name: Invalid value: "wrong.example": must be spec.names.plural+"."+spec.group'
        in answer.message
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        pytest.param({}, ".type: Required value: must not be empty", id="no type"),
        pytest.param({"type": "array"}, ".items: Required value", id="no items"),
    ],
)
async def test_a_schema_has_to_be_structural(api: Api, schema: Json, text: str) -> None:
    body = a_definition(unique("g") + ".example")
    root = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = root["properties"]["spec"]
    changed: Json = {**spec, "properties": {**spec["properties"], "bad": schema}}
    root["properties"] = {**root["properties"], "spec": changed}
    answer = await api.post(CRDS, body)
    assert answer.status == 422
    assert text in answer.message
