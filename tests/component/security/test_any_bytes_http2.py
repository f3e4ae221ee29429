"""Any bytes by HTTP/2, in any pieces: the same answers as in one piece, none twice, and no connection without an end."""

import asyncio
from collections import defaultdict

import looptime
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hpack import Decoder
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from http_edge.http2.http2_protocol import Http2Protocol
from http_edge.limits import Limits
from http_edge.routes import Routes
from tests.component.security.test_any_bytes import in_hex, pieces
from tests.support.endpoints import AnsweredBy, OneConnection, awaited, port_state, text

LIMITS = Limits(connections=4, body_bytes=64, large_body_bytes=16, large_bodies=1, pipelined=8)
LONGEST_S = 2 * LIMITS.keep_alive_s
DATA, HEADERS, RST_STREAM, GOAWAY, END_STREAM = 0, 1, 3, 7, 1

PATHS = st.sampled_from(["/open", "/known", "/awaited", "/page", "/nowhere"])
FIELDS = st.lists(
    st.sampled_from([("content-encoding", "gzip"), ("x", "y"), ("x", ""), ("te", "trailers")]),
    max_size=2,
)
REQUESTS = st.tuples(
    st.sampled_from(["POST", "POST", "GET", "HEAD", "PUT"]),
    PATHS,
    FIELDS,
    st.lists(st.binary(max_size=40), max_size=3),
)
BETWEEN = st.lists(st.sampled_from(["ping", "settings", "window", "nothing"]), max_size=2)


def greeted() -> H2Connection:
    codec = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    codec.initiate_connection()
    return codec


def ask(codec: H2Connection, request: tuple[str, str, list[tuple[str, str]], list[bytes]]) -> None:
    method, path, fields, parts = request
    number = codec.get_next_available_stream_id()
    named = [(":method", method), (":scheme", "https"), (":authority", "x"), (":path", path)]
    codec.send_headers(number, [*named, *fields], end_stream=not parts)
    for turn, part in enumerate(parts, start=1):
        codec.send_data(number, part, end_stream=turn == len(parts), pad_length=turn % 3 or None)


def interrupt(codec: H2Connection, how: str) -> None:
    match how:
        case "ping":
            codec.ping(b"12345678")
        case "settings":
            codec.update_settings({SettingCodes.MAX_FRAME_SIZE: 2**14})
        case "window":
            codec.increment_flow_control_window(1)
        case _:
            pass


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """What a client sends for some requests, one piece for each."""
    codec = greeted()
    sent = []
    for request, between in draw(st.lists(st.tuples(REQUESTS, BETWEEN), min_size=1, max_size=6)):
        ask(codec, request)
        for how in between:
            interrupt(codec, how)
        sent.append(codec.data_to_send())
    return sent


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """The same, with some bytes lost, doubled or others, and streams given up."""
    sent = bytearray(b"".join(draw(conversations())))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(sent)))
        number = draw(st.sampled_from([1, 3, 5])).to_bytes(4, "big")
        piece = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [
                        b"\0\0\4\3\0" + number + b"\0\0\0\x08",
                        b"\0\0\4\x08\0" + number + b"\0\0\0\1",
                        b"\0\0\0\x09\0" + number,
                        b"\0\0\0\1\5" + number,
                        b"\0\0\0\0\1" + number,
                        bytes(sent[24:60]),
                    ]
                ),
            )
        )
        sent[at : at + draw(st.integers(0, 3))] = piece
    return [bytes(sent)]


def answers_to(sent: list[bytes]) -> dict[int, tuple[int, bytes]]:
    """Return stream -> status and body; assert that the connection comes to its end."""

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
            peer = OneConnection(state, Http2Protocol)
            await peer.feed(*sent)
            await peer.drain()
            await asyncio.sleep(LONGEST_S)
            if not peer.transport.is_closing():
                assert read_answers(peer.written) == {}, "only a first request is waited for"
                peer.transport.close()
                await asyncio.sleep(0)
            assert state.connections == set()
            assert len(state.limiter) == 0
            assert state.large_bodies._free == LIMITS.large_bodies
            return peer.written

    with capture_logs() as logs, asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        written = runner.run(main())
    assert [line for line in logs if line["log_level"] == "error"] == []
    return read_answers(written)


def read_answers(written: bytes) -> dict[int, tuple[int, bytes]]:
    """Read whole answers; assert that each frame is in order, and none of a stream follows its end."""
    decoder = Decoder()
    status: dict[int, int] = {}
    body: dict[int, bytes] = defaultdict(bytes)
    ended: set[int] = set()
    while written:
        size = 9 + int.from_bytes(written[:3], "big")
        assert len(written) >= size, "a frame is cut off"
        kind, flags = written[3], written[4]
        number, payload = int.from_bytes(written[5:9], "big"), written[9:size]
        written = written[size:]
        if kind == HEADERS:
            assert number not in status, "answered twice"
            status[number] = int(dict(decoder.decode(payload, raw=True))[b":status"])
        elif kind == DATA:
            assert number in status
            assert number not in ended
            body[number] += payload
        if kind in {HEADERS, DATA} and flags & END_STREAM:
            ended.add(number)
        assert kind != GOAWAY or payload[:4] != b"\xff\xff\xff\xff"
    return {number: (status[number], body[number]) for number in sorted(ended)}


def test_pieces_make_no_difference(is_long: bool) -> None:
    @settings(max_examples=3_000 if is_long else 150, deadline=None)
    @given(conversations(), st.lists(st.integers(1, 50), min_size=1, max_size=8))
    def hold(sent: list[bytes], sizes: list[int]) -> None:
        whole = b"".join(sent)
        answers = answers_to([whole])
        assert list(answers) == list(range(1, 2 * len(sent), 2)), "one for each request"
        assert answers_to(pieces(whole, sizes)) == answers
        assert answers_to(pieces(whole, [1])) == answers

    hold()


@pytest.mark.parametrize("size", [10_000, 1, 7])
def test_damaged_frames_are_survived(size: int, is_long: bool) -> None:
    @settings(max_examples=5_000 if is_long else 200, deadline=None)
    @given(damaged())
    def hold(sent: list[bytes]) -> None:
        answers_to(pieces(b"".join(sent), [size]))

    hold()
