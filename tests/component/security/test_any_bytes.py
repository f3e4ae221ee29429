"""Any bytes, in any pieces: the same answers as in one piece, none twice, and no connection without an end."""

import asyncio
import re

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from http_edge.limits import Limits
from http_edge.replies import Reply
from http_edge.routes import Routes
from tests.support.endpoints import AnsweredBy, OneConnection, awaited, port_state, text

LIMITS = Limits(connections=4, body_bytes=64, large_body_bytes=16, large_bodies=1, pipelined=8)
LONGEST_S = 2 * LIMITS.keep_alive_s

PATHS = st.sampled_from(["/open", "/known", "/awaited", "/page", "/nowhere"])
HEADERS = st.lists(
    st.sampled_from(
        [
            "Connection: close",
            "Connection: keep-alive",
            "Content-Encoding: gzip",
            "X: y",
            "X:",
            "Upgrade: h2c",
        ]
    ),
    max_size=2,
    unique_by=lambda header: header.partition(":")[0],
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Valid framing; what is asked may be refused."""
    method = draw(st.sampled_from(["POST", "POST", "GET", "HEAD", "PUT"]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0"]))
    body = draw(st.binary(max_size=100))
    headers = draw(HEADERS)
    if version == "1.1" and draw(st.booleans()):
        sizes = draw(st.lists(st.integers(1, 40), max_size=3))
        chunks = [body[at : at + size] for at, size in enumerate(sizes) if body[at : at + size]]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        headers = [*headers, "Transfer-Encoding: chunked"]
    else:
        framed = body
        headers = [*headers, f"Content-Length: {len(body)}"]
    head = "\r\n".join([f"{method} {draw(PATHS)} HTTP/{version}", *headers, "", ""])
    return head.encode() + framed


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Some requests, with some bytes of theirs lost, doubled or others."""
    sent = b"".join(draw(st.lists(requests(), min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(sent)))
        piece = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"\0", b":", b"0\r\n\r\n", sent]),
            )
        )
        sent = sent[:at] + piece + sent[at + draw(st.integers(0, 3)) :]
    return sent


def pieces(sent: bytes, sizes: list[int]) -> list[bytes]:
    """Cut it into pieces of these sizes, in turn."""
    cut = []
    at = turn = 0
    while at < len(sent):
        size = sizes[turn % len(sizes)]
        cut.append(sent[at : at + size])
        at, turn = at + size, turn + 1
    return cut


def in_hex(body: bytes) -> Reply:
    """Answer with text that is no head of an answer, whatever was sent."""
    return text(body.hex().encode())


def answers_to(sent: list[bytes]) -> list[tuple[int, bytes]]:
    """Return status and body of each answer; assert that the connection comes to its end."""

    async def main() -> bytes:
        routes = Routes(
            endpoints={
                "/open": AnsweredBy(in_hex, knows_callers=False),
                "/known": AnsweredBy(in_hex),
                "/awaited": AnsweredBy(awaited(lambda: asyncio.sleep(0), in_hex)),
            },
            pages={"/page": lambda *_: text(b"page")},
        )
        async with port_state(routes, LIMITS) as state:
            peer = OneConnection(state)
            await peer.feed(*sent)
            await peer.drain()
            await asyncio.sleep(LONGEST_S)
            assert peer.transport.is_closing(), (
                "no connection that has said anything stays for ever"
            )
            assert state.connections == set()
            assert len(state.limiter) == 0
            return peer.written

    with capture_logs() as logs, asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        written = runner.run(main())
    assert [line for line in logs if line["log_level"] == "error"] == []
    return read_answers(written)


def read_answers(written: bytes) -> list[tuple[int, bytes]]:
    """Read answers as a client does that trusts their lengths; one to HEAD has no body."""
    found = []
    while written:
        head, ended, remaining = written.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert match, written
        assert ended
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length
        size = 0 if remaining.startswith(b"HTTP/1.1 ") or not remaining else int(length[1])
        found.append((int(match[1]), remaining[:size]))
        written = remaining[size:]
    return found


@pytest.mark.parametrize("strategy", [requests(), damaged()], ids=["valid", "damaged"])
def test_pieces_make_no_difference(strategy: st.SearchStrategy[bytes], is_long: bool) -> None:
    @settings(max_examples=5_000 if is_long else 250, deadline=None)
    @given(
        st.lists(strategy, min_size=1, max_size=4),
        st.lists(st.integers(1, 50), min_size=1, max_size=8),
    )
    def hold(sent: list[bytes], sizes: list[int]) -> None:
        whole = b"".join(sent)
        answers = answers_to([whole])
        assert answers_to(pieces(whole, sizes)) == answers
        assert answers_to(pieces(whole, [1])) == answers
        # Each answer is to a request: no method, no answer.
        assert len(answers) <= whole.count(b"HTTP/") + 1

    hold()


def test_each_valid_request_has_one_answer(is_long: bool) -> None:
    """Up to the first that ends the connection."""

    @settings(max_examples=5_000 if is_long else 250, deadline=None)
    @given(st.lists(requests(), min_size=1, max_size=8))
    def hold(sent: list[bytes]) -> None:
        heads = [item.partition(b"\r\n\r\n")[0] for item in sent]
        ends = [
            number
            for number, head in enumerate(heads, start=1)
            if b"Connection: close" in head or (b"HTTP/1.0" in head and b"keep-alive" not in head)
        ]
        assert len(answers_to([b"".join(sent)])) == (ends[0] if ends else len(sent))

    hold()
