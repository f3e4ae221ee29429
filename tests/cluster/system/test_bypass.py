"""Ways around us: they are closed, or noticed."""

import aiohttp
import pytest

from tests.cluster.environment import pods
from tests.cluster.system.certificates import until_repaired
from tests.cluster.system.objects import a_pod
from tests.cluster.system.other_webhooks import REGISTRATION

MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations/zz-gpu-control-plane"


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_nobody_without_a_certificate_may_call_the_extender(verb, system):
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{system.url}/scheduler/{verb}", json={}, ssl=False) as answer,
    ):
        assert answer.status == 401


@pytest.mark.parametrize("user", ["alice", "admin"])
async def test_user_with_a_token_of_the_cluster_may_not_call_the_extender(
    user, make_pool, system, api, control_plane, namespace
):
    """Neither with no rights nor with all of them: the extender knows no users of Kubernetes."""
    pool = await make_pool(devices=1)
    await system.scheduler.stop()
    pod = await api.create(pods.collection(namespace), a_pod("gpu", pool))
    args = {
        "PodName": "gpu",
        "PodNamespace": namespace,
        "PodUID": pod["metadata"]["uid"],
        "Node": pool.nodes[0],
    }
    headers = {"Authorization": f"Bearer {control_plane.token(user)}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{system.url}/scheduler/bind", json=args, ssl=False) as answer,
    ):
        assert answer.status == 401
    assert not pods.is_bound(await api.get(f"{pods.collection(namespace)}/gpu"))


async def test_pod_bound_by_somebody_else_closes_its_node_until_it_ends(
    make_pool, system, api, namespace, figures
):
    pool = await make_pool(devices=2)
    await system.scheduler.stop()
    await api.create(pods.collection(namespace), a_pod("stray", pool))
    binding = {"metadata": {"name": "stray"}, "target": {"name": pool.nodes[0]}}
    await api.create(f"{pods.collection(namespace)}/stray/binding", binding)
    await pods.wait_for_pod(api, namespace, "stray", pods.is_running)
    await system.scheduler.start()

    await api.create(pods.collection(namespace), a_pod("next", pool))

    waiting = await pods.wait_for_pod(api, namespace, "next", pods.is_unschedulable)
    message = pods.scheduled_condition(waiting)["message"]
    assert "node runs a pod with unknown devices" in message
    await pods.finish_pod(api, namespace, "stray")
    await pods.wait_for_pod(api, namespace, "next")
    await figures(pool, used=1, available=1)


async def test_ca_bundle_that_somebody_removed_is_put_back(make_pool, api, namespace):
    pool = await make_pool(devices=1)
    configuration = await api.get(MUTATING)
    assert configuration["webhooks"][0]["clientConfig"]["caBundle"]
    remove = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    await api.patch(MUTATING, remove, kind="json")

    await until_repaired(api, namespace, pool, MUTATING)

    await api.create(pods.collection(namespace), a_pod("gpu", pool))
    await pods.wait_for_pod(api, namespace, "gpu")
