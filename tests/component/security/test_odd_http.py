"""Hostile HTTP: an answer or a closed connection, no reservation, no traceback."""

import gzip
import json
import ssl
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from manifests.constants import BIND_PATH, FILTER_PATH, LIVENESS_PATH, MUTATE_PODS_PATH
from tests.component.security.peers import post, post_chunked, tcp, tls
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import a_wire_pod, binding_args, extender_args
from tests.support.served_app import MAX_BODY_BYTES, TOKEN, ServedApp

QUESTION = a_review(a_pod_object())
DEPTH = 8_000
"""Levels of nesting that fit the body; Python's own limit is a thousand."""
GET = f"GET {LIVENESS_PATH} HTTP/1.1\r\nHost: x\r\n"


async def assert_unharmed(served: ServedApp) -> None:
    assert served.reservations == 0
    assert served.extender_setup.binder.bindings == []
    assert (await served.call("GET", LIVENESS_PATH)).status == 200


async def test_plain_http_is_not_answered(served: ServedApp) -> None:
    async with await tcp(served) as peer:
        await peer.send(post(MUTATE_PODS_PATH, QUESTION))
        assert b"HTTP" not in await peer.answer()
    await assert_unharmed(served)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_tls_below_1_2_is_refused(served: ServedApp, version: ssl.TLSVersion) -> None:
    context = served.tls()
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")  # so that the server refuses
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await tls(served, context)
    await assert_unharmed(served)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_from_1_2_on_is_spoken(served: ServedApp, version: ssl.TLSVersion) -> None:
    context = served.tls()
    context.minimum_version = context.maximum_version = version
    async with await tls(served, context) as peer:
        await peer.send(GET.encode() + b"\r\n")
        assert await peer.status() == 200


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2 preface"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00" * 9, id="TLS within TLS"),
        pytest.param(b"\x00" * 64, id="zeros"),
        pytest.param(f"{GET}{'X: x' + chr(13) + chr(10)}".encode() * 5000, id="10,000 headers"),
        pytest.param(f"{GET}X: {'x' * 1_000_000}\r\n\r\n".encode(), id="a header of 1 MB"),
        pytest.param(f"GET /{'x' * 1_000_000} HTTP/1.1\r\n\r\n".encode(), id="a path of 1 MB"),
        pytest.param(
            f"{GET}Content-Length: 5\r\nContent-Length: 6\r\n\r\n".encode(), id="two lengths"
        ),
        pytest.param(f"{GET}Content-Length: -1\r\n\r\n".encode(), id="negative length"),
        pytest.param(f"{GET}Content-Length: {10**30}\r\n\r\n".encode(), id="huge length"),
        pytest.param(f"{GET} X: folded\r\n\r\n".encode(), id="folded header"),
        pytest.param(f"{GET}X : y\r\n\r\n".encode(), id="blank before the colon"),
        pytest.param(f"{GET}X: a\0b\r\n\r\n".encode(), id="NUL in a header"),
    ],
)
async def test_what_is_no_request_is_refused(served: ServedApp, sent: bytes) -> None:
    with capture_logs() as logs:
        async with await tls(served) as peer:
            await peer.send(sent)
            assert await peer.status() in {0, 400, 431}
    assert [log for log in logs if log["log_level"] == "error"] == []
    await assert_unharmed(served)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param({"Transfer_Encoding": "chunked"}, id="length and chunks"),
        pytest.param({"Transfer_Encoding": "chunked, identity"}, id="chunks not last"),
        pytest.param({"Transfer_Encoding": "\x0bchunked"}, id="hidden chunks"),
        pytest.param({"Content_Length": "+3"}, id="length with a sign"),
        pytest.param({"Content_Length": "3, 3"}, id="list of lengths"),
        pytest.param({"Content_Length": "0x3"}, id="length in hex"),
    ],
)
async def test_second_request_cannot_be_smuggled_in_a_body(
    served: ServedApp, head: dict[str, str]
) -> None:
    """Where two readers could differ about the end of a body, reading stops."""
    smuggled = b"0\r\n\r\n" + post(MUTATE_PODS_PATH, QUESTION)
    async with await tls(served) as peer:
        await peer.send(post(MUTATE_PODS_PATH, smuggled, **head))
        answer = await peer.answer()
    assert answer.count(b"HTTP/1.") <= 1
    assert b" 200 " not in answer.split(b"\r\n", 1)[0]
    await assert_unharmed(served)


