"""Server-side apply."""

from typing import Any

from tests.support.api_servers import APPLY, Api
from tests.support.conformance import Widgets, a_pod

Json = dict[str, Any]


async def test_apply_creates_what_is_missing(api: Api, widgets: Widgets) -> None:
    config = widgets.make("w", {"mode": "A", "map": {"a": "1"}})
    answer = await api.apply(f"{widgets.path}/w", config, "one")
    assert answer.status == 201
    assert answer.body["spec"]["map"] == {"a": "1"}
    (entry,) = answer.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"] == {"f:spec": {"f:mode": {}, "f:map": {"f:a": {}}}}


async def test_applying_the_same_again_keeps_the_version(api: Api, widgets: Widgets) -> None:
    config = widgets.make("w", {"mode": "A"})
    first = await api.apply(f"{widgets.path}/w", config, "one")
    second = await api.apply(f"{widgets.path}/w", config, "one")
    assert (second.status, second.version) == (200, first.version)


async def test_managers_of_different_fields_live_together(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "map": {"a": "1"}}), "one")
    answer = await api.apply(path, widgets.make("w", {"map": {"b": "2"}}), "two")
    assert answer.status == 200
    assert answer.body["spec"]["map"] == {"a": "1", "b": "2"}
    assert answer.body["spec"]["mode"] == "A"


async def test_the_same_value_is_owned_by_both(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "size": 3}), "one")
    await api.apply(path, widgets.make("w", {"size": 3}), "two")
    answer = await api.apply(path, widgets.make("w", {"mode": "A"}), "one")
    assert answer.body["spec"]["size"] == 3


async def test_another_value_is_a_conflict_that_names_manager_and_field(
    api: Api, widgets: Widgets
) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "size": 3}), "one")
    answer = await api.apply(path, widgets.make("w", {"size": 4}), "two")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    assert answer.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "one"',
            "field": ".spec.size",
        }
    ]


async def test_several_conflicts_are_all_listed(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "size": 3}), "one")
    answer = await api.apply(path, widgets.make("w", {"mode": "B", "size": 4}), "two")
    assert answer.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .spec.mode\n- .spec.size'
    )


async def test_force_takes_the_field_over(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "size": 3}), "one")
    answer = await api.apply(path, widgets.make("w", {"size": 4}), "two", force="true")
    assert (answer.status, answer.body["spec"]["size"]) == (200, 4)
    shares = {
        entry["manager"]: entry["fieldsV1"]["f:spec"]
        for entry in answer.body["metadata"]["managedFields"]
    }
    assert shares == {"one": {"f:mode": {}}, "two": {"f:size": {}}}


async def test_what_is_no_longer_applied_is_removed(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "map": {"a": "1", "b": "2"}}), "one")
    answer = await api.apply(path, widgets.make("w", {"mode": "A", "map": {"a": "1"}}), "one")
    assert answer.body["spec"]["map"] == {"a": "1"}
    answer = await api.apply(path, widgets.make("w", {"mode": "A"}), "one")
    assert "map" not in answer.body["spec"]


async def test_a_map_that_was_applied_empty_gets_members(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "map": {}}), "one")
    answer = await api.apply(path, widgets.make("w", {"mode": "A", "map": {"a": "1"}}), "one")
    assert answer.body["spec"]["map"] == {"a": "1"}


async def test_a_default_comes_back_when_its_field_is_given_up(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A"}), "one")
    await api.apply(path, widgets.make("w", {"size": 4}), "two")
    answer = await api.apply(path, widgets.make("w"), "two")
    assert answer.body["spec"]["size"] == 2


async def test_an_update_owns_what_it_changed(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "size": 3}), "one")
    await api.merge(path, {"spec": {"size": 5}}, fieldManager="editor")
    answer = await api.apply(path, widgets.make("w", {"mode": "A", "size": 3}), "one")
    assert answer.status == 409
    assert answer.message.startswith(
        f'Apply failed with 1 conflict: conflict with "editor" using {widgets.group}/v1'
    )


async def test_labels_and_annotations_are_applied_one_by_one(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p", metadata={"labels": {"user": "1"}}))
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"ours": "2"}}}
    answer = await api.apply(f"{pods}/p", config, "one")
    assert answer.body["metadata"]["labels"] == {"user": "1", "ours": "2"}
    config["metadata"] = {"name": "p"}
    answer = await api.apply(f"{pods}/p", config, "one")
    assert answer.body["metadata"]["labels"] == {"user": "1"}


async def test_containers_are_owned_by_name(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"), fieldManager="maker")
    config = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main", "image": "localhost/image:2"}]},
    }
    answer = await api.apply(f"{pods}/p", config, "one")
    assert answer.message == (
        'Apply failed with 1 conflict: conflict with "maker" using v1: '
        '.spec.containers[name="main"].image'
    )
    answer = await api.apply(f"{pods}/p", config, "one", force="true")
    assert answer.body["spec"]["containers"][0]["image"] == "localhost/image:2"


async def test_members_of_a_set_have_owners_of_their_own(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "tags": ["a"]}), "one")
    answer = await api.apply(path, widgets.make("w", {"tags": ["b"]}), "two")
    assert sorted(answer.body["spec"]["tags"]) == ["a", "b"]
    answer = await api.apply(path, widgets.make("w", {"mode": "A"}), "one")
    assert answer.body["spec"]["tags"] == ["b"]


