"""Callers that the extender refuses: foreign, expired and misused certificates, and users of the cluster."""

import dataclasses
import datetime as dt
import ssl
from typing import TYPE_CHECKING

import aiohttp
import pytest

from certs.bundle import KeyPair
from certs.issuance import issue_client, new_key
from manifests.constants import BIND_PATH, FILTER_PATH, PREEMPT_PATH, PRIORITIZE_PATH
from tests.component.security.peers import post, tls
from tests.support.scheduling import binding_args
from tests.support.served_app import ServedApp, TestAuthority, _requirements

if TYPE_CHECKING:
    from collections.abc import Callable

PATHS = (FILTER_PATH, PRIORITIZE_PATH, PREEMPT_PATH, BIND_PATH)


def by_a_foreign_ca(_: TestAuthority) -> KeyPair:
    return TestAuthority().client("gpu-scheduler")


def expired(authority: TestAuthority) -> KeyPair:
    return issued_at(authority, days=-400)


def not_yet_valid(authority: TestAuthority) -> KeyPair:
    return issued_at(authority, days=400)


def issued_at(authority: TestAuthority, *, days: int) -> KeyPair:
    return issue_client(
        authority._authority,
        new_key(),
        serial=4711,
        now=authority._now + dt.timedelta(days=days),
        required=dataclasses.replace(_requirements(), leaf_lifetime=dt.timedelta(days=30)),
    )


def made_for_a_server(authority: TestAuthority) -> KeyPair:
    return authority.serving


def with_our_own_behind_it(authority: TestAuthority) -> KeyPair:
    """A foreign leaf gains nothing by a good certificate in its chain."""
    client = authority.client("gpu-scheduler")
    foreign = TestAuthority().client("gpu-scheduler")
    return KeyPair(
        certificate_pem=foreign.certificate_pem + client.certificate_pem, key_pem=foreign.key_pem
    )


@pytest.mark.parametrize(
    "stranger",
    [by_a_foreign_ca, expired, not_yet_valid, made_for_a_server, with_our_own_behind_it],
    ids=lambda made: made.__name__,
)
async def test_certificate_that_is_not_good_ends_the_handshake(
    served: ServedApp, stranger: "Callable[[TestAuthority], KeyPair]"
) -> None:
    served.extender_setup.pending()
    served.pair = stranger(served.authority)
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await served.post(BIND_PATH, binding_args())
    assert served.extender_setup.binder.bindings == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["gpu-control-plane", "GPU-SCHEDULER", "gpu-scheduler ", "admin"])
async def test_good_certificate_with_another_name_is_refused(
    served: ServedApp, path: str, name: str
) -> None:
    served.extender_setup.pending()
    served.pair = served.authority.client(name)
    reply = await served.post(path, binding_args())
    assert reply.status == 401
    assert served.extender_setup.binder.bindings == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param("Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln", id="a service account's token"),
        pytest.param("Bearer sesame2", id="a longer token"),
        pytest.param("Bearer sesam", id="a shorter token"),
        pytest.param("bearer sesame", id="another scheme"),
        pytest.param("", id="nothing"),
    ],
)
async def test_user_of_the_cluster_may_not_call_the_extender(
    served: ServedApp, path: str, authorization: str
) -> None:
    """What the API server takes for a login is none here, so that no user can bind through us."""
    served.extender_setup.pending()
    reply = await served.post(path, binding_args(), Authorization=authorization)
    assert reply.status == 401
    assert served.extender_setup.binder.bindings == []


@pytest.mark.parametrize("path", PATHS)
async def test_refusal_comes_before_the_body(served: ServedApp, path: str) -> None:
    """The body of a refused caller is not read."""
    async with await tls(served) as peer:
        await peer.send(post(path, Content_Length="60000"))
        assert await peer.status() == 401


@pytest.mark.parametrize(
    "header",
    ["X-Remote-User", "X-Forwarded-Client-Cert", "X-SSL-Client-S-DN", "X-Forwarded-For"],
)
async def test_header_that_a_proxy_would_set_is_believed_by_nobody(
    served: ServedApp, header: str
) -> None:
    served.extender_setup.pending()
    reply = await served.post(BIND_PATH, binding_args(), **{header: "CN=gpu-scheduler"})
    assert reply.status == 401
    assert served.extender_setup.binder.bindings == []


@pytest.mark.parametrize(
    "path", ["//scheduler/bind", "/scheduler/bind/", "/mutate/../scheduler/bind"]
)
async def test_path_written_otherwise_is_no_way_in(served: ServedApp, path: str) -> None:
    served.extender_setup.pending()
    async with await tls(served) as peer:
        await peer.send(post(path, binding_args()))
        assert await peer.status() in {401, 404}
    assert served.extender_setup.binder.bindings == []
