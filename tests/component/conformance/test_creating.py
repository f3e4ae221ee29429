"""POST."""

from typing import Any

import pytest

from tests.support.api_servers import Api, unique
from tests.support.conformance import Widgets, a_pod

Json = dict[str, Any]


async def test_a_created_object_gets_its_system_fields(api: Api, pods: str, namespace: str) -> None:
    answer = await api.post(pods, a_pod("p"))
    metadata = answer.body["metadata"]
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Pod", "v1")
    assert (metadata["name"], metadata["namespace"]) == ("p", namespace)
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"].endswith("Z")


async def test_a_uid_and_a_status_sent_by_the_client_are_dropped(api: Api, pods: str) -> None:
    body = {**a_pod("p", metadata={"uid": "mine"}), "status": {"nominatedNodeName": "n"}}
    answer = await api.created(pods, body)
    assert answer.uid != "mine"
    assert "nominatedNodeName" not in answer.body["status"]


async def test_a_generated_name_is_the_prefix_and_five_letters(api: Api, pods: str) -> None:
    answer = await api.created(pods, a_pod("", metadata={"generateName": "job-"}))
    name = answer.body["metadata"]["name"]
    assert name.startswith("job-")
    assert len(name) == len("job-") + 5
    again = await api.created(pods, a_pod("", metadata={"generateName": "job-"}))
    assert again.body["metadata"]["name"] != name


async def test_a_second_object_of_the_name_is_refused(api: Api, pods: str) -> None:
    first = await api.created(pods, a_pod("p"))
    answer = await api.post(pods, a_pod("p"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'pods "p" already exists'
    assert (await api.get(f"{pods}/p")).uid == first.uid


async def test_kind_and_version_may_be_left_out_for_built_in_kinds(
    api: Api, configmaps: str
) -> None:
    answer = await api.created(configmaps, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_name_that_is_no_subdomain_is_invalid(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod("P_1"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('Pod "P_1" is invalid: metadata.name: Invalid value: "P_1": ')
    assert answer.causes[0]["field"] == "metadata.name"


async def test_a_missing_name_is_invalid(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod(""))
    assert answer.status == 422
    assert answer.message == (
        'Pod "" is invalid: metadata.name: Required value: name or generateName is required'
    )


async def test_a_prefix_that_ends_in_a_dot_is_invalid(api: Api, configmaps: str) -> None:
    answer = await api.post(configmaps, {"metadata": {"generateName": "c."}})
    assert answer.status == 422
    assert "metadata.generateName: Invalid value" in answer.message


async def test_label_values_with_blanks_are_invalid(api: Api, pods: str) -> None:
    body = a_pod("p", metadata={"labels": {"product": "NVIDIA A100 80GB"}})
    answer = await api.post(pods, body)
    assert answer.status == 422
    assert answer.message.startswith(
        'Pod "p" is invalid: metadata.labels: Invalid value: "NVIDIA A100 80GB": a valid label must '
        "be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
    )


async def test_annotation_keys_with_blanks_are_invalid(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod("p", metadata={"annotations": {"a b": "c"}}))
    assert answer.status == 422
    assert 'metadata.annotations: Invalid value: "a b": name part must consist' in answer.message


async def test_a_namespace_that_does_not_exist_is_not_found(api: Api) -> None:
    name = unique("missing")
    answer = await api.post(f"/api/v1/namespaces/{name}/pods", a_pod("p"))
    assert (answer.status, answer.message) == (404, f'namespaces "{name}" not found')


async def test_another_namespace_in_the_body_is_a_bad_request(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod("p", metadata={"namespace": "other"}))
    assert (answer.status, answer.message) == (
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    )


async def test_an_object_of_another_kind_is_a_bad_request(api: Api, pods: str) -> None:
    answer = await api.post(pods, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "cannot be handled as a Pod" in answer.message


async def test_a_body_that_is_no_json_is_a_bad_request(api: Api, pods: str) -> None:
    answer = await api.call("POST", pods, b"{bad")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith("the object provided is unrecognized (must be of type Pod)")


async def test_a_body_that_is_no_object_is_a_bad_request(api: Api, pods: str) -> None:
    assert (await api.call("POST", pods, b"[]")).status == 400


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": "text"}, id="spec is text"),
        pytest.param({"spec": {"containers": {}}}, id="containers are no list"),
        pytest.param({"metadata": {"name": "p", "labels": {"a": 1}}}, id="a label is a number"),
        pytest.param({"metadata": []}, id="metadata is a list"),
    ],
)
async def test_a_value_of_the_wrong_type_is_a_bad_request(
    api: Api, pods: str, change: Json
) -> None:
    answer = await api.post(pods, {**a_pod("p"), **change})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a Pod: ' in answer.message


async def test_a_label_of_a_custom_resource_has_to_be_text(api: Api, widgets: Widgets) -> None:
    body = widgets.make("w", {"mode": "A"})
    body["metadata"]["labels"] = {"a": 1}
    assert (await api.post(widgets.path, body)).status == 400


async def test_an_unknown_media_type_is_unsupported(api: Api, pods: str) -> None:
    answer = await api.call("POST", pods, a_pod("p"), content_type="text/plain")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_a_dry_run_answers_as_if_and_stores_nothing(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod("p"), dryRun="All")
    assert answer.status == 201
    assert answer.uid
    assert (await api.get(f"{pods}/p")).status == 404


async def test_a_dry_run_meets_the_object_that_is_there(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    assert (await api.post(pods, a_pod("p"), dryRun="All")).status == 409


async def test_an_unknown_kind_of_dry_run_is_invalid(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod("p"), dryRun="Some")
    assert answer.status == 422
    assert "dryRun: Unsupported value" in answer.message


async def test_a_new_namespace_is_active_and_labelled_with_its_name(api: Api) -> None:
    name = unique("n")
    answer = await api.created("/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.body["status"]["phase"] == "Active"
    assert answer.body["metadata"]["labels"]["kubernetes.io/metadata.name"] == name


async def test_collections_of_namespaced_kinds_take_no_post_across_namespaces(api: Api) -> None:
    assert (await api.post("/api/v1/pods", a_pod("p"))).status == 405


async def test_nulls_in_built_in_kinds_count_as_absent(api: Api) -> None:
    name = unique("node")
    try:
        body = {"metadata": {"name": name}, "spec": {"podCIDR": None}}
        answer = await api.created("/api/v1/nodes", body)
        assert "podCIDR" not in answer.body["spec"]
    finally:
        await api.delete(f"/api/v1/nodes/{name}")


async def test_a_new_node_is_tainted_as_not_ready(api: Api) -> None:
    name = unique("node")
    try:
        answer = await api.created("/api/v1/nodes", {"metadata": {"name": name}})
        assert answer.body["spec"]["taints"] == [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        ]
    finally:
        await api.delete(f"/api/v1/nodes/{name}")
