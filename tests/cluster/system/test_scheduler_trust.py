"""What the stock kube-scheduler makes of a CA that is replaced: `caFile` is read at its start only, its own
certificate at each handshake.

Connections stay open for as long as both sides live, so the server is restarted wherever kube-scheduler
is to shake hands anew.
"""

import re

import pytest

from tests.cluster.environment import pods
from tests.cluster.system.certificates import injected, make_again, retire_old_authorities
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

    def is_told(pod) -> bool:
        condition = pods.scheduled_condition(pod)
        is_error = condition.get("reason") == "SchedulerError"
        return is_error and re.search(pattern, condition["message"]) is not None

    return is_told


async def test_the_scheduler_trusts_a_new_authority_once_it_was_restarted(
    system, create, api, namespace
):
    await system.refresh_scheduler()
    await create("before")

    data = await make_again(api, "ca.key", "ca.crt")
    await injected(api, data)
    await system.server.restart()
    await create("while-both-are-trusted")

    await system.mount_secret()
    await make_again(api, "tls.crt", "tls.crt")
    await system.server.restart()
    await create("not-restarted-in-time", fails("x509: certificate signed by unknown authority"))

    await system.scheduler.restart()
    await pods.wait_for_pod(api, namespace, "not-restarted-in-time")

    await retire_old_authorities(api)
    await system.server.restart()
    await create("old-certificate", fails("EOF|connection reset|tls: "))
    assert (await system.metrics()).total("gpu_connections_dropped_total", cause="handshake") > 0
    await system.mount_secret()
    await pods.wait_for_pod(api, namespace, "old-certificate")
