"""Ways to the extender's answers without credentials: spellings, methods, headers, smuggling, certificates.

Each is tried with what would bind a pod; the first test shows that it would.
"""

import contextlib
import re
import ssl

import pytest

from certs.bundle import KeyPair
from certs.issuance import issue_authority, issue_client, new_key
from certs.pem import DecodedPair, decode_pair
from manifests.constants import (
    BIND_PATH,
    FILTER_PATH,
    LIVENESS_PATH,
    MUTATE_PODS_PATH,
    PREEMPT_PATH,
    PRIORITIZE_PATH,
)
from tests.component.security.peers import post, tls
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import binding_args
from tests.support.served_app import TOKEN, ServedApp, TestAuthority, _requirements

BINDING = binding_args()
QUESTION = a_review(a_pod_object(gpus=None))


async def answers(
    served: ServedApp, *pieces: bytes, context: ssl.SSLContext | None = None
) -> bytes:
    """Return everything that comes back for these bytes and a last request behind them."""
    last = f"GET {LIVENESS_PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    async with await tls(served, context) as peer:
        await peer.send(*pieces, last)
        return await peer.answer()


def assert_nothing_bound(served: ServedApp, answer: bytes, *, allowed: int = 1) -> None:
    """Besides the last request, which may be answered, `allowed` - 1 of them had a right to be."""
    assert served.extender_setup.binder.bindings == []
    assert answer.count(b"HTTP/1.1 200") <= allowed, answer


async def test_token_would_bind(served: ServedApp) -> None:
    served.extender_setup.pending()
    await answers(served, post(BIND_PATH, BINDING, Authorization=f"Bearer {TOKEN}"))
    assert len(served.extender_setup.binder.bindings) == 1


SPELLINGS = (
    "{0}",
    "/{0}",
    "{0}/",
    "{0}/.",
    "/.{0}",
    "/x/..{0}",
    "/livez/..{0}",
    "/mutate/pods/../..{0}",
    "{0}?x=1",
    "{0}#x",
    "{0};x=1",
    "{0}%00",
    "{0}%20",
    "{0}%0d%0aAuthorization:%20Bearer%20sesame",
    "/%2e{0}",
    "/metrics/%2e%2e{0}",
    "/metrics/..%2f..{0}",
    "http://x{0}",
    "https://127.0.0.1{0}",
    "//x{0}",
    "\\{0}",
    "/?{0}",
    "*{0}",
)


@pytest.mark.parametrize("path", [FILTER_PATH, PRIORITIZE_PATH, PREEMPT_PATH, BIND_PATH])
@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
async def test_path_is_a_way_in_by_no_spelling(served: ServedApp, path: str, method: str) -> None:
    served.extender_setup.pending()
    others = (path.upper(), path.replace("s", "%73", 1), path.replace("/", "%2F"))
    for written in (*(item.format(path) for item in SPELLINGS), *others):
        request = post(written, BINDING).replace(b"POST", method.encode(), 1)
        assert_nothing_bound(served, await answers(served, request))


@pytest.mark.parametrize(
    "method",
    [
        *("HEAD", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "LINK", "PROPFIND", "SEARCH"),
        *("post", "BIND", "POST\t", " POST", "POST / HTTP/1.1\r\n\r\nPOST"),
    ],
)
async def test_method_is_no_way_in(served: ServedApp, method: str) -> None:
    served.extender_setup.pending()
    request = post(BIND_PATH, BINDING).replace(b"POST", method.encode(), 1)
    assert_nothing_bound(served, await answers(served, request))


@pytest.mark.parametrize("version", ["HTTP/0.9", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/9", ""])
async def test_version_is_no_way_in(served: ServedApp, version: str) -> None:
    served.extender_setup.pending()
    request = post(BIND_PATH, BINDING).replace(b"HTTP/1.1", version.encode(), 1)
    assert_nothing_bound(served, await answers(served, request))


@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Bearer",
        "Authorization: Bearer\r\nAuthorization: Bearer",
        "Authorization: Bearer null",
        "Authorization: Bearer \0",
        "Authorization: Basic c2VzYW1lOg==",
        "Authorization: Negotiate",
        "Proxy-Authorization: Bearer sesame",
        "X-Authorization: Bearer sesame",
        "Cookie: token=sesame",
        "X-Original-URL: /livez",
        "X-Rewrite-URL: /livez",
        "X-HTTP-Method-Override: GET",
        "Forwarded: for=127.0.0.1;proto=https",
        "X-Client-Verify: SUCCESS",
        "SSL-Client-Cert: x",
        "Host: 127.0.0.1:10259",
        "Upgrade: websocket\r\nConnection: Upgrade",
        "Upgrade: h2c",
        "Connection: Authorization",
    ],
)
async def test_header_is_no_way_in(served: ServedApp, header: str) -> None:
    served.extender_setup.pending()
    request = post(BIND_PATH, BINDING).replace(b"Host: x\r\n", f"Host: x\r\n{header}\r\n".encode())
    assert_nothing_bound(served, await answers(served, request))


