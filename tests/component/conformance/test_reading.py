"""GET of objects and lists."""

import pytest

from tests.support.api_servers import Api, unique
from tests.support.conformance import a_pod


async def _three(api: Api, configmaps: str) -> None:
    for name, labels in (
        ("a", {"tier": "front", "env": "prod"}),
        ("b", {"tier": "back"}),
        ("c", {}),
    ):
        await api.created(configmaps, {"metadata": {"name": name, "labels": labels}})


async def test_an_object_is_read_back_as_it_was_answered(api: Api, pods: str) -> None:
    created = await api.created(pods, a_pod("p"))
    answer = await api.get(f"{pods}/p")
    assert (answer.status, answer.body) == (200, created.body)


async def test_a_missing_object_is_not_found(api: Api, pods: str) -> None:
    answer = await api.get(f"{pods}/nobody")
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'pods "nobody" not found'
    assert answer.body["details"] == {"name": "nobody", "kind": "pods"}


async def test_a_missing_object_of_a_group_is_named_with_it(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/nobody"
    assert (await api.get(path)).message == 'leases.coordination.k8s.io "nobody" not found'


async def test_a_kind_that_is_not_served_is_not_found(api: Api) -> None:
    assert (await api.get("/api/v1/gadgets")).status == 404
    assert (await api.get("/apis/nobody.example/v1/gadgets")).status == 404


async def test_a_list_has_kind_version_and_items(api: Api, configmaps: str) -> None:
    await _three(api, configmaps)
    answer = await api.get(configmaps)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert answer.names == ["a", "b", "c"]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in answer.body["items"])
    assert int(answer.version) >= newest


async def test_items_of_built_in_kinds_carry_no_kind_in_a_list(api: Api, configmaps: str) -> None:
    await _three(api, configmaps)
    item = (await api.get(configmaps)).body["items"][0]
    assert "kind" not in item
    assert "apiVersion" not in item


async def test_a_list_across_namespaces_holds_them_all(api: Api, pods: str, namespace: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.get("/api/v1/pods")
    found = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in answer.body["items"]]
    assert (namespace, "p") in found


async def test_an_empty_list_has_items_and_a_version(api: Api, configmaps: str) -> None:
    answer = await api.get(configmaps)
    assert answer.body["items"] == []
    assert int(answer.version) > 0


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param("tier=front", ["a"], id="equal"),
        pytest.param("tier==back", ["b"], id="double equal"),
        pytest.param("tier!=front", ["b", "c"], id="not equal takes the absent"),
        pytest.param("tier", ["a", "b"], id="exists"),
        pytest.param("!tier", ["c"], id="does not exist"),
        pytest.param("tier in (front, back)", ["a", "b"], id="in"),
        pytest.param("tier notin (front)", ["b", "c"], id="not in takes the absent"),
        pytest.param("tier=front,env=prod", ["a"], id="and"),
        pytest.param("tier in (front,back),!env", ["b"], id="set and absence"),
    ],
)
async def test_label_selectors_select(
    api: Api, configmaps: str, selector: str, want: object
) -> None:
    await _three(api, configmaps)
    assert (await api.get(configmaps, labelSelector=selector)).names == want


async def test_a_broken_label_selector_is_a_bad_request(api: Api, configmaps: str) -> None:
    answer = await api.get(configmaps, labelSelector="a in")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "unable to parse requirement" in answer.message


async def test_field_selectors_know_name_and_namespace(
    api: Api, configmaps: str, namespace: str
) -> None:
    await _three(api, configmaps)
    assert (await api.get(configmaps, fieldSelector="metadata.name=b")).names == ["b"]
    everywhere = f"metadata.name!=b,metadata.namespace={namespace},metadata.name!=kube-root-ca.crt"
    answer = await api.get("/api/v1/configmaps", fieldSelector=everywhere)
    assert answer.names == ["a", "c"]


async def test_field_selectors_of_pods_know_node_and_phase(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("bound", nodeName="node-of-this-test"))
    await api.created(pods, a_pod("waiting"))
    answer = await api.get(pods, fieldSelector="spec.nodeName=node-of-this-test")
    assert answer.names == ["bound"]
    assert (await api.get(pods, fieldSelector="spec.nodeName=")).names == ["waiting"]
    assert (await api.get(pods, fieldSelector="status.phase!=Pending")).names == []


async def test_an_unknown_field_selector_is_a_bad_request(api: Api, pods: str) -> None:
    answer = await api.get(pods, fieldSelector="spec.hostname=x")
    assert (answer.status, answer.message) == (400, "field label not supported: spec.hostname")


async def test_pages_add_up_to_the_list(api: Api, configmaps: str) -> None:
    await _three(api, configmaps)
    first = await api.get(configmaps, limit="2")
    assert first.names == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 1
    token = first.body["metadata"]["continue"]
    second = await api.get(configmaps, limit="2", **{"continue": token})
    assert second.names == ["c"]
    assert not second.body["metadata"].get("continue")


async def test_a_later_page_shows_the_state_of_the_first(api: Api, configmaps: str) -> None:
    await _three(api, configmaps)
    first = await api.get(configmaps, limit="1")
    await api.delete(f"{configmaps}/c")
    await api.created(configmaps, {"metadata": {"name": "d"}})
    token = first.body["metadata"]["continue"]
    second = await api.get(configmaps, limit="5", **{"continue": token})
    assert second.names == ["b", "c"]
    assert second.version == first.version


async def test_a_broken_continue_token_is_a_bad_request(api: Api, configmaps: str) -> None:
    answer = await api.get(configmaps, limit="1", **{"continue": "xx"})
    assert answer.status == 400


async def test_a_version_from_the_future_times_out(api: Api, configmaps: str) -> None:
    answer = await api.get(configmaps, resourceVersion="999999999")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith("Timeout: Too large resource version: 999999999, current: ")


async def test_a_version_that_is_no_number_fails(api: Api, configmaps: str) -> None:
    assert (await api.get(configmaps, resourceVersion="abc")).status in {400, 500}


async def test_health_and_version_answer(api: Api) -> None:
    assert (await api.get("/healthz")).body == "ok"
    assert (await api.get("/readyz")).body == "ok"
    assert (await api.get("/version")).body["major"] == "1"


async def test_priority_classes_of_the_system_are_there(api: Api) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"
    assert (await api.get(path)).body["value"] == 2000001000


async def test_every_cluster_has_its_namespaces(api: Api) -> None:
    for name in ("default", "kube-system"):
        assert (await api.get(f"/api/v1/namespaces/{name}")).status == 200
    assert (await api.get(f"/api/v1/namespaces/{unique('no')}")).status == 404