@pytest.mark.parametrize("path", [MUTATE_PODS_PATH, BIND_PATH, FILTER_PATH])
async def test_declared_100_mb_are_refused_before_they_come(
    scheduler: ServedApp, path: str
) -> None:
    async with await tls(scheduler) as peer:
        await peer.send(post(path, Content_Length=str(100_000_000)))
        line = await peer.status()
    assert line == (
        413 if path == MUTATE_PODS_PATH else 200
    )  # the extender's errors are in the body
    await assert_unharmed(scheduler)


async def test_100_mb_in_chunks_are_cut_off_at_the_limit(served: ServedApp) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    async with await tls(served) as peer:
        await peer.send(post_chunked(MUTATE_PODS_PATH), chunk, chunk)
        assert await peer.status() == 413
        await peer.send(*[chunk] * 1600)
        await peer.answer()
    await assert_unharmed(served)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
@pytest.mark.parametrize("path", [MUTATE_PODS_PATH, BIND_PATH])
async def test_compressed_body_is_not_unpacked(
    scheduler: ServedApp, path: str, encoding: str
) -> None:
    """A compression bomb stays a few kilobytes."""
    bomb = gzip.compress(b" " * 30_000_000)
    assert len(bomb) < MAX_BODY_BYTES
    reply = await scheduler.post(path, bomb, Content_Encoding=encoding)
    complaint = f"Content-Encoding {encoding} is not understood; send the body as it is"
    assert reply.status == (415 if path == MUTATE_PODS_PATH else 200)
    assert complaint in reply.text
    await assert_unharmed(scheduler)


def nested(opening: str, closing: str) -> str:
    return opening * DEPTH + "1" + closing * DEPTH


DEEP = [
    pytest.param(nested("[", "]"), id="lists"),
    pytest.param(nested('{"a":', "}"), id="objects"),
    pytest.param("[" * DEPTH, id="never closed"),
]


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize(
    "place",
    ["object", "object.metadata.labels", "object.spec", "object.spec.unknown", "unknown"],
)
async def test_review_that_is_nested_deeply_is_refused(
    served: ServedApp, deep: str, place: str
) -> None:
    assert sys.getrecursionlimit() < DEPTH
    reply = await served.post(MUTATE_PODS_PATH, put(QUESTION, f"request.{place}", deep))
    if reply.status == 200:
        assert not reply.json["response"]["allowed"]
    else:
        assert reply.status == 400
    await assert_unharmed(served)


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("place", ["Pod", "Pod.spec", "Pod.unknown", "NodeNames", "unknown"])
async def test_arguments_that_are_nested_deeply_are_refused(
    scheduler: ServedApp, deep: str, place: str
) -> None:
    args = extender_args(a_wire_pod(whole=1), "n1")
    reply = await scheduler.post(FILTER_PATH, put(args, place, deep))
    assert (reply.status, reply.json["NodeNames"]) == (200, [])
    assert reply.json["Error"]
    await assert_unharmed(scheduler)


def put(document: bytes, place: str, value: str) -> bytes:
    """Put JSON text at a place of a document, where it need not be JSON that Python can read."""
    content: Any = json.loads(document)
    *above, last = place.split(".")
    within = content
    for key in above:
        within = within[key]
    within[last] = "@@"
    return json.dumps(content).replace('"@@"', value).encode()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(str(2**64), id="65 bits"),
        pytest.param("9" * 5000, id="5,000 digits"),
        pytest.param("-9223372036854775809", id="below 64 bits"),
        pytest.param("1e400", id="beyond a float"),
        pytest.param("NaN", id="NaN"),
        pytest.param("Infinity", id="Infinity"),
        pytest.param(f'"{"9" * 5000}"', id="a quantity of 5,000 digits"),
        pytest.param('"1e1000000000"', id="a quantity with a huge exponent"),
        pytest.param(f'"{2**70}"', id="a quantity of 71 bits"),
    ],
)
async def test_number_that_does_not_fit_is_refused(served: ServedApp, value: str) -> None:
    pod = a_pod_object()
    resources = pod["spec"]["containers"][0]["resources"]
    for kind in resources.values():
        kind["gpu.deckhouse.io/whole"] = "@@"
    body = a_review(pod).replace(b'"@@"', value.encode())
    reply = await served.post(MUTATE_PODS_PATH, body)
    assert reply.status in {200, 400}
    assert reply.status == 400 or not reply.json["response"]["allowed"]
    await assert_unharmed(served)


