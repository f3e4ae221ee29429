"""What is refused at admission, and whether the words say what is wrong and what to do."""

import pytest

from tests.cluster.environment import client, pods
from tests.cluster.system.objects import DEVICES_KEY, a_container, a_pod

MAX_ANNOTATIONS_BYTES = 262_144
WRITTEN_BY_US = 1_138
"""At most, about a pod whose one container `main` asks for one unit (`admission.pods.size_limits`)."""


async def refusal_of(api, namespace: str, pod) -> client.ApiRefusedError:
    with pytest.raises(client.ApiRefusedError) as refused:
        await api.create(pods.collection(namespace), pod)
    assert 'admission webhook "pods.gpu.deckhouse.io" denied the request' in refused.value.message
    return refused.value


async def test_namespace_without_access(make_pool, api, namespace):
    pool = await make_pool(devices=1, access={"namespaces": ["ml-team"]})
    refused = await refusal_of(api, namespace, a_pod("homework", pool))
    assert refused.status == 403
    for word in (pool.name, namespace, "ask its operator to extend spec.access"):
        assert word in refused.message
    assert "ml-team" not in refused.message


async def test_pod_whose_annotations_just_leave_room_is_bound_and_its_status_can_be_written(
    make_pool, api, namespace
):
    """A Binding adds annotations that nobody counts; the sum is judged at every write after it."""
    pool = await make_pool(devices=1)
    await api.create(pods.collection(namespace), a_pod("first", pool))
    await pods.wait_for_pod(api, namespace, "first")
    length = MAX_ANNOTATIONS_BYTES - WRITTEN_BY_US - len("notes")
    refused = await refusal_of(
        api, namespace, a_pod("p", pool, annotations={"notes": "x" * (length + 1)})
    )
    assert refused.status == 422
    assert f"takes up to {WRITTEN_BY_US}: Kubernetes takes 262144 in all" in refused.message

    await api.create(
        pods.collection(namespace), a_pod("waits", pool, annotations={"notes": "x" * length})
    )
    await pods.wait_for_pod(api, namespace, "waits", pods.is_unschedulable)
    await pods.finish_pod(api, namespace, "first")

    bound = await pods.wait_for_pod(api, namespace, "waits")
    annotations = bound["metadata"]["annotations"]
    assert DEVICES_KEY in annotations
    assert sum(len(key) + len(value) for key, value in annotations.items()) > 262_144 - 1_138
    await pods.finish_pod(api, namespace, "waits")


async def test_pod_that_costs_more_than_one_decision_may_is_refused_by_its_field(
    make_pool, api, namespace
):
    pool = await make_pool(devices=8)
    nowhere = {"key": "a", "operator": "In", "values": [f"{n:06x}" for n in range(60_000)]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [nowhere]}]}
    long = a_pod("long", pool)
    long["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    refused = await refusal_of(api, namespace, long)
    assert refused.status == 422
    assert "TooLarge: spec.affinity is too large: it has more than 20000 values" in refused.message

    many = a_pod("many", pool, 8)
    many["spec"]["initContainers"] = [a_container(f"i{n}", pool, 8) for n in range(300)]
    refused = await refusal_of(api, namespace, many)
    assert refused.status == 422
    assert "request 2408 units in total, at most 2048 are allowed" in refused.message


async def test_exhausted_pool_warns_and_the_pod_runs_when_units_are_free(
    make_pool, api, kubectl, namespace
):
    pool = await make_pool(devices=1)
    await api.create(pods.collection(namespace), a_pod("first", pool))
    await pods.wait_for_pod(api, namespace, "first", pods.is_running)
    waiting = a_pod("second", pool)
    waiting["metadata"]["namespace"] = namespace
    done = await kubectl.apply_yaml(waiting)
    assert f"Warning: the pod waits: GPU pool {pool.name} has 0 of 1 free, 1 wanted" in done.stderr
    await pods.wait_for_pod(api, namespace, "second", pods.is_unschedulable)

    await pods.finish_pod(api, namespace, "first")

    await pods.wait_for_pod(api, namespace, "second")


async def test_pod_with_a_node_of_its_own_choice(make_pool, api, namespace):
    pool = await make_pool(devices=1)
    pod = a_pod("pinned", pool)
    pod["spec"]["nodeName"] = pool.nodes[0]
    refused = await refusal_of(api, namespace, pod)
    assert "nodeName" in refused.message
