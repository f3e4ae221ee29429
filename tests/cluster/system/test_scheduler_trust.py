"""What the stock kube-scheduler makes of a CA that is replaced: `caFile` is read at its start only, its own
certificate at each handshake.

Connections stay open for as long as both sides live, so the server is restarted wherever kube-scheduler
is to shake hands again.
"""

import re

import pytest

from tests.cluster.environment import pods, polling
from tests.cluster.system import certificates, installation
from tests.cluster.system.objects import a_pod


@pytest.fixture
async def create(make_pool, api, namespace):
    """Create a pod of one pool and wait for what kube-scheduler makes of it."""
    pool = await make_pool(devices=4)

    async def create(name: str, until=pods.is_bound) -> None:
        await api.create(pods.collection(namespace), a_pod(name, pool))
        await pods.wait_for_pod(api, namespace, name, until)

    return create


def fails(pattern: str):
    """Return a condition: kube-scheduler could not ask us about the pod, and says so in these words."""

    def is_reported(pod) -> bool:
        condition = pods.scheduled_condition(pod)
        is_error = condition.get("reason") == "SchedulerError"
        return is_error and re.search(pattern, condition["message"]) is not None

    return is_reported


async def test_the_scheduler_trusts_a_new_authority_once_it_was_restarted(
    system, create, api, namespace
):
    await system.refresh_scheduler()
    await create("before")

    data = await certificates.make_again(api, "ca.key", "ca.crt")
    await certificates.injected(api, data)
    await system.server.restart()
    await create("while-both-are-trusted")

    await system.mount_secret()
    await certificates.make_again(api, "tls.crt", "tls.crt")
    await system.server.restart()
    await create("not-restarted-in-time", fails("x509: certificate signed by unknown authority"))

    await system.scheduler.restart()
    await pods.wait_for_pod(api, namespace, "not-restarted-in-time")

    await certificates.retire_old_authorities(api)
    await system.server.restart()
    await create("old-certificate", fails("EOF|connection reset|tls: "))

    async def is_counted() -> bool:
        dropped = (await system.metrics()).total("gpu_connections_dropped_total", cause="handshake")
        return bool(dropped)

    await polling.eventually(is_counted, what="a dropped connection in the metrics")
    await system.mount_secret()
    await pods.wait_for_pod(api, namespace, "old-certificate")


async def test_the_leader_restarts_the_schedulers_deployment_once_for_each_set_of_authorities(
    system, create, api
):
    """The Deployment's pods are this test's kube-scheduler: it starts again when the template changes."""
    await certificates.install_scheduler_deployment(api)
    first = await certificates.trusted_by_pods(api)
    await system.refresh_scheduler()
    await create("with-the-first")

    data = await certificates.make_again(api, "ca.key", "ca.crt")
    await certificates.injected(api, data)
    second = await certificates.trusted_by_pods(api, other_than=first)
    await system.refresh_scheduler()
    await certificates.make_again(api, "tls.crt", "tls.crt")
    await system.server.restart()
    await create("with-the-second")
    generation = (await api.get(installation.DEPLOYMENT))["metadata"]["generation"]

    await certificates.retire_old_authorities(api)
    await system.server.restart()
    assert await certificates.trusted_by_pods(api, other_than=second) not in {first, second}
    await system.refresh_scheduler()
    await create("with-the-second-alone")
    deployment = await api.get(installation.DEPLOYMENT)
    assert deployment["metadata"]["generation"] == generation + 1
    assert deployment["spec"]["template"]["spec"]["containers"][0]["name"] == "kube-scheduler"
    await api.delete(installation.DEPLOYMENT)
