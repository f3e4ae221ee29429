"""WATCH."""

from tests.support.api_servers import JSON_PATCH, Api
from tests.support.conformance import a_pod


async def test_a_watch_from_a_version_shows_what_came_after_it(api: Api, configmaps: str) -> None:
    await api.created(configmaps, {"metadata": {"name": "before"}})
    version = (await api.get(configmaps)).version
    await api.created(configmaps, {"metadata": {"name": "c"}})
    await api.merge(f"{configmaps}/c", {"data": {"a": "b"}})
    await api.delete(f"{configmaps}/c")
    async with api.watch(configmaps, resourceVersion=version) as events:
        assert await events.next_change() == ("ADDED", "c")
        assert await events.next_change() == ("MODIFIED", "c")
        assert await events.next_change() == ("DELETED", "c")


async def test_a_watch_shows_changes_as_they_happen(api: Api, configmaps: str) -> None:
    version = (await api.get(configmaps)).version
    async with api.watch(configmaps, resourceVersion=version) as events:
        await api.created(configmaps, {"metadata": {"name": "c"}})
        assert await events.next_change() == ("ADDED", "c")


async def test_events_carry_whole_objects_with_growing_versions(api: Api, configmaps: str) -> None:
    version = (await api.get(configmaps)).version
    created = await api.created(configmaps, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    await api.delete(f"{configmaps}/c")
    async with api.watch(configmaps, resourceVersion=version) as events:
        added, deleted = await events.next(), await events.next()
    assert added["object"] == created.body
    assert deleted["object"]["data"] == {"a": "b"}
    assert deleted["object"]["kind"] == "ConfigMap"
    versions = [int(item["object"]["metadata"]["resourceVersion"]) for item in (added, deleted)]
    assert int(version) < versions[0] < versions[1]


async def test_a_watch_without_a_version_starts_with_what_is_there(
    api: Api, configmaps: str
) -> None:
    for name in ("a", "b"):
        await api.created(configmaps, {"metadata": {"name": name}})
    for version in ("", "0"):
        async with api.watch(configmaps, resourceVersion=version) as events:
            found = {await events.next_change(), await events.next_change()}
            assert found == {("ADDED", "a"), ("ADDED", "b")}


async def test_a_watch_of_one_namespace_shows_no_other(api: Api, configmaps: str) -> None:
    other = (await api.created("/api/v1/namespaces", {"metadata": {"generateName": "o-"}})).body
    elsewhere = f"/api/v1/namespaces/{other['metadata']['name']}/configmaps"
    version = (await api.get(configmaps)).version
    async with api.watch(configmaps, resourceVersion=version) as events:
        await api.created(elsewhere, {"metadata": {"name": "elsewhere"}})
        await api.created(configmaps, {"metadata": {"name": "here"}})
        assert await events.next_change() == ("ADDED", "here")


async def test_entering_and_leaving_a_label_selection_is_adding_and_deleting(
    api: Api, configmaps: str
) -> None:
    version = (await api.get(configmaps)).version
    path = f"{configmaps}/c"
    selector = {"labelSelector": "in=yes", "resourceVersion": version}
    async with api.watch(configmaps, **selector) as events:
        await api.created(configmaps, {"metadata": {"name": "c"}})
        await api.merge(path, {"metadata": {"labels": {"in": "yes"}}})
        assert await events.next_change() == ("ADDED", "c")
        await api.merge(path, {"data": {"a": "b"}})
        assert await events.next_change() == ("MODIFIED", "c")
        left = await api.merge(path, {"metadata": {"labels": {"in": "no"}}})
        event = await events.next()
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["resourceVersion"] == left.version
        assert event["object"]["metadata"]["labels"] == {"in": "yes"}


async def test_binding_moves_a_pod_between_field_selections(api: Api, pods: str) -> None:
    version = (await api.get(pods)).version
    query = {"fieldSelector": "spec.nodeName=", "resourceVersion": version}
    async with api.watch(pods, **query) as events:
        await api.created(pods, a_pod("p"))
        assert await events.next_change() == ("ADDED", "p")
        body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
        await api.created(f"{pods}/p/binding", body)
        assert await events.next_change() == ("DELETED", "p")


async def test_a_watch_ends_cleanly_at_its_time_out(api: Api, configmaps: str) -> None:
    version = (await api.get(configmaps)).version
    async with api.watch(configmaps, resourceVersion=version, timeoutSeconds="1") as events:
        await events.end()


async def test_a_streamed_list_marks_the_end_of_the_initial_events(
    api: Api, configmaps: str
) -> None:
    await api.created(configmaps, {"metadata": {"name": "c"}})
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(configmaps, **query) as events:
        first, second = await events.next(), await events.next()
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "c")
    assert second["type"] == "BOOKMARK"
    annotations = second["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_a_write_that_changes_nothing_is_no_event(api: Api, configmaps: str) -> None:
    created = await api.created(configmaps, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    same = await api.merge(f"{configmaps}/c", {"data": {"a": "b"}})
    assert same.version == created.version
    patch = [{"op": "replace", "path": "/data/a", "value": "c"}]
    await api.call("PATCH", f"{configmaps}/c", patch, content_type=JSON_PATCH)
    async with api.watch(configmaps, resourceVersion=created.version) as events:
        event = await events.next()
    assert event["object"]["data"] == {"a": "c"}


async def test_a_listed_version_and_its_watch_leave_no_gap(api: Api, configmaps: str) -> None:
    listed = await api.get(configmaps)
    for index in range(20):
        await api.created(configmaps, {"metadata": {"name": f"c{index}"}})
    async with api.watch(configmaps, resourceVersion=listed.version) as events:
        found = [await events.next_change() for _ in range(20)]
    assert [name for _, name in found] == [f"c{index}" for index in range(20)]
