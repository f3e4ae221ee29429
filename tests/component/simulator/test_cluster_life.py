"""What the server does in place of controllers, and how it fares with many objects."""

import asyncio

from tests.support.api_servers import Api
from tests.support.conformance import CRDS, a_definition, a_pod

NAMESPACES = "/api/v1/namespaces"


async def test_a_deleted_namespace_takes_its_objects_with_it(api: Api) -> None:
    await api.created(NAMESPACES, {"metadata": {"name": "n"}})
    pods = f"{NAMESPACES}/n/pods"
    await api.created(pods, a_pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"name": "node"}}
    await api.created(f"{pods}/p/binding", binding)
    await api.created(f"{NAMESPACES}/n/secrets", {"metadata": {"name": "s"}})
    version = (await api.get("/api/v1/pods")).version
    await api.delete(f"{NAMESPACES}/n")
    assert (await api.get(f"{NAMESPACES}/n")).status == 404
    assert (await api.get("/api/v1/secrets")).names == []
    async with api.watch("/api/v1/pods", resourceVersion=version) as events:
        assert await events.next_change() == ("DELETED", "p")


async def test_a_namespace_waits_for_finalizers(api: Api) -> None:
    await api.created(NAMESPACES, {"metadata": {"name": "n"}})
    configmaps = f"{NAMESPACES}/n/configmaps"
    metadata = {"name": "c", "finalizers": ["example.com/hold"]}
    await api.created(configmaps, {"metadata": metadata})
    await api.delete(f"{NAMESPACES}/n")
    assert (await api.get(f"{NAMESPACES}/n")).body["status"]["phase"] == "Terminating"
    await api.merge(f"{configmaps}/c", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{NAMESPACES}/n")).status == 404


async def test_the_namespaces_of_the_system_stay(api: Api) -> None:
    answer = await api.delete(f"{NAMESPACES}/kube-system")
    assert (answer.status, answer.reason) == (403, "Forbidden")


async def test_a_deleted_definition_takes_its_objects_with_it(api: Api) -> None:
    await api.created(CRDS, a_definition("g.example"))
    path = "/apis/g.example/v1/widgets"
    body = {"apiVersion": "g.example/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await api.created(path, {**body, "spec": {"mode": "A"}})
    await api.delete(f"{CRDS}/widgets.g.example")
    assert (await api.get(path)).status == 404
    await api.created(CRDS, a_definition("g.example"))
    assert (await api.get(path)).names == []


async def test_a_changed_schema_holds_from_then_on(api: Api) -> None:
    definition = (await api.created(CRDS, a_definition("g.example"))).body
    path = "/apis/g.example/v1/widgets"
    body = {"apiVersion": "g.example/v1", "kind": "Widget", "metadata": {"name": "w"}}
    assert (await api.post(path, {**body, "spec": {"mode": "C"}})).status == 422
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["mode"]["enum"].append("C")
    await api.put(f"{CRDS}/widgets.g.example", definition)
    assert (await api.post(path, {**body, "spec": {"mode": "C"}})).status == 201


async def test_a_second_served_version_is_refused(api: Api) -> None:
    definition = a_definition("g.example")
    (version,) = definition["spec"]["versions"]
    more = {**version, "name": "v2", "storage": False}
    definition["spec"]["versions"] = [version, more]
    answer = await api.post(CRDS, definition)
    assert answer.status == 422
    assert "serves one version only" in answer.message


async def test_pods_run_as_the_default_service_account(api: Api) -> None:
    answer = await api.created(f"{NAMESPACES}/default/pods", a_pod("p"))
    assert answer.body["spec"]["serviceAccountName"] == "default"


async def test_writes_stay_whole_under_many_writers(api: Api) -> None:
    """Two hundred creations and as many patches at once: each lands once, versions never repeat."""
    configmaps = f"{NAMESPACES}/default/configmaps"
    version = (await api.get(configmaps)).version

    async def make(index: int) -> None:
        await api.created(configmaps, {"metadata": {"name": f"c{index}"}})
        await api.merge(f"{configmaps}/c{index}", {"data": {"index": str(index)}})

    async with asyncio.TaskGroup() as group:
        for index in range(100):
            group.create_task(make(index))
    async with api.watch(configmaps, resourceVersion=version) as events:
        seen = [await events.next() for _ in range(200)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    assert len((await api.get(configmaps)).names) == 100
