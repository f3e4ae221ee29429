"""Bodies of every size, in any pieces: each is answered, and no error is logged.

On asyncio's loop and on uvloop, which delivers bytes in pieces of other sizes.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from http_edge.limits import Limits
from manifests.constants import FILTER_PATH, MUTATE_PODS_PATH
from tests.component.security.peers import post, post_chunked
from tests.support.reviews import AdmissionSetup, a_pod_object, a_review
from tests.support.scheduling import a_wire_pod, extender_args
from tests.support.served_app import TOKEN, ServedApp, TestAuthority, on_a_port

KIB = 1024
LIMIT = 1024 * KIB
AT_A_TIME = 16
WITHIN_S = 120.0
"""For what must happen; reached only where it does not."""

LADDER = sorted(
    {
        *(1 << power for power in range(10, 21)),  # 1 KiB to the limit
        # where bodies count as large, and where more than one read is needed
        *(edge + more for edge in (64 * KIB, 128 * KIB, 256 * KIB) for more in (-1, 1)),
        LIMIT - 1,
    }
)
REVIEW = a_review(a_pod_object(gpus=None))
ALLOWED = b'"allowed":true'
ARGUMENTS = extender_args(a_wire_pod(whole=1), "n1")
FITS = b'"NodeNames":["n1"]'

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class Caller:
    """One connection, and requests on it one after the other."""

    def __init__(self, served: ServedApp) -> None:
        self._served = served
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, pieces: Iterable[bytes]) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        if self._streams is None:
            self._streams = await self._served._connect()
        reader, writer = self._streams
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:-2])
        return int(lines[0].split()[1]), await reader.readexactly(int(headers["content-length"]))

    def hang_up(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def padded(body: bytes, size: int) -> bytes:
    """White space behind a document is none of its content."""
    return body + b" " * (size - len(body))


def in_one(request: bytes) -> Iterable[bytes]:
    return (request,)


def in_many(request: bytes) -> Iterable[bytes]:
    """Pieces that end nowhere in particular; some thousand for the longest."""
    size = max(1_021, len(request) // 1_000)
    return (request[start : start + size] for start in range(0, len(request), size))


@asynccontextmanager
async def served_on(authority: TestAuthority, folder: Path, limit: int) -> AsyncIterator[ServedApp]:
    token_file = folder / "token"
    token_file.write_text(TOKEN)
    admission = AdmissionSetup(_numbers=itertools.count(1000))
    app = ServedApp(authority, token_file, admission)
    async with (
        asyncio.timeout(WITHIN_S),
        on_a_port(app, Limits(body_bytes=limit)),
        asyncio.TaskGroup() as group,
    ):
        hogging = group.create_task(hog())
        yield app
        hogging.cancel()


async def hog() -> None:
    """Keep the loop busy, so that much has come whenever it comes to reading."""
    while True:
        sum(range(50_000))
        await asyncio.sleep(0)


async def in_parallel(
    served: ServedApp, ask: "Callable[[Caller], Coroutine[None, None, None]]", count: int
) -> None:
    callers = [Caller(served) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(ask(caller))
    for caller in callers:
        caller.hang_up()


def run(
    new_loop: NewLoop,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    ask: "Callable[[Caller], Coroutine[None, None, None]]",
    *,
    at_a_time: int = AT_A_TIME,
    limit: int = LIMIT,
) -> None:
    """So many concurrent callers are answered, and no error is logged."""

    async def main() -> None:
        async with served_on(TestAuthority(), folder, limit) as served:
            await in_parallel(served, ask, at_a_time)

    with capture_logs() as lines, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert [line for line in lines if line["log_level"] in {"error", "warning"}] == []
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == []


@LOOPS
@pytest.mark.parametrize("written", [in_one, in_many])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "new"])
def test_body_of_every_size_is_answered(
    new_loop: NewLoop,
    written: Callable[[bytes], Iterable[bytes]],
    kept: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(caller: Caller) -> None:
        # shaking hands is what costs
        for size in LADDER if kept else LADDER[::3]:
            review = post(MUTATE_PODS_PATH, padded(REVIEW, size))
            status, answer = await caller.ask(written(review))
            assert (status, ALLOWED in answer) == (200, True), (size, answer)
            if not kept:
                caller.hang_up()

    run(new_loop, tmp_path, caplog, ask)


@LOOPS
def test_body_up_to_the_limit_that_is_usual_is_answered(
    new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One at a time: sixteen of these are more than a busy machine reads within a webhook's time."""
    limit = Limits().body_bytes

    async def ask(caller: Caller) -> None:
        for size in (2 * LIMIT + 1, limit // 2, limit - 1, limit):
            status, answer = await caller.ask(in_many(post(MUTATE_PODS_PATH, padded(REVIEW, size))))
            assert (status, ALLOWED in answer) == (200, True), (size, answer)

    run(new_loop, tmp_path, caplog, ask, at_a_time=1, limit=limit)


@LOOPS
@pytest.mark.parametrize("written", [in_one, in_many])
def test_arguments_of_every_size_are_answered(
    new_loop: NewLoop,
    written: Callable[[bytes], Iterable[bytes]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(caller: Caller) -> None:
        for size in LADDER:
            body = padded(ARGUMENTS, size)
            question = post(FILTER_PATH, body, Authorization=f"Bearer {TOKEN}")
            status, answer = await caller.ask(written(question))
            assert (status, FITS in answer) == (200, True), (size, answer)

    run(new_loop, tmp_path, caplog, ask)


@LOOPS
@pytest.mark.parametrize("chunk", [1, 1_000, 60_000], ids=lambda size: f"chunks of {size}")
def test_body_in_chunks_is_answered(
    new_loop: NewLoop, chunk: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """20,000 of a byte, as the largest number; the connection goes on afterwards."""
    body = padded(REVIEW, min(LIMIT, 20_000 * chunk))
    pieces = (body[start : start + chunk] for start in range(0, len(body), chunk))
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    request = post_chunked(MUTATE_PODS_PATH) + chunked + b"0\r\n\r\n"

    async def ask(caller: Caller) -> None:
        for _ in range(2):
            status, answer = await caller.ask(in_one(request))
            assert (status, ALLOWED in answer) == (200, True), answer

    run(new_loop, tmp_path, caplog, ask)


@LOOPS
def test_many_requests_sent_at_once_are_all_answered(
    new_loop: NewLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In whatever pieces they come."""
    one = post(MUTATE_PODS_PATH, REVIEW)

    async def ask(caller: Caller) -> None:
        await caller.ask((one,))
        await caller.ask((one[:-5], one[-5:] + one * 79))
        for _ in range(79):
            status, answer = await caller.ask(())
            assert (status, ALLOWED in answer) == (200, True), answer

    run(new_loop, tmp_path, caplog, ask)
