"""Authentication of webhook callers, with CAs of the API servers' certificates configured."""

import pytest

from certs.bundle import KeyPair
from certs.client_authorities import ClientTrust, decode_authorities
from manifests import constants
from manifests.constants import FILTER_PATH, MUTATE_PODS_PATH
from tests.component.security.peers import post, tls
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import a_wire_pod, extender_args
from tests.support.served_app import ServedApp, TestAuthority, sample

QUESTION = a_review(a_pod_object())
WEBHOOKS = (
    MUTATE_PODS_PATH,
    constants.VALIDATE_PODS_PATH,
    constants.MUTATE_WORKLOADS_PATH,
    constants.VALIDATE_POOLS_PATH,
    constants.MUTATE_DEVICES_PATH,
    constants.VALIDATE_DEVICES_PATH,
    constants.VALIDATE_NODES_PATH,
)


@pytest.fixture(scope="module")
def api_servers() -> TestAuthority:
    """The CA of the API servers' certificates; of the same name as ours."""
    return TestAuthority()


@pytest.fixture
def webhook_callers() -> tuple[str, ...]:
    return ("kube-apiserver",)


@pytest.fixture
def guarded(served: ServedApp, api_servers: TestAuthority) -> ServedApp:
    trusted = decode_authorities(api_servers.trust_pem, "test")
    served.serving.trust(ClientTrust(api_server=trusted))
    return served


async def test_api_server_is_answered(guarded: ServedApp, api_servers: TestAuthority) -> None:
    guarded.pair = api_servers.client("kube-apiserver")
    reply = await guarded.post(MUTATE_PODS_PATH, QUESTION)
    assert (reply.status, reply.json["response"]["allowed"]) == (200, True)


@pytest.mark.parametrize("path", WEBHOOKS)
async def test_caller_without_a_certificate_is_refused_before_the_body(
    guarded: ServedApp, path: str
) -> None:
    reply = await guarded.post(path, QUESTION)
    assert reply.status == 401
    assert reply.json["message"].startswith("the API server's client certificate is needed")
    async with await tls(guarded) as peer:
        await peer.send(post(path, Content_Length="60000"))
        assert await peer.status() == 401
    assert guarded.reservations == 0


@pytest.mark.parametrize("path", WEBHOOKS)
@pytest.mark.parametrize("name", ["admin", "KUBE-APISERVER", "gpu-scheduler"])
async def test_certificate_of_another_name_is_refused(
    guarded: ServedApp, api_servers: TestAuthority, path: str, name: str
) -> None:
    guarded.pair = api_servers.client(name)
    before = sample(
        "gpu_admission_duration_seconds_count", webhook="mutate-pods", outcome="unauthenticated"
    )
    reply = await guarded.post(path, QUESTION)
    assert reply.status == 403
    assert f"client certificate {name} may not call webhooks" in reply.json["message"]
    after = sample(
        "gpu_admission_duration_seconds_count", webhook="mutate-pods", outcome="unauthenticated"
    )
    assert after == before + (path == MUTATE_PODS_PATH)
    assert guarded.reservations == 0


async def test_name_counts_in_a_certificate_by_its_own_ca_only(
    guarded: ServedApp, api_servers: TestAuthority
) -> None:
    """A CA of API servers signs for other clients too: none of them becomes kube-scheduler."""

    def pairs() -> dict[str, KeyPair]:
        return {"ours": guarded.authority.client(name), "theirs": api_servers.client(name)}

    name = "kube-apiserver"
    for signer, status in (("ours", 403), ("theirs", 200)):
        guarded.pair = pairs()[signer]
        assert (await guarded.post(MUTATE_PODS_PATH, QUESTION)).status == status
    name = "gpu-scheduler"
    for signer, status in (("ours", 200), ("theirs", 401)):
        guarded.pair = pairs()[signer]
        reply = await guarded.post(FILTER_PATH, extender_args(a_wire_pod(whole=1), "n1"))
        assert reply.status == status


async def test_probes_need_no_certificate(guarded: ServedApp) -> None:
    assert (await guarded.call("GET", constants.READINESS_PATH)).status == 200
