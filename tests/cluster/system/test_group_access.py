"""A pool that is open to a group: workloads of its members have pods there, by Kubernetes' own controllers; no others have."""

import json
from typing import TYPE_CHECKING

from manifests.constants import RESERVATION_KEY_SECRET
from tests.cluster.system.installation import NAMESPACE
from tests.cluster.system.objects import a_deployment
from tests.cluster.system.workloads import (
    ACCESS,
    OPEN_TO_GROUP,
    RESTART,
    a_cron_job,
    a_daemon_set,
    a_job,
    a_stateful_set,
    at,
    refused,
    running,
    template,
    wait_for_event,
)

if TYPE_CHECKING:
    from tests.cluster.environment import client
    from tests.cluster.kubectl_gpu.conftest import KubectlGpu
    from tests.cluster.system.conftest import MakePool
    from tests.cluster.system.installation import GpuSystem

SHORT_S = 4.0
IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}}}


async def test_members_have_workloads_in_a_pool_and_nobody_else(
    make_pool: "MakePool",
    member: "client.ApiClient",
    stranger: "client.ApiClient",
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
    await member.create(at(namespace, "daemonsets"), a_daemon_set("exporter", pool))
    await running(member, namespace, "once")
    await running(member, namespace, "exporter")

    for path, body in (
        (deployments, a_deployment("mine", pool, replicas=1)),
        (jobs, a_job("mine", pool)),
        (cron_jobs, a_cron_job("mine", pool)),
        (at(namespace, "daemonsets"), a_daemon_set("mine", pool)),
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
    await wait_for_event(
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
    member: "client.ApiClient",
    stranger: "client.ApiClient",
    namespace: str,
    kubectl_gpu: "KubectlGpu",
) -> None:
    pool = await make_pool(devices=4, **OPEN_TO_GROUP)
    sets, deployments = at(namespace, "statefulsets"), at(namespace, "deployments")
    await system.reconfigure(workloads={"access_valid_s": SHORT_S})
    try:
        await member.create(sets, a_stateful_set("old", pool))
        await running(member, namespace, "old")
        await wait_for_event(
            member, namespace, "old", "new pods of StatefulSet old are refused in pool"
        )

        ended = "the access that member gave StatefulSet old ended"
        await wait_for_event(member, namespace, "old", ended, drains="old-0")
    finally:
        await system.reconfigure(workloads={})
    await member.patch(f"{sets}/old", RESTART)
    await running(member, namespace, "old")
    await member.create(deployments, a_deployment("web", pool, replicas=1))
    await running(member, namespace, "web")

    await stranger.patch(pool.path, {"spec": {"access": {"groups": ["others"]}}})

    closed = "the groups of member, who wrote StatefulSet old"
    await wait_for_event(member, namespace, "old", closed, drains="old-0")
    await stranger.patch(f"{deployments}/web", {"spec": {"replicas": 2}})
    closed = "the groups of member, who wrote Deployment web"
    await wait_for_event(member, namespace, "web", closed)
    said = await kubectl_gpu("why", "deployment/web", "-n", namespace, "-o", "json")
    answer = json.loads(said.stdout)
    assert (answer["state"], closed in answer["message"]) == ("Refused", True), answer

    system.server.kill9()
    writing = member.create(deployments, a_deployment("new", pool, replicas=1))
    assert "failed calling webhook" in await refused(writing)
    plain = a_deployment("plain", pool, replicas=1)
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    await stranger.create(deployments, plain)
    await member.patch(f"{sets}/old", {"spec": {"replicas": 0}})


async def test_signature_of_another_clusters_key_opens_nothing(
    make_pool: "MakePool",
    system: "GpuSystem",
    member: "client.ApiClient",
    stranger: "client.ApiClient",
    namespace: str,
) -> None:
    pool = await make_pool(devices=2, **OPEN_TO_GROUP)
    restored = f"{at(namespace, 'statefulsets')}/restored"
    await member.create(at(namespace, "statefulsets"), a_stateful_set("restored", pool))
    await running(member, namespace, "restored")

    # A replica that runs would write its key into the Secret again.
    await system.crash_server()
    await member.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/{RESERVATION_KEY_SECRET}")
    await system.restore()

    foreign = "of StatefulSet restored is not of this control plane"
    await wait_for_event(member, namespace, "restored", foreign, drains="restored-0")
    assert "written by stranger" in await refused(stranger.patch(restored, RESTART))
    await member.patch(restored, RESTART)
    await running(member, namespace, "restored")
