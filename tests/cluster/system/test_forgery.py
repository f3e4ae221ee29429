"""No other account writes our annotations, by any request."""

import contextlib

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system import objects

FORGED = {
    objects.DEVICES_KEY: '{"main":["GPU-of-somebody-else"]}',
    objects.RESERVATION_KEY: '{"id":"guessed","pool":"any"}',
}


@pytest.fixture
async def alice(api, control_plane, namespace):
    """A client of a user who may do everything with pods in the namespace."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    everything = ["pods", "pods/status", "pods/binding", "bindings"]
    await api.create(
        f"{rbac}/roles",
        {
            "metadata": {"name": "pods"},
            "rules": [{"apiGroups": [""], "resources": everything, "verbs": ["*"]}],
        },
    )
    await api.create(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "pods"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
            ],
        },
    )
    async with client.open_client(control_plane.kubeconfig("alice")) as opened:

        async def may() -> bool:
            with contextlib.suppress(client.ApiRefusedError):
                return bool(await opened.get(pods.collection(namespace)))
            return False

        await polling.eventually(may, what="the rights of alice")
        yield opened


@pytest.fixture(params=["alice", "cluster-admin"])
def forger(request, api, alice):
    return alice if request.param == "alice" else api


async def is_refused(writing) -> None:
    with pytest.raises(client.ApiRefusedError) as refused:
        await writing
    assert refused.value.status == 403
    assert "only the GPU control plane may set or change" in refused.value.message
    assert "leave it out" in refused.value.message


async def test_forged_annotations_of_a_new_pod_are_taken_off(make_pool, api, alice, namespace):
    pool = await make_pool(devices=2)
    await alice.create(pods.collection(namespace), objects.a_pod("gpu", pool, annotations=FORGED))
    plain = await alice.create(pods.collection(namespace), pods.a_pod("plain", annotations=FORGED))

    assert not FORGED.keys() & plain["metadata"].get("annotations", {}).keys()
    bound = await pods.wait_for_pod(api, namespace, "gpu")
    objects.check_devices([bound])
    assert objects.reservation_of(bound)["devices"] == objects.devices_of(bound)


async def test_reservation_of_another_pod_is_of_no_use(make_pool, api, alice, namespace):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), objects.a_pod("owner", pool))
    owner = await pods.wait_for_pod(api, namespace, "owner")
    copied = {objects.RESERVATION_KEY: owner["metadata"]["annotations"][objects.RESERVATION_KEY]}

    await alice.create(pods.collection(namespace), objects.a_pod("thief", pool, annotations=copied))

    thief = await pods.wait_for_pod(api, namespace, "thief")
    objects.check_devices([owner, thief])
    assert objects.reservation_of(thief)["id"] != objects.reservation_of(owner)["id"]


@pytest.mark.parametrize("key", FORGED)
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_annotation_of_a_stored_pod_cannot_be_changed(
    key, subresource, make_pool, api, forger, namespace
):
    pool = await make_pool(devices=1)
    await api.create(pods.collection(namespace), objects.a_pod("gpu", pool))
    await pods.wait_for_pod(api, namespace, "gpu")
    path = f"{pods.collection(namespace)}/gpu{subresource}"
    for value in (FORGED[key], None):
        await is_refused(forger.patch(path, {"metadata": {"annotations": {key: value}}}))


async def test_devices_cannot_be_brought_by_a_binding(make_pool, system, api, forger, namespace):
    pool = await make_pool(devices=1)
    await system.scheduler.stop()
    await api.create(pods.collection(namespace), objects.a_pod("gpu", pool))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "gpu",
            "namespace": namespace,
            "annotations": {objects.DEVICES_KEY: FORGED[objects.DEVICES_KEY]},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": pool.nodes[0]},
    }
    await is_refused(forger.create(f"{pods.collection(namespace)}/gpu/binding", binding))
    await is_refused(forger.create(f"/api/v1/namespaces/{namespace}/bindings", binding))
    assert not pods.is_bound(await api.get(f"{pods.collection(namespace)}/gpu"))


async def test_end_of_a_pod_that_runs_cannot_be_forged(make_pool, api, forger, namespace):
    """Its devices would be another pod's while its containers run."""
    pool = await make_pool(devices=1)
    await api.create(pods.collection(namespace), objects.a_pod("victim", pool))
    await pods.wait_for_pod(api, namespace, "victim", pods.is_running)
    path = f"{pods.collection(namespace)}/victim/status"
    for phase in ("Succeeded", "Failed"):
        with pytest.raises(
            client.ApiRefusedError, match="only its node and the pod garbage collector"
        ):
            await forger.patch(path, {"status": {"phase": phase}})