async def test_a_list_without_keys_belongs_to_one_manager(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.apply(path, widgets.make("w", {"mode": "A", "list": ["a"]}), "one")
    answer = await api.apply(path, widgets.make("w", {"list": ["b"]}), "two")
    assert answer.status == 409
    assert answer.causes[0]["field"] == ".spec.list"


def _ready(widgets: Widgets, status: str, kind: str = "Ready") -> Json:
    conditions = [{"type": kind, "status": status}]
    return widgets.make("w", status={"conditions": conditions})


async def test_conditions_of_two_managers_live_together(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    path = f"{widgets.path}/w/status"
    await api.apply(path, _ready(widgets, "True"), "one")
    answer = await api.apply(path, _ready(widgets, "True", "Other"), "two")
    kinds = {condition["type"] for condition in answer.body["status"]["conditions"]}
    assert kinds == {"Ready", "Other"}
    answer = await api.apply(path, _ready(widgets, "False"), "two")
    assert answer.message == (
        'Apply failed with 1 conflict: conflict with "one" with subresource "status": '
        '.status.conditions[type="Ready"].status'
    )
    answer = await api.apply(path, widgets.make("w", status={"phase": "x"}), "one")
    assert [condition["type"] for condition in answer.body["status"]["conditions"]] == ["Other"]


async def test_an_apply_of_status_leaves_the_spec_alone(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A", "size": 3}))
    config = widgets.make("w", {"size": 5}, status={"phase": "x"})
    answer = await api.apply(f"{widgets.path}/w/status", config, "one")
    assert answer.body["spec"]["size"] == 3
    assert answer.body["status"] == {"phase": "x"}


async def test_an_apply_of_the_object_leaves_the_status_alone(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    answer = await api.apply(path, widgets.make("w", {"list": ["a"]}, status={"phase": "x"}), "one")
    assert answer.body["spec"]["list"] == ["a"]
    assert "status" not in answer.body


async def test_the_status_of_nothing_is_not_created(api: Api, widgets: Widgets) -> None:
    config = widgets.make("w", status={"phase": "x"})
    answer = await api.apply(f"{widgets.path}/w/status", config, "one")
    assert answer.status == 404


async def test_apply_demands_a_manager(api: Api, widgets: Widgets) -> None:
    answer = await api.call("PATCH", f"{widgets.path}/w", widgets.make("w"), content_type=APPLY)
    assert answer.status == 422
    assert "fieldManager: Required value: is required for apply patch" in answer.message


async def test_apply_demands_kind_and_version(api: Api, widgets: Widgets) -> None:
    answer = await api.apply(f"{widgets.path}/w", {"metadata": {"name": "w"}}, "one")
    assert answer.status == 400


async def test_apply_under_another_name_is_a_bad_request(api: Api, widgets: Widgets) -> None:
    answer = await api.apply(f"{widgets.path}/w", widgets.make("v", {"mode": "A"}), "one")
    assert answer.status == 400


async def test_apply_takes_no_managed_fields(api: Api, widgets: Widgets) -> None:
    config = widgets.make("w", {"mode": "A"})
    config["metadata"]["managedFields"] = [{"manager": "x"}]
    answer = await api.apply(f"{widgets.path}/w", config, "one")
    assert (answer.status, answer.message) == (400, "metadata.managedFields must be nil")


async def test_an_unknown_field_cannot_be_applied(api: Api, widgets: Widgets) -> None:
    await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    answer = await api.apply(f"{widgets.path}/w", widgets.make("w", {"foo": 1}), "one")
    assert answer.status == 500
    assert answer.message.startswith("failed to create typed patch object (")
    assert answer.message.endswith(".spec.foo: field not declared in schema")


async def test_a_value_of_the_wrong_type_cannot_be_applied(api: Api, widgets: Widgets) -> None:
    answer = await api.apply(f"{widgets.path}/w", widgets.make("w", {"size": "big"}), "one")
    assert answer.status == 500
    assert ".spec.size: expected numeric (int or float), got string" in answer.message


async def test_the_result_of_an_apply_has_to_be_valid(api: Api, widgets: Widgets) -> None:
    answer = await api.apply(f"{widgets.path}/w", widgets.make("w", {"mode": "C"}), "one")
    assert answer.status == 422
    assert 'spec.mode: Unsupported value: "C"' in answer.message


async def test_apply_heeds_version_and_uid(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    created = await api.created(widgets.path, widgets.make("w", {"mode": "A"}))
    await api.merge(path, {"spec": {"size": 5}})
    config = widgets.make("w", {"mode": "A"})
    config["metadata"]["resourceVersion"] = created.version
    assert (await api.apply(path, config, "one")).status == 409
    config["metadata"] = {"name": "w", "uid": "other"}
    answer = await api.apply(path, config, "one")
    assert answer.status == 422
    assert "metadata.uid" in answer.message
    config["metadata"]["name"] = "missing"
    answer = await api.apply(f"{widgets.path}/missing", config, "one")
    assert answer.status == 409
    assert "uid mismatch" in answer.message


async def test_a_dry_run_of_an_apply_changes_nothing(api: Api, widgets: Widgets) -> None:
    path = f"{widgets.path}/w"
    created = await api.apply(path, widgets.make("w", {"mode": "A"}), "one")
    answer = await api.apply(path, widgets.make("w", {"mode": "B"}), "one", dryRun="All")
    assert answer.body["spec"]["mode"] == "B"
    assert (await api.get(path)).body == created.body
    await api.apply(f"{widgets.path}/v", widgets.make("v", {"mode": "A"}), "one", dryRun="All")
    assert (await api.get(f"{widgets.path}/v")).status == 404
