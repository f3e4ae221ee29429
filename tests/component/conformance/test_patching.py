"""PATCH: JSON patch and merge patch."""

import asyncio
from typing import Any

import pytest

from tests.support.api_servers import JSON_PATCH, MERGE, Api
from tests.support.conformance import a_pod

Json = dict[str, Any]


@pytest.fixture
async def configmap(api: Api, configmaps: str) -> str:
    body = {"metadata": {"name": "c", "labels": {"x": "y"}}, "data": {"a": "1", "b": "2"}}
    await api.created(configmaps, body)
    return f"{configmaps}/c"


async def test_a_json_patch_applies_its_operations_in_order(api: Api, configmap: str) -> None:
    patch = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "3"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
    ]
    answer = await api.call("PATCH", configmap, patch, content_type=JSON_PATCH)
    assert answer.status == 200
    assert answer.body["data"] == {"a": "3"}
    assert answer.body["metadata"]["labels"] == {"x": "y", "a/b": "c"}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/data/a", "value": "2"}, id="failing test"),
        pytest.param({"op": "remove", "path": "/data/zzz"}, id="nothing to remove"),
        pytest.param({"op": "add", "path": "/nope/x/y", "value": 1}, id="no parent"),
    ],
)
async def test_a_json_patch_that_does_not_fit_is_refused_and_changes_nothing(
    api: Api, configmap: str, operation: Json
) -> None:
    before = await api.get(configmap)
    answer = await api.call("PATCH", configmap, [operation], content_type=JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == "the server rejected our request due to an error in our request"
    assert (await api.get(configmap)).body == before.body


async def test_a_json_patch_that_is_no_list_is_a_bad_request(api: Api, configmap: str) -> None:
    answer = await api.call("PATCH", configmap, {"a": 1}, content_type=JSON_PATCH)
    assert answer.status == 400
    assert "cannot unmarshal object" in answer.message


async def test_a_merge_patch_sets_merges_and_removes(api: Api, configmap: str) -> None:
    patch = {"data": {"a": None, "c": "3"}, "metadata": {"labels": None}}
    answer = await api.merge(configmap, patch)
    assert answer.body["data"] == {"b": "2", "c": "3"}
    assert "labels" not in answer.body["metadata"]


async def test_a_merge_patch_replaces_lists_whole(api: Api, pods: str) -> None:
    finalizers = ["example.com/a", "example.com/b"]
    await api.created(pods, a_pod("p", metadata={"finalizers": finalizers}))
    patch = {"metadata": {"finalizers": ["example.com/c"]}}
    answer = await api.merge(f"{pods}/p", patch)
    assert answer.body["metadata"]["finalizers"] == ["example.com/c"]


async def test_a_patch_of_an_old_version_conflicts(api: Api, configmap: str) -> None:
    old = (await api.get(configmap)).version
    await api.merge(configmap, {"data": {"a": "9"}})
    patch = {"metadata": {"resourceVersion": old}, "data": {"a": "10"}}
    answer = await api.merge(configmap, patch)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message


async def test_a_patch_cannot_change_name_namespace_or_uid(api: Api, configmap: str) -> None:
    assert (await api.merge(configmap, {"metadata": {"name": "d"}})).status == 400
    assert (await api.merge(configmap, {"metadata": {"namespace": "d"}})).status == 400
    answer = await api.merge(configmap, {"metadata": {"uid": "d"}})
    assert answer.status == 422
    assert 'metadata.uid: Invalid value: "d": field is immutable' in answer.message


async def test_a_patch_of_nothing_is_not_found(api: Api, configmaps: str) -> None:
    assert (await api.merge(f"{configmaps}/nobody", {"data": {}})).status == 404


async def test_an_unreadable_patch_is_a_bad_request(api: Api, configmap: str) -> None:
    answer = await api.call("PATCH", configmap, b"[{", content_type=JSON_PATCH)
    assert answer.status == 400
    assert (await api.call("PATCH", configmap, b"[1]", content_type=MERGE)).status == 400


async def test_an_unknown_kind_of_patch_is_unsupported(api: Api, configmap: str) -> None:
    answer = await api.call("PATCH", configmap, {}, content_type="application/foo")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_a_dry_run_of_a_patch_changes_nothing(api: Api, configmap: str) -> None:
    before = await api.get(configmap)
    answer = await api.merge(configmap, {"data": {"a": "9"}}, dryRun="All")
    assert answer.body["data"]["a"] == "9"
    assert (await api.get(configmap)).body == before.body


async def test_concurrent_patches_that_name_no_version_all_land(api: Api, configmaps: str) -> None:
    await api.created(configmaps, {"metadata": {"name": "many"}})
    path = f"{configmaps}/many"
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(api.merge(path, {"data": {f"k{index}": "v"}})) for index in range(4)
        ]
    assert [task.result().status for task in tasks] == [200] * 4
    assert set((await api.get(path)).body["data"]) == {f"k{index}" for index in range(4)}
