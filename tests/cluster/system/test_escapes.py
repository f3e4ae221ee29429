"""Ways to a pool that is not open to the pod, or to devices beyond the pool asked for: all are closed."""

import contextlib

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_container, a_deployment, a_pod, check_devices, units_of
from tests.cluster.system.test_refusals import refusal_of

CLOSED = {"access": {"namespaces": ["ml-team"]}}


async def is_invalid(writing) -> None:
    with pytest.raises(client.ApiRefusedError) as refused:
        await writing
    assert refused.value.status in {403, 422}, refused.value


async def a_plain_pod(api, namespace) -> str:
    await api.create(pods.collection(namespace), pods.a_pod("plain", limits={"cpu": "10m"}))
    return f"{pods.collection(namespace)}/plain"


async def test_init_container_meets_the_same_rules(make_pool, api, namespace):
    pool = await make_pool(devices=1, **CLOSED)
    for restart in ({}, {"restartPolicy": "Always"}):
        pod = pods.a_pod("hidden")
        pod["spec"]["initContainers"] = [a_container("init", pool, 1, **restart)]
        refused = await refusal_of(api, namespace, pod)
        assert "is not open to this pod" in refused.message


async def test_ephemeral_container_cannot_ask(make_pool, api, namespace):
    pool = await make_pool(devices=1)
    path = await a_plain_pod(api, namespace)
    container = a_container("debug", pool, 1)
    body = {"spec": {"ephemeralContainers": [container]}}
    await is_invalid(api.patch(f"{path}/ephemeralcontainers", body, kind="strategic"))
    pod = pods.a_pod("born-with-it")
    pod["spec"]["ephemeralContainers"] = [container]
    await is_invalid(api.create(pods.collection(namespace), pod))


@pytest.mark.parametrize("subresource", ["", "/resize", "/status"])
async def test_stored_pod_cannot_come_to_ask(subresource, make_pool, api, namespace):
    pool = await make_pool(devices=1)
    path = await a_plain_pod(api, namespace)
    amounts = {pool.resource: "1"}
    resources = {"limits": amounts, "requests": amounts}
    body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    with contextlib.suppress(client.ApiRefusedError):  # pods/status takes it and drops it
        changed = await api.patch(path + subresource, body, kind="strategic")
        assert pool.resource not in str(changed["spec"])
    assert pool.resource not in str((await api.get(path))["spec"])


@pytest.mark.parametrize("subresource", ["", "/resize"])
async def test_pod_cannot_grow_in_its_pool(subresource, make_pool, api, namespace, figures):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("gpu", pool))
    await pods.wait_for_pod(api, namespace, "gpu", pods.is_running)
    amounts = {pool.resource: "2"}
    resources = {"limits": amounts, "requests": amounts}
    body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    path = f"{pods.collection(namespace)}/gpu{subresource}"
    await is_invalid(api.patch(path, body, kind="strategic"))
    await figures(pool, used=1, available=1)


async def test_resources_of_the_pod_as_a_whole_cannot_ask(make_pool, api, namespace):
    pool = await make_pool(devices=1, **CLOSED)
    pod = pods.a_pod("whole")
    pod["spec"]["resources"] = {"limits": {pool.resource: "1"}}
    await is_invalid(api.create(pods.collection(namespace), pod))


async def test_pod_of_a_controller_meets_the_same_rules(make_pool, api, namespace):
    """A Deployment is no way in for who may not ask: its pods are checked, not its author."""
    pool = await make_pool(devices=1, **CLOSED)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    await api.create(path, a_deployment("workload", pool, replicas=1))

    async def reported() -> bool:
        conditions = (await api.conditions(f"{path}/workload")).values()
        return any(
            "is not open to this pod" in condition.get("message", "") for condition in conditions
        )

    await polling.eventually(reported, what="the refusal in the Deployment's conditions")
    assert (await api.get(pods.collection(namespace)))["items"] == []


async def test_owner_written_by_the_user_opens_nothing(make_pool, api, namespace):
    pool = await make_pool(devices=1, **CLOSED)
    pod = a_pod("owned", pool)
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u", "controller": True}
    ]
    await refusal_of(api, namespace, pod)


