"""PUT, and what every update keeps."""

from tests.support.api_servers import Api, unique
from tests.support.conformance import a_pod


async def test_a_put_replaces_the_whole_object(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    body = {**created.body, "data": {"c": "d"}}
    answer = await api.put(f"{configmaps}/c", body)
    assert answer.status == 200
    assert answer.body["data"] == {"c": "d"}
    assert int(answer.version) > int(created.version)


async def test_a_put_of_an_old_version_conflicts(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}})
    newer = await api.merge(f"{configmaps}/c", {"data": {"a": "b"}})
    answer = await api.put(f"{configmaps}/c", {**created.body, "data": {"x": "y"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; please apply '
        "your changes to the latest version and try again"
    )
    assert (await api.get(f"{configmaps}/c")).body == newer.body


async def test_a_put_without_a_version_overwrites(api: Api, configmaps: str) -> None:
    await api.created(configmaps, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    answer = await api.put(f"{configmaps}/c", {"metadata": {"name": "c"}, "data": {"z": "z"}})
    assert (answer.status, answer.body["data"]) == (200, {"z": "z"})


async def test_a_put_to_nothing_is_not_found(api: Api, pods: str) -> None:
    answer = await api.put(f"{pods}/p", a_pod("p"))
    assert (answer.status, answer.message) == (404, 'pods "p" not found')


async def test_a_put_under_another_name_is_a_bad_request(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.put(f"{pods}/p", a_pod("q"))
    assert (answer.status, answer.message) == (
        400,
        "the name of the object (q) does not match the name on the URL (p)",
    )


async def test_a_put_of_another_uid_conflicts(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}})
    answer = await api.put(f"{configmaps}/c", {"metadata": {"name": "c", "uid": "other"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (
        f"Precondition failed: UID in precondition: other, UID in object meta: {created.uid}"
        in answer.message
    )


async def test_an_equal_put_keeps_the_version(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    answer = await api.put(f"{configmaps}/c", created.body)
    assert answer.version == created.version


async def test_an_update_keeps_the_system_fields(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}})
    body = {"metadata": {"name": "c", "creationTimestamp": "2001-01-01T00:00:00Z"}, "data": {}}
    answer = await api.put(f"{configmaps}/c", body)
    for key in ("uid", "creationTimestamp"):
        assert answer.body["metadata"][key] == created.body["metadata"][key]


async def test_a_dry_run_of_a_put_changes_nothing(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}})
    answer = await api.put(
        f"{configmaps}/c", {"metadata": {"name": "c"}, "data": {"a": "b"}}, dryRun="All"
    )
    assert answer.body["data"] == {"a": "b"}
    assert (await api.get(f"{configmaps}/c")).body == created.body


async def test_a_lease_is_created_by_put_and_then_needs_its_version(
    api: Api, namespace: str
) -> None:
    name = unique("lease")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    created = await api.put(path, {"metadata": {"name": name}, "spec": {"holderIdentity": "a"}})
    assert created.status == 201
    blind = await api.put(path, {"metadata": {"name": name}, "spec": {"holderIdentity": "b"}})
    assert blind.status == 422
    assert "metadata.resourceVersion: Invalid value: 0" in blind.message
    assert "must be specified for an update" in blind.message
    created.body["spec"]["holderIdentity"] = "b"
    assert (await api.put(path, created.body)).body["spec"]["holderIdentity"] == "b"


async def test_status_of_a_node_is_written_by_its_own_path_only(api: Api) -> None:
    name = unique("node")
    path = f"/api/v1/nodes/{name}"
    try:
        await api.created("/api/v1/nodes", {"metadata": {"name": name}})
        capacity = {"status": {"capacity": {"cpu": "4"}}}
        ignored = await api.merge(path, capacity)
        assert "capacity" not in ignored.body.get("status", {})
        patch = {**capacity, "spec": {"unschedulable": True}, "metadata": {"labels": {"a": "b"}}}
        answer = await api.merge(f"{path}/status", patch)
        assert answer.body["status"]["capacity"] == {"cpu": "4"}
        assert answer.body["status"]["allocatable"] == {"cpu": "4"}
        assert "unschedulable" not in answer.body["spec"]
        assert answer.body["metadata"]["labels"] == {"a": "b"}
    finally:
        await api.delete(path)


async def test_annotations_of_a_pod_can_be_changed_through_its_status(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    patch = {"metadata": {"annotations": {"a": "b"}}, "status": {"nominatedNodeName": "n"}}
    answer = await api.merge(f"{pods}/p/status", patch)
    assert answer.body["metadata"]["annotations"] == {"a": "b"}
    assert answer.body["status"]["nominatedNodeName"] == "n"