async def test_last_of_duplicate_keys_counts_as_it_does_for_the_api_server(
    served: ServedApp,
) -> None:
    """We see the pod that the API server stores: Go takes the last one too."""
    innocent = json.dumps(a_pod_object(gpus=None)).encode()
    asking = json.dumps(a_pod_object(gpus=1)).encode()
    question = put(QUESTION, "request.object", "{}")
    for first, last, is_held in ((innocent, asking, True), (asking, innocent, False)):
        twice = b'"object": ' + first + b', "object": ' + last
        reply = await served.post(MUTATE_PODS_PATH, question.replace(b'"object": {}', twice))
        assert reply.json["response"]["allowed"]
        assert ("patch" in reply.json["response"]) is is_held


@pytest.mark.parametrize(
    "text", [b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\\ud800", b"\\u12", b"\x00", b"\n"]
)
@pytest.mark.parametrize("key", [b'"alice"', b'"busybox"', b'"team-a"'])
async def test_text_that_is_no_unicode_is_refused(
    served: ServedApp, text: bytes, key: bytes
) -> None:
    assert key in QUESTION
    with capture_logs() as logs:
        reply = await served.post(MUTATE_PODS_PATH, QUESTION.replace(key, b'"' + text + b'"'))
    assert reply.status in {200, 400}
    assert [log for log in logs if log["log_level"] == "error"] == []
    assert (await served.call("GET", LIVENESS_PATH)).status == 200


async def test_million_node_names_are_too_many_for_the_body(scheduler: ServedApp) -> None:
    names = (f"node-{number}" for number in range(1_000_000))
    async with await tls(scheduler) as peer:
        body = extender_args(a_wire_pod(whole=1), *names)
        await peer.send(post(FILTER_PATH, body, Connection="close"))
        answer = await peer.answer()
    assert f"the body is larger than {MAX_BODY_BYTES} bytes".encode() in answer
    await assert_unharmed(scheduler)


async def test_names_with_line_breaks_stay_within_their_field(scheduler: ServedApp) -> None:
    forged = 'x"}\n{"level":"error","event":"forged'
    reply = await scheduler.post(BIND_PATH, binding_args(name=forged))
    assert reply.status == 200
    assert forged in reply.json["Error"]
    assert b"\n" not in reply.body
    await assert_unharmed(scheduler)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(GET.encode() + b"\r\n", id="a probe"),
        pytest.param(post(MUTATE_PODS_PATH, QUESTION), id="a review"),
        pytest.param(post(MUTATE_PODS_PATH, QUESTION, Expect="100-continue"), id="the long way"),
        pytest.param(post("/nowhere"), id="no such path"),
        pytest.param(post(LIVENESS_PATH), id="no such method"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="no HTTP"),
    ],
)
async def test_no_answer_says_what_software_it_is_by(served: ServedApp, request_: bytes) -> None:
    async with await tls(served) as peer:
        await peer.send(request_ + b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = await peer.answer()
    assert b"HTTP/1." in answer
    assert [word for word in (b"aiohttp", b"Python") if word in answer] == []


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param({}, 401, id="no credentials"),
        pytest.param({"Authorization": f"Bearer {TOKEN}"}, 100, id="the token"),
    ],
)
async def test_only_who_may_ask_is_told_to_go_on(
    served: ServedApp, headers: dict[str, str], want: int
) -> None:
    """No body is requested that will not be read."""
    async with await tls(served) as peer:
        request = post(FILTER_PATH, b"", Content_Length="2", Expect="100-continue", **headers)
        await peer.send(request)
        assert await peer.status() == want
        if want == 100:
            await peer.send(b"{}")
            assert (await peer._reader.readline(), await peer.status()) == (b"\r\n", 200)


async def test_expectation_that_nobody_knows_is_refused(scheduler: ServedApp) -> None:
    async with await tls(scheduler) as peer:
        await peer.send(post(FILTER_PATH, b"{}", Expect="wonders"))
        assert await peer.status() == 417


async def test_tls_1_2_takes_authenticated_encryption_only(served: ServedApp) -> None:
    """OpenSSL's own list has CBC suites as well."""
    context = served.tls()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE:!AESGCM:!CHACHA20:@SECLEVEL=0")
    assert [cipher["name"] for cipher in context.get_ciphers() if "SHA384" in cipher["name"]]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await tls(served, context)
