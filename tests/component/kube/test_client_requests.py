"""What a request looks like on the wire."""

import msgspec
import pytest
import structlog

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.errors import Gone, Undecodable
from kube.resources import GPU_POOLS, NODES, PODS
from telemetry.metrics import REGISTRY
from tests.support.canned_api import CannedApi, Json, a_list, status

pytestmark = pytest.mark.looptime

POD = {"metadata": {"name": "p", "namespace": "a", "resourceVersion": "7"}}
POOL = {"apiVersion": "v", "kind": "GPUPool", "metadata": {"name": "whole"}}


def decode_errors(resource: str) -> float:
    labels = {"resource": resource}
    return REGISTRY.get_sample_value("gpu_informer_decode_errors_total", labels) or 0.0


@pytest.fixture(autouse=True)
def _anything_goes(api: CannedApi) -> None:
    api.always = Json(POD)


async def test_the_token_and_who_asks_are_in_every_request(
    api: CannedApi, client: KubeClient
) -> None:
    await client.get(PODS, Pod, "p", namespace="a")
    assert api.seen[0].headers["Authorization"] == "Bearer t0"
    assert api.seen[0].headers["User-Agent"] == "gpu-control-plane"
    assert "gzip" not in api.seen[0].headers["Accept-Encoding"]


async def test_create_finds_the_namespace_in_the_body(api: CannedApi, client: KubeClient) -> None:
    created = (await client.create(PODS, POD)).decode(Pod)
    assert created.metadata.resource_version == "7"
    assert (api.seen[0].method, api.seen[0].path) == ("POST", "/api/v1/namespaces/a/pods")
    assert api.seen[0].json == POD


async def test_create_of_a_binding_names_the_pod(api: CannedApi, client: KubeClient) -> None:
    await client.create(PODS, POD, subresource="binding")
    assert api.seen[0].method == "POST"
    assert api.seen[0].path == "/api/v1/namespaces/a/pods/p/binding"


async def test_bytes_are_sent_as_they_are(api: CannedApi, client: KubeClient) -> None:
    await client.create(PODS, b'{"metadata": {"namespace":"a"} }')
    assert api.seen[0].body == b'{"metadata": {"namespace":"a"} }'


async def test_the_answer_can_be_had_as_it_came(client: KubeClient) -> None:
    answer = await client.create(PODS, POD)
    assert msgspec.json.decode(answer.body) == POD


async def test_replace_is_a_put(api: CannedApi, client: KubeClient) -> None:
    await client.replace(PODS, POD, subresource="status")
    assert api.seen[0].method == "PUT"
    assert api.seen[0].path == "/api/v1/namespaces/a/pods/p/status"


async def test_apply_sends_json_under_the_only_content_type_the_server_takes(
    api: CannedApi, client: KubeClient
) -> None:
    await client.apply(GPU_POOLS, POOL, field_manager="m", subresource="status")
    await client.apply(GPU_POOLS, POOL, field_manager="m", force=False)
    assert api.seen[0].method == "PATCH"
    assert api.seen[0].headers["Content-Type"] == "application/apply-patch+yaml"
    assert api.seen[0].path == "/apis/gpu.deckhouse.io/v1alpha1/gpupools/whole/status"
    assert api.seen[0].query == {"fieldManager": "m", "force": "true"}
    assert api.seen[1].query == {"fieldManager": "m"}


async def test_patches_differ_by_content_type(api: CannedApi, client: KubeClient) -> None:
    await client.merge_patch(PODS, {"a": None}, name="p", namespace="a")
    await client.json_patch(PODS, [{"op": "test"}], name="p", namespace="a", subresource="status")
    assert [seen.headers["Content-Type"] for seen in api.seen] == [
        "application/merge-patch+json",
        "application/json-patch+json",
    ]
    assert api.seen[0].json == {"a": None}


async def test_delete_can_insist_on_the_uid(api: CannedApi, client: KubeClient) -> None:
    await client.delete(
        PODS, "p", namespace="a", uid="u1", propagation="Foreground", grace_period_s=0
    )
    assert api.seen[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param({"metadata": {"name": "p"}}, "namespace", id="no namespace"),
        pytest.param(b"nonsense", "no Pod", id="no JSON"),
        pytest.param([1], "no Pod", id="no object"),
    ],
)
async def test_a_body_that_makes_no_request_is_refused_here(
    api: CannedApi, client: KubeClient, body: object, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        await client.create(PODS, body)
    with pytest.raises(ValueError, match="which GPUPool"):
        await client.replace(GPU_POOLS, {})
    assert api.seen == []


async def test_a_list_is_asked_for_without_version_and_without_pages(
    api: CannedApi, client: KubeClient
) -> None:
    api.will_answer(a_list(POD, version="42"))
    listing = await client.list_(PODS, Pod, label_selector="a in (b,c)", field_selector="x=y")
    assert api.seen[0].query == {"labelSelector": "a in (b,c)", "fieldSelector": "x=y"}
    assert listing.resource_version == "42"
    assert [pod.metadata.name for pod in listing.items] == ["p"]


async def test_an_object_that_does_not_fit_is_skipped_counted_and_named(
    api: CannedApi, client: KubeClient
) -> None:
    before = decode_errors("pods")
    bad = {"metadata": {"name": "bad", "namespace": "a"}, "spec": {"priority": "high"}}
    worse = {"metadata": "none"}
    api.will_answer(a_list(POD, bad, worse, POD))
    with structlog.testing.capture_logs() as logs:
        listing = await client.list_(PODS, Pod)
    assert len(listing.items) == 2
    assert listing.undecodable == 2
    assert decode_errors("pods") == before + 2
    assert [line["object"] for line in logs] == ["a/bad", ""]


async def test_a_list_of_thousands_is_complete(api: CannedApi, client: KubeClient) -> None:
    api.will_answer(a_list(*[{"metadata": {"name": f"n{i}"}} for i in range(1201)]))
    listing = await client.list_(NODES, Pod)
    assert [item.metadata.name for item in listing.items] == [f"n{i}" for i in range(1201)]


async def test_pages_are_put_together(api: CannedApi, client: KubeClient) -> None:
    api.will_answer(a_list(POD, **{"continue": "c1"}), a_list(POD, POD, version="10"))
    listing = await client.list_(PODS, Pod, page_size=1)
    assert len(listing.items) == 3
    assert [seen.query for seen in api.seen] == [{"limit": "1"}, {"limit": "1", "continue": "c1"}]


async def test_a_token_that_expires_between_pages_is_gone(
    api: CannedApi, client: KubeClient
) -> None:
    api.will_answer(a_list(POD, **{"continue": "c1"}), Json(status(410, "Expired"), 410))
    with pytest.raises(Gone):
        await client.list_(PODS, Pod, page_size=1)


@pytest.mark.parametrize(
    "body", [{}, {"metadata": {}}, {"metadata": {"resourceVersion": "1"}, "items": {}}, [], "x"]
)
async def test_what_is_no_list_is_undecodable(
    api: CannedApi, client: KubeClient, body: object
) -> None:
    api.will_answer(Json(body))
    with pytest.raises(Undecodable):
        await client.list_(PODS, Pod)
