"""What each path answers, and what it says to requests that it cannot answer: JSON, a sentence, the right status."""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator

import pytest

from console.console_data import PodTrial
from console.edge.console_application import VIEWER_BURST
from console.edge.viewer_limits import ViewerLimits
from tests.support.canned_console import (
    ALL_SEEN,
    PAGE,
    ServedConsole,
    local_console,
    log_in,
)
from tests.support.polling import LIMIT_S

DEVICE = "/api/v1/devices/gpu-0-0"
WHAT_IF = "/api/v1/what-if?pool=training&units=4"
LONG = "x" * 300
END = "HTTP/1.1\r\nConnection: close\r\n"


@pytest.fixture
async def console() -> AsyncIterator[ServedConsole]:
    async with local_console(limits=ViewerLimits(linger_s=0.1)) as (served, token):
        await log_in(served, token)
        yield served


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/console.js", 200), (DEVICE, 200), ("/none", 404), ("/api/v1/none", 404),
     ("/api/v1/login", 401), ("/api/v1/stream?x=1", 400)],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_every_answer_has_the_headers_that_keep_others_out(
    console: ServedConsole, path: str, status: int, method: str
) -> None:
    heard = await console.ask(path, method=method)
    only_get = method == "HEAD" and path.startswith(("/api/v1/login", "/api/v1/stream"))
    assert heard.status == (405 if only_get else status)
    policy = heard.headers["Content-Security-Policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
        " font-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert heard.headers["X-Content-Type-Options"] == "nosniff"
    assert heard.headers["Referrer-Policy"] == "no-referrer"
    assert heard.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert heard.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    is_file = path in {"/", "/console.js"}
    assert heard.headers["Cache-Control"] == ("no-cache" if is_file else "no-store")
    assert "aiohttp" not in heard.headers["Server"]
    assert (heard.body == b"") == (method == "HEAD")


async def test_no_answer_to_noise_lacks_them(console: ServedConsole) -> None:
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n"):
        answer = await say(console, noise)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
        assert b"\r\nContent-Security-Policy: default-src 'none'" in answer
        assert answer.endswith(b'{"error":"the request is no HTTP, or a part of it is too long"}')


async def test_a_token_of_100_kb_is_refused(console: ServedConsole) -> None:
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nAuthorization: Bearer "
    answer = await say(console, head.encode() + b"x" * 100_000 + b"\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b"a part of it is too long" in answer
    assert (await console.ask(DEVICE)).status == 200


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", id="no host"),
        pytest.param("GET / HTTP/1.0\r\n\r\n", id="no host, as HTTP/1.0 allows"),
        pytest.param(f"GET / {END}Host: HOST\r\nHost: evil.example\r\n\r\n", id="two hosts"),
        pytest.param(f"GET http://HOST/ {END}Host: HOST\r\n\r\n", id="to a proxy"),
        pytest.param(f"GET * {END}Host: HOST\r\n\r\n", id="to all"),
    ],
)
async def test_a_target_that_is_not_plainly_ours_is_refused(
    console: ServedConsole, head: str
) -> None:
    answer = await say(console, head.replace("HOST", f"127.0.0.1:{console.port}").encode())
    assert re.match(rb"HTTP/1.[01] 400 ", answer), answer
    assert b'{"error":"' in answer


@pytest.mark.parametrize("path", ["/", DEVICE, "/api/v1/login", "/api/v1/devices/\udcff"])
@pytest.mark.parametrize(
    "header",
    ["Host: \udcff", "Origin: \udcff", "Authorization: Bearer \udcff", "Cookie: gpu-console-PORT=\udcff",
     "Cookie: \udcff", "Accept-Encoding: \udcff", "If-None-Match: \udcff", "Sec-Fetch-Site: \udcff",
     "Upgrade: websocket", "Expect: 100-continue", "Range: bytes=0-0", "Content-Length: 5"],
)  # fmt: skip
async def test_any_bytes_of_a_header_are_answered(
    console: ServedConsole, path: str, header: str
) -> None:
    host = "" if header.startswith("Host") else f"Host: 127.0.0.1:{console.port}\r\n"
    head = f"GET {path} {END}{host}{header.replace('PORT', str(console.port))}\r\n\r\n"
    body = b"12345" if header.startswith("Content-Length") else b""
    answer = await say(console, head.encode("utf-8", "surrogateescape") + body)
    found = re.match(rb"HTTP/1.[01] (\d+) ", answer)
    assert found is not None, answer
    assert int(found[1]) in {200, 204, 400, 401, 403, 404, 421}
    assert b"Content-Security-Policy: " in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", DEVICE, "/api/v1/stream", "/api/v1/login", "/none"])