async def test_labels_and_annotations_of_the_user_open_nothing(make_pool, api, namespace):
    pool = await make_pool(devices=1, **CLOSED)
    claims = {"kubernetes.io/config.source": "file", "gpu.deckhouse.io/pool": pool.name}
    labels = {"gpu.deckhouse.io/webhook": "ignore", "gpu.deckhouse.io/ignore": "true"}
    await refusal_of(api, namespace, a_pod("labelled", pool, labels=labels, annotations=claims))


async def test_label_taken_off_the_namespace_closes_the_pool_to_new_pods(make_pool, api, namespace):
    """The check is made at creation: what runs goes on."""
    path = f"/api/v1/namespaces/{namespace}"
    await api.patch(path, {"metadata": {"labels": {"team": namespace}}})
    selector = {"namespaceSelector": {"matchLabels": {"team": namespace}}}
    pool = await make_pool(devices=2, access=selector)
    await api.create(pods.collection(namespace), a_pod("before", pool))
    await pods.wait_for_pod(api, namespace, "before", pods.is_running)

    await api.patch(path, {"metadata": {"labels": {"team": None}}})

    async def is_refused() -> bool:
        try:
            await api.create(pods.collection(namespace), a_pod("after-", pool), dryRun="All")
        except client.ApiRefusedError as refused:
            return "is not open to this pod" in refused.message
        return False

    await polling.eventually(is_refused, what="the refusal")
    assert pods.is_running(await api.get(f"{pods.collection(namespace)}/before"))


async def test_other_pool_tolerated_and_pinned_gives_none_of_its_devices(
    make_pool, api, namespace, figures
):
    """A pod that tolerates another pool's taint and names its node still comes to its own pool only.

    Without a pool it may be placed there, as any pod that tolerates a taint, and is given no device.
    """
    taint = {"key": "gpu.deckhouse.io/secret", "value": "x", "effect": "NoSchedule"}
    other = await make_pool(devices=1, scheduling={"taints": [taint]}, **CLOSED)
    pool = await make_pool(devices=1)
    there = {"kubernetes.io/hostname": other.nodes[0]}
    tolerations = [{"operator": "Exists"}]

    pinned = a_pod("pinned", pool)
    pinned["spec"] |= {"nodeSelector": there, "tolerations": tolerations}
    await api.create(pods.collection(namespace), pinned)
    tolerant = a_pod("tolerant", pool)
    tolerant["spec"] |= {"tolerations": tolerations}
    await api.create(pods.collection(namespace), tolerant)
    plain = pods.a_pod("plain")
    plain["spec"] |= {"nodeName": other.nodes[0], "tolerations": tolerations}
    await api.create(pods.collection(namespace), plain)

    bound = await pods.wait_for_pod(api, namespace, "tolerant")
    check_devices([bound])
    assert bound["spec"]["nodeName"] == pool.nodes[0]
    assert all(other.nodes[0] not in unit for unit in units_of(bound))
    await pods.wait_for_pod(api, namespace, "pinned", pods.is_unschedulable)
    guest = await pods.wait_for_pod(api, namespace, "plain")
    assert "gpu.deckhouse.io/devices" not in guest["metadata"].get("annotations", {})
    await figures(other, used=0, available=1)


async def test_pod_that_could_reach_other_devices_is_refused_warned_of_or_let_in_by_its_pool(
    make_pool, api, kubectl, namespace
):
    answers = {}
    for baseline in ("Deny", "Warn", "Off"):
        pool = await make_pool(devices=1, podBaseline=baseline)
        pod = a_pod(baseline.lower(), pool)
        pod["metadata"]["namespace"] = namespace
        pod["spec"]["hostPID"] = True
        pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        text = "leave out hostPID, privileged of container main"
        if baseline == "Deny":
            refused = await refusal_of(api, namespace, pod)
            assert (refused.status, text in refused.message) == (403, True), refused.message
            continue
        answers[baseline] = text in (await kubectl.apply_yaml(pod)).stderr
        await pods.wait_for_pod(api, namespace, baseline.lower(), pods.is_running)
    assert answers == {"Warn": True, "Off": False}