INNER = post(BIND_PATH, BINDING)
SIZE = str(len(INNER))


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param("Content-Length: 0", id="none"),
        pytest.param("Content-Length: 0\r\nContent-Length: " + SIZE, id="two"),
        pytest.param(f"Content-Length: {SIZE}\r\nContent-Length: 0", id="two, the other way"),
        pytest.param(f"Content-Length: {SIZE}, 0", id="a list"),
        pytest.param(f"Content-Length : {SIZE}", id="blank before the colon"),
        pytest.param(f"Content-Length:\t{SIZE}", id="tab"),
        pytest.param(f"Content-Length: {SIZE}\r\nTransfer-Encoding: chunked", id="both"),
        pytest.param("Transfer-Encoding: chunked\r\nContent-Length: 0", id="both, zero"),
        pytest.param("Transfer-Encoding: xchunked", id="unknown coding"),
        pytest.param("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", id="two codings"),
        pytest.param("Transfer-Encoding:\r\n chunked", id="folded"),
        pytest.param("Transfer_Encoding: chunked", id="underscore"),
        pytest.param("X: y\nContent-Length: 0", id="bare line feed"),
        pytest.param("X: y\rContent-Length: 0", id="bare carriage return"),
    ],
)
@pytest.mark.parametrize("outer", [MUTATE_PODS_PATH, FILTER_PATH])
@pytest.mark.parametrize("chunks", [b"", b"0\r\n\r\n", b"0\n\n", b"0;x\r\n\r\n"], ids=repr)
async def test_binding_is_not_smuggled_in(
    served: ServedApp, lengths: str, outer: str, chunks: bytes
) -> None:
    """Whole and in halves: a proxy's idea of a body's end is not looked for."""
    served.extender_setup.pending()
    head = (
        f"POST {outer} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{lengths}\r\n\r\n"
    )
    request = head.encode() + chunks + INNER
    half = len(request) - len(INNER) // 2
    for pieces in ((request,), (request[:half], request[half:])):
        assert_nothing_bound(served, await answers(served, *pieces))


def signed_by_our_leaf(authority: TestAuthority) -> KeyPair:
    """A client that makes itself a CA of the certificate that it was given."""
    leaf = authority.client("gpu-scheduler")
    decoded = decode_pair(leaf)
    assert isinstance(decoded, DecodedPair)
    made = issue_client(decoded, new_key(), serial=9, now=authority._now, required=_requirements())
    chain = made.certificate_pem + leaf.certificate_pem
    return KeyPair(certificate_pem=chain, key_pem=made.key_pem)


def self_signed(authority: TestAuthority) -> KeyPair:
    return issue_authority(
        new_key(), serial=9, now=authority._now, lifetime=_requirements().authority_lifetime
    )


def by_a_ca_of_the_same_name(_: TestAuthority) -> KeyPair:
    """Serials are counted, so that two of these are called alike."""
    return TestAuthority().client("gpu-scheduler")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    "stranger",
    [signed_by_our_leaf, self_signed, by_a_ca_of_the_same_name],
    ids=lambda made: made.__name__,
)
async def test_certificate_is_no_way_in(served: ServedApp, stranger, version) -> None:
    served.extender_setup.pending()
    served.pair = stranger(served.authority)
    context = served.tls()
    context.minimum_version = context.maximum_version = version
    answer = b""
    with contextlib.suppress(ssl.SSLError, ConnectionError):  # TLS 1.2 tells it at once
        answer = await answers(served, post(BIND_PATH, BINDING), context=context)
    assert b"HTTP" not in answer
    assert_nothing_bound(served, answer)


async def test_requests_behind_a_refused_one_are_judged_one_by_one(served: ServedApp) -> None:
    """What one of a connection may, the next one may not by that."""
    served.extender_setup.pending()
    good = post(FILTER_PATH, b"{}", Authorization=f"Bearer {TOKEN}")
    requests = [good, INNER, post(MUTATE_PODS_PATH, QUESTION), INNER, good, INNER]
    answer = await answers(served, b"".join(requests))
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [
        *(b"200", b"401", b"200", b"401", b"200", b"401"),
        b"200",
    ]
    assert served.extender_setup.binder.bindings == []
