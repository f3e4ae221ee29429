"""Mutate and validate over TLS on keep-alive connections, beside a trivial handler.

Every pod is another one and takes a unit, given back five seconds later. So the ledger is as busy as it
gets, and does not grow. Once more with 1,000 pods that wait: what they could use is not held for others,
which is examined for every pod.
"""

import base64
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.bench import world
from tests.bench.admitting import MUTATE, PodKind
from tests.bench.processes import cpu_s, make_certificates, served
from tests.bench.report import Result, at_least, at_most, checked, in_ms, rss_mib
from tests.bench.wire import connect, flood, request_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from tests.bench.sizes import Sizes
    from tests.bench.wire import Visit

SLICES = 16
WORKLOADS = "/mutate/workloads"
_TURNS = 4
"""The two servers are measured in turns: what else the machine does hits both alike."""
_ECHO_BYTES = (1_200, 180)
"""About what the two webhooks answer."""


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure the trivial handler, then ours."""
    pods, connections = sizes.admissions, sizes.connections
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        with served(directory, "--echo") as (echo_port, _):
            await flood(echo_port, context, _echoes(pods // 10), connections)
            echo_times, echo_s = await flood(echo_port, context, _echoes(pods), connections)
        options = ("--nodes", str(sizes.admission_nodes), "--slices", str(SLICES))
        waiting = ("--waiting", str(sizes.waiting_pods))
        with (
            served(directory, *options) as (port, pid),
            served(directory, *options, *waiting) as (other_port, _),
        ):
            kinds = [await _learn(item, context) for item in (port, other_port)]
            times: list[float] = []
            other_times: list[float] = []
            seconds = other_s = 0.0
            for turn in range(_TURNS):
                some, took = await _flood(port, context, kinds[0], sizes, f"a{turn}")
                times, seconds = times + some, seconds + took
                some, took = await _flood(other_port, context, kinds[1], sizes, f"b{turn}")
                other_times, other_s = other_times + some, other_s + took
            memory = rss_mib(pid)
            template = await _learn_template(port, context)
            await flood(port, context, _templates(template, pods // 10), connections)
            spent_s = cpu_s(pid)
            template_times, template_s = await flood(
                port, context, _templates(template, pods), connections
            )
            spent_s = cpu_s(pid) - spent_s
    echo_rate, rate, other_rate = (
        len(times) / seconds
        for times, seconds in ((echo_times, echo_s), (times, seconds), (other_times, other_s))
    )
    p50, p99 = in_ms(times)
    other_p50, other_p99 = in_ms(other_times)
    echo_p50, echo_p99 = in_ms(echo_times)
    template_p50, template_p99 = in_ms(template_times)
    return [
        Result(
            subject="admission",
            case=f"trivial handler, {connections} connections",
            samples=len(echo_times),
            p50_ms=echo_p50,
            p99_ms=echo_p99,
            rate_per_s=echo_rate,
        ),
        Result(
            subject="admission",
            case=f"mutate and validate, {connections} connections, a reservation each",
            samples=len(times),
            p50_ms=p50,
            p99_ms=p99,
            rate_per_s=rate,
            base_p50_ms=echo_p50,
            ratio=rate / echo_rate,
            rss_mib=memory,
            aims=(at_least("ratio", 0.6), at_least("rate_per_s", 6_000), at_most("p99_ms", 15)),
        ),
        Result(
            subject="admission",
            case=f"mutate and validate, {sizes.waiting_pods:,} pods waiting",
            samples=len(other_times),
            p50_ms=other_p50,
            p99_ms=other_p99,
            rate_per_s=other_rate,
            base_p50_ms=p50,
            ratio=other_rate / rate,
            aims=(at_least("ratio", 0.9),),
        ),
        Result(
            subject="admission",
            case=f"template, {connections} connections, a signature each",
            samples=len(template_times),
            p50_ms=template_p50,
            p99_ms=template_p99,
            rate_per_s=len(template_times) / template_s,
            base_p50_ms=echo_p50,
            cpu_ms=spent_s * 1e3 / len(template_times),
            aims=(at_least("rate_per_s", 3_000),),
        ),
    ]


async def _flood(
    port: int, context: "ssl.SSLContext", kind: PodKind, sizes: "Sizes", prefix: str
) -> tuple[list[float], float]:
    pods = sizes.admissions // _TURNS
    await flood(port, context, _pods(kind, pods // 10, f"{prefix}-warm"), sizes.connections)
    return await flood(port, context, _pods(kind, pods, prefix), sizes.connections)


def _pods(kind: PodKind, count: int, prefix: str) -> "Iterator[Visit]":
    for number in range(count):
        yield kind.visit(f"{prefix}-{number}", f"uid-{prefix}-{number}")


def _echoes(count: int) -> "Iterator[Visit]":
    """Yield visits with bodies of the same sizes, to a handler that decides nothing."""
    body = msgspec.json.encode(world.review(world.a_pod("echo", world.SLICES, 1), "echo"))
    requests = [request_bytes(f"/echo/{size}", body) for size in _ECHO_BYTES]

    def visit() -> "Visit":
        yield requests[0]
        yield requests[1]

    return (visit() for _ in range(count))


def _templates(request: bytes, count: int) -> "Iterator[Visit]":
    def visit() -> "Visit":
        yield request

    return (visit() for _ in range(count))


async def _learn_template(port: int, context: "ssl.SSLContext") -> bytes:
    """Return a request, after its answer was found to be a signature."""
    connection = await connect(port, context)
    request = request_bytes(WORKLOADS, msgspec.json.encode(world.template_review("template")))
    answer = msgspec.json.decode(await connection.send(request))["response"]
    assert b'"user":"alice"' in base64.b64decode(answer["patch"]).replace(b"\\", b""), answer
    checked("template")
    connection.close()
    return request


async def _learn(port: int, context: "ssl.SSLContext") -> PodKind:
    """Assert that answers are what they should be before any is timed."""
    connection = await connect(port, context)
    kind = await PodKind.learn(connection, world.SLICES, 1)
    await PodKind.learn(connection, world.SLICES, 2)
    huge = world.review(world.a_pod("huge", world.SLICES, 9_999), "huge")
    answer = await connection.send(request_bytes(MUTATE, msgspec.json.encode(huge)))
    denied = msgspec.json.decode(answer)["response"]
    assert not denied["allowed"]
    assert "9999" in denied["status"]["message"]
    checked("denial")
    connection.close()
    return kind
