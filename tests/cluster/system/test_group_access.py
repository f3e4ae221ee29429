"""A pool that is open to a group: workloads of its members have pods there, by Kubernetes' own controllers; no others have."""

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_container, a_deployment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.system.conftest import MakePool
    from tests.cluster.system.installation import GpuSystem
    from tests.cluster.system.objects import Pool

OPEN_TO_GROUP = {"access": {"groups": ["researchers"]}}
ACCESS = "gpu.deckhouse.io/access"
SHORT_S = 4.0
IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}}}
RESTART = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}


@pytest.fixture
async def member(control_plane: "ControlPlane") -> "AsyncIterator[client.ApiClient]":
    kubeconfig = control_plane.kubeconfig("member", groups=("researchers", "system:masters"))
    async with client.open_client(kubeconfig) as api:
        yield api


@pytest.fixture
async def stranger(control_plane: "ControlPlane") -> "AsyncIterator[client.ApiClient]":
    kubeconfig = control_plane.kubeconfig("stranger", groups=("others", "system:masters"))
    async with client.open_client(kubeconfig) as api:
        yield api


def at(namespace: str, plural: str, group: str = "apps") -> str:
    return f"/apis/{group}/v1/namespaces/{namespace}/{plural}"


def template(pool: "Pool", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "gpu"}},
        "spec": {"containers": [a_container("main", pool, 1)], **spec},
    }


def a_job(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template(pool, restartPolicy="Never")},
    }


def a_cron_job(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": a_job("", pool)["spec"]}},
    }


def a_stateful_set(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "gpu"}},
            "serviceName": name,
            "template": template(pool),
        },
    }


async def refused(writing: Any) -> str:
    with pytest.raises(client.ApiRefusedError) as refusal:
        await writing
    return str(refusal.value)


async def running(api: client.ApiClient, namespace: str, prefix: str, count: int = 1) -> None:
    async def found() -> bool:
        items = (await api.get(pods.collection(namespace)))["items"]
        ours = [pod for pod in items if pod["metadata"]["name"].startswith(prefix)]
        alive = [pod for pod in ours if "deletionTimestamp" not in pod["metadata"]]
        assert sum(map(pods.is_running, alive)) == count, [
            (pod["metadata"]["name"], pod["status"].get("phase")) for pod in ours
        ]
        return True

    await polling.eventually(found, what=f"{count} running pods of {prefix}", within=90)


async def told(
    api: client.ApiClient, namespace: str, name: str, text: str, *, drains: str = ""
) -> None:
    """Wait for an Event about an object with the text; meanwhile delete a pod that its controller makes again."""

    async def found() -> bool:
        if drains:
            with contextlib.suppress(client.ApiRefusedError):
                await api.delete(f"{pods.collection(namespace)}/{drains}")
        events = (await api.get(f"/api/v1/namespaces/{namespace}/events"))["items"]
        notes = [e["message"] for e in events if e["involvedObject"]["name"].startswith(name)]
        assert any(text in note for note in notes), notes
        return True

    await polling.eventually(found, what=f"an Event of {name}: {text}")


async def test_members_have_workloads_in_a_pool_and_nobody_else(
    make_pool: "MakePool",
    member: client.ApiClient,
    stranger: client.ApiClient,
    namespace: str,
) -> None:
    pool = await make_pool(devices=8, **OPEN_TO_GROUP)
    deployments, jobs = at(namespace, "deployments"), at(namespace, "jobs", "batch")
    cron_jobs = at(namespace, "cronjobs", "batch")
    train = f"{deployments}/train"
    await member.create(cron_jobs, a_cron_job("nightly", pool))
    stored = await member.create(deployments, a_deployment("train", pool, replicas=1))
    await member.create(jobs, a_job("once", pool))
    await running(member, namespace, "train")
    await running(member, namespace, "once")

    for path, body in (
        (deployments, a_deployment("mine", pool, replicas=1)),
        (jobs, a_job("mine", pool)),
        (cron_jobs, a_cron_job("mine", pool)),
    ):
        assert "written by stranger" in await refused(stranger.create(path, body))
    assert "is not open to Deployment" in await refused(
        stranger.patch(train, IMAGE, kind="strategic")
    )
    await stranger.patch(train, {"spec": {"replicas": 2}})
    await running(member, namespace, "train", 2)

    # Copied under an object of a kind whose templates nobody admits, and under another that is admitted.
    note = stored["spec"]["template"]["metadata"]["annotations"][ACCESS]
    copied = template(pool)
    copied["metadata"]["annotations"] = {ACCESS: note}
    body = {"spec": {"replicas": 1, "selector": {"app": "gpu"}, "template": copied}}
    body |= {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "copy"}}
    await stranger.create(f"/api/v1/namespaces/{namespace}/replicationcontrollers", body)
    await told(
        member, namespace, "copy", "created by system:serviceaccount:kube-system:replication"
    )
    replica_set = {**a_stateful_set("mine", pool), "kind": "ReplicaSet"}
    del replica_set["spec"]["serviceName"]
    replica_set["spec"]["template"] = copied
    assert "written by stranger" in await refused(
        stranger.create(at(namespace, "replicasets"), replica_set)
    )

    # Edited, or written again as it was: nothing is rolled out.
    longer = json.dumps({**json.loads(note), "until": "2099-01-01T00:00:00Z"})
    forged = {"spec": {"template": {"metadata": {"annotations": {ACCESS: longer}}}}}
    await stranger.patch(train, forged)
    manifest = a_deployment("train", pool, replicas=2)
    current = await member.get(train)
    manifest["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
    await member.replace(train, manifest)
    template_after = (await member.get(train))["spec"]["template"]
    assert template_after == stored["spec"]["template"]
    sets = (await member.get(at(namespace, "replicasets")))["items"]
    assert len(sets) == 1
    await running(member, namespace, "nightly")


async def test_access_ends_with_its_time_its_group_and_not_with_the_webhook(
    make_pool: "MakePool",
    system: "GpuSystem",
    member: client.ApiClient,
    stranger: client.ApiClient,
    namespace: str,
) -> None:
    pool = await make_pool(devices=4, **OPEN_TO_GROUP)
    sets, deployments = at(namespace, "statefulsets"), at(namespace, "deployments")
    await system.reconfigure(workloads={"access_valid_s": SHORT_S})
    try:
        await member.create(sets, a_stateful_set("old", pool))
        await running(member, namespace, "old")

        ended = "the access that member gave StatefulSet old ended"
        await told(member, namespace, "old", ended, drains="old-0")
    finally:
        await system.reconfigure(workloads={})
    await member.patch(f"{sets}/old", RESTART)
    await running(member, namespace, "old")

    await stranger.patch(pool.path, {"spec": {"access": {"groups": ["others"]}}})

    closed = "the groups of member, who wrote StatefulSet old"
    await told(member, namespace, "old", closed, drains="old-0")

    system.server.kill9()
    writing = member.create(deployments, a_deployment("new", pool, replicas=1))
    assert "failed calling webhook" in await refused(writing)
    plain = a_deployment("plain", pool, replicas=1)
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    await stranger.create(deployments, plain)
    await member.patch(f"{sets}/old", {"spec": {"replicas": 0}})
