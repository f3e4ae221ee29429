"""DELETE."""

from typing import Any

from tests.support.api_servers import Answer, Api
from tests.support.conformance import a_pod


async def _bound(api: Api, pods: str, name: str = "p", **spec: Any) -> Answer:
    created = await api.created(pods, a_pod(name, **spec))
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
    await api.created(f"{pods}/{name}/binding", body)
    return created


async def test_a_deleted_object_is_gone_and_the_answer_says_which_it_was(
    api: Api, configmaps: str
) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}})
    answer = await api.delete(f"{configmaps}/c")
    assert answer.status == 200
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "c", "kind": "configmaps", "uid": created.uid}
    assert (await api.get(f"{configmaps}/c")).status == 404


async def test_nothing_cannot_be_deleted(api: Api, pods: str) -> None:
    answer = await api.delete(f"{pods}/nobody")
    assert (answer.status, answer.message) == (404, 'pods "nobody" not found')


async def test_an_unbound_pod_goes_at_once_and_is_the_answer(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.delete(f"{pods}/p")
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert (await api.get(f"{pods}/p")).status == 404


async def test_a_bound_pod_is_marked_and_stays_until_its_node_lets_go(api: Api, pods: str) -> None:
    await _bound(api, pods)
    answer = await api.delete(f"{pods}/p")
    metadata = answer.body["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] > metadata["creationTimestamp"]
    assert metadata["generation"] == 2
    assert (await api.get(f"{pods}/p")).body["metadata"]["deletionTimestamp"]
    await api.delete(f"{pods}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{pods}/p")).status == 404


async def test_a_second_ordinary_deletion_of_a_bound_pod_changes_nothing(
    api: Api, pods: str
) -> None:
    await _bound(api, pods)
    first = await api.delete(f"{pods}/p")
    second = await api.delete(f"{pods}/p")
    assert (second.status, second.version) == (200, first.version)


async def test_the_grace_is_the_pods_or_the_requests(api: Api, pods: str) -> None:
    await _bound(api, pods, "own", terminationGracePeriodSeconds=7)
    answer = await api.delete(f"{pods}/own")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 7
    await _bound(api, pods, "asked")
    answer = await api.delete(f"{pods}/asked", gracePeriodSeconds="3")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_bound_pod_that_has_ended_goes_at_once(api: Api, pods: str) -> None:
    await _bound(api, pods)
    await api.merge(f"{pods}/p/status", {"status": {"phase": "Succeeded"}})
    await api.delete(f"{pods}/p")
    assert (await api.get(f"{pods}/p")).status == 404


async def test_marking_and_removing_a_bound_pod_are_two_events(api: Api, pods: str) -> None:
    await _bound(api, pods)
    version = (await api.get(pods)).version
    await api.delete(f"{pods}/p")
    await api.delete(f"{pods}/p", {"gracePeriodSeconds": 0})
    async with api.watch(pods, resourceVersion=version) as events:
        first = await events.next_change()
        second = await events.next_change()
        while second[0] == "MODIFIED":  # the real server may also record the shortened grace
            second = await events.next_change()
    assert (first, second) == (("MODIFIED", "p"), ("DELETED", "p"))


async def test_a_finalizer_keeps_the_object_until_it_is_taken_off(
    api: Api, configmaps: str
) -> None:
    path = f"{configmaps}/c"
    body = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    await api.created(configmaps, body)
    marked = await api.delete(path)
    assert marked.body["metadata"]["deletionTimestamp"]
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(path)).status == 200
    assert (await api.merge(path, {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(path)).status == 404


async def test_an_object_that_is_being_deleted_can_still_be_changed(
    api: Api, configmaps: str
) -> None:
    path = f"{configmaps}/c"
    body = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    await api.created(configmaps, body)
    marked = await api.delete(path)
    answer = await api.merge(path, {"data": {"a": "b"}})
    assert answer.body["data"] == {"a": "b"}
    stamp = answer.body["metadata"]["deletionTimestamp"]
    assert stamp == marked.body["metadata"]["deletionTimestamp"]


async def test_no_finalizer_can_be_added_to_what_is_being_deleted(
    api: Api, configmaps: str
) -> None:
    path = f"{configmaps}/c"
    body = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    await api.created(configmaps, body)
    await api.delete(path)
    patch = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    answer = await api.merge(path, patch)
    assert answer.status == 422
    assert (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
        'deleted, found new finalizers []string{"example.com/more"}' in answer.message
    )


async def test_another_uid_is_a_precondition_that_fails(api: Api, pods: str) -> None:
    created = await api.created(pods, a_pod("p"))
    answer = await api.delete(f"{pods}/p", {"preconditions": {"uid": "other"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (
        f"the UID in the precondition (other) does not match the UID in record ({created.uid})"
        in answer.message
    )
    assert (await api.get(f"{pods}/p")).status == 200
    answer = await api.delete(f"{pods}/p", {"preconditions": {"uid": created.uid}})
    assert answer.status == 200


async def test_another_version_is_a_precondition_that_fails(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}})
    await api.merge(f"{configmaps}/c", {"data": {"a": "b"}})
    old = {"preconditions": {"resourceVersion": created.version}}
    assert (await api.delete(f"{configmaps}/c", old)).status == 409


async def test_a_dry_run_deletes_nothing(api: Api, configmaps: str) -> None:
    await api.created(configmaps, {"metadata": {"name": "c"}})
    assert (await api.delete(f"{configmaps}/c", dryRun="All")).status == 200
    assert (await api.get(f"{configmaps}/c")).status == 200


async def test_a_name_can_be_used_again_with_a_new_uid(api: Api, pods: str) -> None:
    first = await api.created(pods, a_pod("p"))
    await api.delete(f"{pods}/p")
    assert (await api.created(pods, a_pod("p"))).uid != first.uid


async def test_a_collection_is_deleted_by_selector(api: Api, configmaps: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.created(configmaps, {"metadata": {"name": name, "labels": {"l": label}}})
    answer = await api.delete(configmaps, labelSelector="l=x")
    assert answer.status == 200
    assert (await api.get(configmaps, labelSelector="l")).names == ["c"]


async def test_a_namespace_that_is_being_deleted_takes_nothing_new(
    api: Api, configmaps: str, namespace: str
) -> None:
    body = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    await api.created(configmaps, body)
    answer = await api.delete(f"/api/v1/namespaces/{namespace}")
    assert answer.body["status"]["phase"] == "Terminating"
    answer = await api.post(configmaps, {"metadata": {"name": "d"}})
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        f'configmaps "d" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated"
    )
    await api.merge(f"{configmaps}/c", {"metadata": {"finalizers": None}})