async def test_nothing_but_get_is_taken(console: ServedConsole, method: str, path: str) -> None:
    heard = await console.ask(path, method=method)
    assert heard.status == 405
    assert heard.headers["Allow"] == "GET, HEAD"
    assert heard.error == "this path takes GET, HEAD"
    assert console.data.asked == []


async def test_a_body_is_not_read(console: ServedConsole) -> None:
    head = f"POST /api/v1/login {END}Host: 127.0.0.1:{console.port}\r\n"
    answer = await say(console, f"{head}Content-Length: 1000000\r\n\r\n{{".encode())
    assert answer.startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    "path",
    ["/../console.js", "/static/console.js", "/..%2fconsole.js", "/%2e%2e/pyproject.toml", "//", "/./",
     "/console.js/", "/console.js.map", "/index.html", "/rows.py", "/static/", "/console%2ejs",
     "/api", "/api/", "/api/v1", "/api/v1/", "/api/v2/stream", "/api/v1/stream/", "/api/v1/devices",
     "/api/v1/pods/a", "/api/v1/pods/a/b/c", "/api/v1/../../etc/passwd", "/%00", "/healthz", "/metrics"],
)  # fmt: skip
async def test_other_paths_are_not_there(console: ServedConsole, path: str) -> None:
    heard = await console.ask(path)
    assert heard.status == 404
    assert heard.error


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/v1/devices/..", "'..' is no name of a device"),
        ("/api/v1/devices/%2e%2e%2fpasswd", "'../passwd' is no name of a device"),
        ("/api/v1/devices/", "'' is no name of a device"),
        ("/api/v1/devices/GPU-0", "'GPU-0' is no name of a device"),
        (f"/api/v1/devices/{LONG}", f"'{'x' * 64}\\u2026' is no name of a device"),
        ("/api/v1/devices/a%ff", "the path of the address is no UTF-8"),
        ("/api/v1/devices/%3Cscript%3E", "'<script>' is no name of a device"),
        ("/api/v1/pods/%3Cimg%20src=x%3E/big", "'<img src=x>' is no name of a namespace"),
        ("/api/v1/pods/a.b/big", "'a.b' is no name of a namespace"),
        ("/api/v1/stream?namespace=%3Cb%3E", "'<b>' is no name of a namespace"),
        ("/api/v1/stream?namespace=%1b%5b2J", "'\\x1b[2J' is no name of a namespace"),
        (f"/api/v1/stream?namespace={'a' * 64}", f"'{'a' * 64}' is no name of a namespace"),
        ("/api/v1/stream?namespace=", "parameter namespace has no value"),
        ("/api/v1/stream?namespace=a&namespace=b", "parameter namespace is given 2 times"),
        ("/api/v1/stream?watch=1", "no such parameter 'watch'; this path takes namespace"),
        ("/api/v1/stream?namespace", "the query of the address cannot be read"),
        ("/api/v1/stream?&", "the query of the address cannot be read"),
        ("/api/v1/stream?namespace=%ff", "the query of the address cannot be read"),
        ("/api/v1/login?token=x", "no such parameter 'token'; this path takes none"),
        ("/api/v1/pods/a/b?namespace=c", "no such parameter 'namespace'; this path takes none"),
        ("/api/v1/what-if", "parameter pool is needed"),
        ("/api/v1/what-if?pool=training", "parameter units is needed"),
        ("/api/v1/what-if?pool=A&units=1", "'A' is no name of a pool"),
        (f"{WHAT_IF}&cordon=a/b", "'a/b' is no name of a node"),
        (f"{WHAT_IF}&" + "cordon=a&" * 64 + "cordon=a", "at most 64 nodes can be cordoned in one question"),
        (f"{WHAT_IF}&" + "cordon=a&" * 200 + "cordon=a", "the query of the address cannot be read"),
        ("/api/v1/what-if?pool=none&units=1", "there is no pool none"),
    ],
)  # fmt: skip
async def test_what_is_asked_has_to_be_what_it_should_be(
    console: ServedConsole, path: str, said: str
) -> None:
    heard = await console.ask(path)
    assert heard.status == 400
    assert heard.error == said


@pytest.mark.parametrize(
    "number",
    ["-1", "1.5", "1e9", "0x10", "+1", "%201", "1%0a", "9999999", "9" * 5_000, "%D9%A3", "NaN"],
)
@pytest.mark.parametrize("name", ["units", "times"])
async def test_absurd_numbers_are_refused(console: ServedConsole, number: str, name: str) -> None:
    given = {"units": "1", "times": "1", name: number}
    heard = await console.ask(
        f"/api/v1/what-if?pool=training&units={given['units']}&times={given['times']}"
    )
    assert heard.status == 400
    assert heard.error.startswith(f"{name} is a number of at most 6 digits, and not ")
    assert console.data.asked == []


