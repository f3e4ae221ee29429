"""kube-apiserver shows the certificate that its AdmissionConfiguration names, and nobody else is answered."""

import asyncio
import secrets
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.certificates import data_of
from tests.cluster.system.installation import PAGE_S, Metrics
from tests.cluster.system.objects import a_pod
from tests.cluster.system.other_webhooks import REGISTRATION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.server_process import ServerProcess
    from tests.cluster.system.installation import GpuSystem

CONFIGURATIONS = f"{REGISTRATION}/mutatingwebhookconfigurations"


def settings(
    system: "GpuSystem", control_plane: "ControlPlane", *callers: str
) -> dict[str, object]:
    webhooks = {"client_ca_file": str(control_plane.ca_file), "client_names": list(callers)}
    return {**system._settings_of(control_plane.guarded_port), "webhooks": webhooks}


@pytest.fixture
async def guarded(
    system: "GpuSystem", control_plane: "ControlPlane", api: client.ApiClient, namespace: str
) -> "AsyncIterator[ServerProcess]":
    """A standby that demands the certificate, asked about the pods of the test's namespace."""
    server = await system.new_server(f"guarded-{namespace}", control_plane.guarded_port)
    server.configure(settings(system, control_plane, "kube-apiserver"))
    await server.start(until="/livez")
    name = f"guarded-{secrets.token_hex(3)}"
    await api.create(
        CONFIGURATIONS,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "guarded.example.org",
                    "clientConfig": {
                        "url": f"{server.url}/mutate/pods",
                        "caBundle": (await data_of(api))["ca.crt"],
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ],
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": namespace}
                    },
                    "failurePolicy": "Fail",
                    "sideEffects": "NoneOnDryRun",
                    "admissionReviewVersions": ["v1"],
                    "timeoutSeconds": 3,
                }
            ],
        },
    )
    yield server
    await api.delete(f"{CONFIGURATIONS}/{name}")
    server.kill9()


async def test_pod_is_admitted_by_a_server_that_demands_the_certificate(
    guarded, make_pool, api, namespace
):
    pool = await make_pool(devices=1)

    async def is_admitted() -> bool:
        try:
            await api.create(pods.collection(namespace), a_pod("gpu", pool))
        except client.ApiRefusedError as refused:
            if "NotReady" not in refused.message and "no GPU pool" not in refused.message:
                raise
            # Its caches are not synced yet, or do not know the pool.
            return False
        return True

    await polling.eventually(is_admitted, what="a pod that both servers let in")
    await pods.wait_for_pod(api, namespace, "gpu")
    await asyncio.sleep(PAGE_S)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{guarded.url}/metrics", ssl=False) as answer,
    ):
        metrics = Metrics(await answer.text())
    name = "gpu_admission_duration_seconds_count"
    assert metrics.total(name, webhook="mutate-pods", outcome="patched") == 1
    assert metrics.total(name, outcome="unauthenticated") == 0


async def test_nobody_else_is_answered(guarded, control_plane):
    alice = control_plane.credentials.client_certificate("alice", [])
    assert await asked(guarded.url, None) == (
        401,
        "the API server's client certificate is needed; its AdmissionConfiguration names it",
    )
    status, message = await asked(guarded.url, alice)
    assert status == 403
    assert "client certificate alice may not call webhooks" in message


async def test_api_server_with_another_name_is_refused_and_its_user_reads_why(
    guarded, system, control_plane, make_pool, api, namespace
):
    pool = await make_pool(devices=1)
    guarded.configure(settings(system, control_plane, "somebody-else"))
    await guarded.restart(until="/livez")
    with pytest.raises(client.ApiRefusedError) as refused:
        await api.create(pods.collection(namespace), a_pod("gpu", pool))
    assert 'failed calling webhook "guarded.example.org"' in refused.value.message
    assert "client certificate kube-apiserver may not call webhooks" in refused.value.message


async def asked(url: str, pair: Any) -> tuple[int, str]:
    """Return status and text of a webhook's answer to this caller."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/mutate/pods", json={}, ssl=context) as answer,
    ):
        return answer.status, (await answer.json())["message"]
