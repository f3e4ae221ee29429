"""The binding of pods."""

import asyncio
from typing import Any

import pytest

from tests.support.api_servers import Api
from tests.support.conformance import a_pod

Json = dict[str, Any]


def a_binding(name: str = "p", node: str = "node-1", **metadata: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


@pytest.fixture(params=["pods/binding", "bindings"])
def bindings(request: pytest.FixtureRequest, pods: str, namespace: str) -> str:
    """The two paths that bind the pod p."""
    if request.param == "bindings":
        return f"/api/v1/namespaces/{namespace}/bindings"
    return f"{pods}/p/binding"


async def test_a_binding_sets_node_and_condition_and_answers_with_a_status(
    api: Api, pods: str, bindings: str
) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.post(bindings, a_binding())
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    pod = (await api.get(f"{pods}/p")).body
    assert pod["spec"]["nodeName"] == "node-1"
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert pod["status"]["phase"] == "Pending"


async def test_annotations_of_the_binding_are_merged_into_the_pod(
    api: Api, pods: str, bindings: str
) -> None:
    await api.created(pods, a_pod("p", metadata={"annotations": {"a": "1", "b": "2"}}))
    await api.created(bindings, a_binding(annotations={"b": "3", "c": "4"}))
    metadata = (await api.get(f"{pods}/p")).body["metadata"]
    assert metadata["annotations"] == {"a": "1", "b": "3", "c": "4"}


async def test_a_binding_is_one_event(api: Api, pods: str, bindings: str) -> None:
    created = await api.created(pods, a_pod("p"))
    await api.created(bindings, a_binding(annotations={"a": "1"}))
    bound = await api.get(f"{pods}/p")
    async with api.watch(pods, resourceVersion=created.version) as events:
        event = await events.next()
    assert event["type"] == "MODIFIED"
    assert event["object"] == bound.body


async def test_a_binding_of_another_uid_conflicts(api: Api, pods: str) -> None:
    created = await api.created(pods, a_pod("p"))
    answer = await api.post(f"{pods}/p/binding", a_binding(uid="other"))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (
        f"Precondition failed: UID in precondition: other, UID in object meta: {created.uid}"
        in answer.message
    )
    assert "nodeName" not in (await api.get(f"{pods}/p")).body["spec"]
    assert (await api.post(f"{pods}/p/binding", a_binding(uid=created.uid))).status == 201


async def test_a_binding_of_another_version_conflicts(api: Api, pods: str) -> None:
    created = await api.created(pods, a_pod("p"))
    await api.merge(f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})
    stale = a_binding(resourceVersion=created.version)
    answer = await api.post(f"{pods}/p/binding", stale)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "nodeName" not in (await api.get(f"{pods}/p")).body["spec"]


async def test_the_older_path_heeds_no_uid(api: Api, pods: str, namespace: str) -> None:
    await api.created(pods, a_pod("p"))
    body = a_binding(uid="other")
    assert (await api.post(f"/api/v1/namespaces/{namespace}/bindings", body)).status == 201
    assert (await api.get(f"{pods}/p")).body["spec"]["nodeName"] == "node-1"


async def test_a_bound_pod_is_not_bound_again(api: Api, pods: str, bindings: str) -> None:
    await api.created(pods, a_pod("p"))
    await api.created(bindings, a_binding())
    answer = await api.post(bindings, a_binding(node="node-2", annotations={"x": "y"}))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node '
        '"node-1"'
    )
    pod = (await api.get(f"{pods}/p")).body
    assert pod["spec"]["nodeName"] == "node-1"
    assert "annotations" not in pod["metadata"]


async def test_a_gated_pod_is_not_bound(api: Api, pods: str, bindings: str) -> None:
    await api.created(pods, a_pod("p", schedulingGates=[{"name": "example.com/wait"}]))
    answer = await api.post(bindings, a_binding())
    assert (answer.status, answer.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "p": pod p has non-empty '
        ".spec.schedulingGates",
    )


async def test_a_pod_that_is_being_deleted_is_not_bound(api: Api, pods: str, bindings: str) -> None:
    await api.created(pods, a_pod("p", metadata={"finalizers": ["example.com/hold"]}))
    await api.delete(f"{pods}/p")
    answer = await api.post(bindings, a_binding())
    assert (answer.status, answer.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "p": pod p is being deleted, cannot be '
        "assigned to a host",
    )


async def test_a_pod_that_is_not_there_is_not_bound(api: Api, bindings: str) -> None:
    answer = await api.post(bindings, a_binding())
    assert (answer.status, answer.message) == (404, 'pods "p" not found')


async def test_a_binding_without_a_node_is_refused(api: Api, pods: str, bindings: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.post(bindings, {"metadata": {"name": "p"}, "target": {}})
    assert answer.status >= 400
    assert answer.message == "target.name: Required value"
    assert "nodeName" not in (await api.get(f"{pods}/p")).body["spec"]


async def test_a_binding_under_another_name_is_a_bad_request(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.post(f"{pods}/p/binding", a_binding("q"))
    assert (answer.status, answer.message) == (
        400,
        "name in URL does not match name in Binding object",
    )


async def test_of_many_bindings_at_once_one_wins(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(api.post(f"{pods}/p/binding", a_binding(node=f"node-{index}")))
            for index in range(8)
        ]
    statuses = [task.result().status for task in tasks]
    assert sorted(statuses) == [201] + [409] * 7
    node = (await api.get(f"{pods}/p")).body["spec"]["nodeName"]
    assert node == f"node-{statuses.index(201)}"


async def test_a_dry_run_binds_nothing(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    assert (await api.post(f"{pods}/p/binding", a_binding(), dryRun="All")).status == 201
    assert "nodeName" not in (await api.get(f"{pods}/p")).body["spec"]


async def test_bindings_cannot_be_read(api: Api, namespace: str) -> None:
    assert (await api.get(f"/api/v1/namespaces/{namespace}/bindings")).status == 405