async def test_an_address_without_end_is_refused(console: ServedConsole) -> None:
    heard = await console.ask(f"/api/v1/devices/{'x' * 100_000}")
    assert heard.status == 400
    assert heard.error


async def test_questions_reach_the_data_with_what_the_viewer_may_see(
    console: ServedConsole,
) -> None:
    assert (await console.ask(DEVICE)).json["name"] == "gpu-0-0"
    assert (await console.ask(f"{DEVICE}?namespace=ml-team")).status == 200
    assert (await console.ask("/api/v1/pods/ml-team/big")).json["name"] == "ml-team/big"
    heard = await console.ask(f"{WHAT_IF}&times=3&cordon=gpu-1&cordon=gpu-2.example")
    assert heard.json["pods"] == 3
    trial = PodTrial(pool="training", units=4, times=3, cordoned=("gpu-1", "gpu-2.example"))
    assert console.data.asked == [
        ("gpu-0-0", ALL_SEEN),
        ("gpu-0-0", ALL_SEEN),
        ("ml-team/big", ALL_SEEN),
        (trial, ALL_SEEN),
    ]


@pytest.mark.looptime
@pytest.mark.parametrize("question", [WHAT_IF, "/api/v1/pods/ml-team/big"])
async def test_questions_about_pods_are_answered_at_a_bounded_rate(
    console: ServedConsole, question: str
) -> None:
    heard = await console.ask(question)
    for _ in range(VIEWER_BURST):
        if heard.status != 200:
            break
        heard = await console.ask(question)
    assert (heard.status, heard.headers["Retry-After"]) == (429, "1")
    assert heard.error == "too many questions are asked; try again in a second"
    assert (await console.ask(DEVICE)).status == 200
    await asyncio.sleep(1)
    assert (await console.ask(WHAT_IF)).status == 200


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/v1/devices/gpu-9-9", "there is no device gpu-9-9"),
        (
            "/api/v1/pods/ml-team/gone",
            "no pod ml-team/gone waits for units, or this user may not list its namespace's pods",
        ),
    ],
)
async def test_what_is_not_there_is_said(console: ServedConsole, path: str, said: str) -> None:
    heard = await console.ask(path)
    assert (heard.status, heard.error) == (404, said)


@pytest.mark.parametrize("path", [DEVICE, WHAT_IF, "/api/v1/stream", "/api/v1/pods/ml-team/big"])
async def test_data_that_are_not_read_yet_are_waited_for(console: ServedConsole, path: str) -> None:
    console.data.is_ready = False
    heard = await console.ask(path)
    assert (heard.status, heard.headers["Retry-After"]) == (503, "1")
    assert heard.error == "the lists of the cluster are not read yet"
    assert console.data.asked == []


async def test_a_fault_of_ours_says_no_more_than_that(
    console: ServedConsole, caplog: pytest.LogCaptureFixture
) -> None:
    console.data.fault = RuntimeError("the secret of the core")
    heard = await console.ask(DEVICE)
    assert (heard.status, heard.error) == (500, "the console failed; its log says more")
    console.data.fault = None
    assert (await console.ask(DEVICE)).status == 200


@pytest.mark.parametrize("name", sorted(PAGE))
async def test_files_are_compressed_once_and_not_sent_twice(
    console: ServedConsole, name: str
) -> None:
    path = "/" if name == "index.html" else f"/{name}"
    plain = await console.ask(path, Cookie="", Accept_Encoding="identity")
    assert (plain.status, plain.body) == (200, PAGE[name])
    lasts = name.startswith("Waiting-")  # as its name says what is in it
    assert plain.headers["Cache-Control"] == (
        "max-age=31536000, immutable" if lasts else "no-cache"
    )
    assert "Content-Encoding" not in plain.headers
    packed = await console.ask(path, Accept_Encoding="br, gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == PAGE[name]
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    for tag in (packed.headers["ETag"], f'"x", W/{packed.headers["ETag"]}', "*"):
        heard = await console.ask(path, Accept_Encoding="gzip", If_None_Match=tag)
        assert (heard.status, heard.body) == (304, b"")
        assert heard.headers["ETag"] == packed.headers["ETag"]
    heard = await console.ask(path, Accept_Encoding="gzip", If_None_Match=plain.headers["ETag"])
    assert heard.status == 200


async def say(console: ServedConsole, request: bytes) -> bytes:
    """Send bytes, and return everything that comes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
    writer.write(request)
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer
