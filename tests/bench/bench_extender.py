"""filter and prioritize over HTTPS beside an echo of the same request and an answer of the same size."""

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.bench import world
from tests.bench.processes import make_certificates, served
from tests.bench.report import Result, in_ms, rss_mib
from tests.bench.wire import connect, request_bytes, time_pairs

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tests.bench.wire import Connection

LADDER = (100, 1_000, 5_000)
"""Candidates in one request."""
NODES = 10_000
"""Nodes of the cluster: half of them are the pool's."""
PODS = (4_000, 40_000)
SAMPLES = {100: 1_000, 1_000: 600, 5_000: 200}


async def measure() -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        with served(directory, "--echo") as (echo_port, _):
            for pods in PODS:
                options = ("--nodes", str(NODES), "--pods", str(pods))
                with served(directory, *options) as (port, pid):
                    for candidates in LADDER:
                        results += await _at(port, echo_port, context, (candidates, pods))
                    results.append(
                        Result(
                            subject="extender",
                            case=f"memory, {NODES:,} nodes, {pods:,} pods",
                            rss_mib=rss_mib(pid),
                        )
                    )
    return results


async def _at(
    port: int, echo_port: int, context: "ssl.SSLContext", size: tuple[int, int]
) -> list[Result]:
    candidates, pods = size
    ours, echo = await connect(port, context), await connect(echo_port, context)
    names = [world.node_name(number) for number in range(0, NODES, 2)]
    asked = random.Random(world.SEED).sample(names, candidates)
    size_text = f"{candidates:,} candidates, {pods:,} pods"
    cases = (
        (f"filter, {size_text}", "filter", 1, _check_some_fit),
        (f"prioritize, {size_text}", "prioritize", 1, _check_scores),
        (f"filter, none fits, {size_text}", "filter", world.CARDS + 1, _check_none_fits),
    )
    results = [
        await _case(
            (ours, echo),
            case,
            candidates,
            verb=verb,
            body=_arguments(asked, units),
            check=check(asked),
        )
        for case, verb, units, check in cases
    ]
    ours.close()
    echo.close()
    return results


def _arguments(names: list[str], units: int) -> bytes:
    pod = world.a_pod("asking", "whole", units)
    pod["metadata"]["uid"] = "asking"
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


async def _case(
    connections: "tuple[Connection, Connection]",
    case: str,
    candidates: int,
    *,
    verb: str,
    body: bytes,
    check: "Callable[[bytes], None]",
) -> Result:
    ours, echo = connections
    count = SAMPLES[candidates]
    request = request_bytes(f"/scheduler/{verb}", body)
    answer = await ours.send(request)
    check(answer)
    echoed = request_bytes(f"/echo/{len(answer)}", body)
    assert len(await echo.send(echoed)) == len(answer)
    await time_pairs((ours, lambda: request), (echo, lambda: echoed), count // 10)
    times, echo_times = await time_pairs((ours, lambda: request), (echo, lambda: echoed), count)
    p50, p99 = in_ms(times)
    echo_p50, _ = in_ms(echo_times)
    aim = "ratio ≤ 1.5, p99 ≤ 5 ms" if "1,000 candidates" in case and "none" not in case else ""
    return Result(
        subject="extender",
        case=case,
        p50_ms=p50,
        p99_ms=p99,
        echo_p50_ms=echo_p50,
        ratio=p50 / echo_p50,
        aim=aim,
    )


def _check_some_fit(asked: list[str]) -> "Callable[[bytes], None]":
    def check(answer: bytes) -> None:
        said = msgspec.json.decode(answer)
        failed = {
            **(said.get("FailedNodes") or {}),
            **(said.get("FailedAndUnresolvableNodes") or {}),
        }
        assert not said.get("Error"), said["Error"]
        assert sorted([*said["NodeNames"], *failed]) == sorted(asked)
        assert len(said["NodeNames"]) > len(asked) // 2, "most nodes have a free card"

    return check


def _check_none_fits(asked: list[str]) -> "Callable[[bytes], None]":
    def check(answer: bytes) -> None:
        said = msgspec.json.decode(answer)
        failed = {
            **(said.get("FailedNodes") or {}),
            **(said.get("FailedAndUnresolvableNodes") or {}),
        }
        assert said["NodeNames"] == []
        assert set(failed) == set(asked)
        assert all(failed.values()), "every node has its reason"

    return check


def _check_scores(asked: list[str]) -> "Callable[[bytes], None]":
    def check(answer: bytes) -> None:
        scores = msgspec.json.decode(answer)
        assert [one["Host"] for one in scores] == asked
        assert all(isinstance(one["Score"], int) and 0 <= one["Score"] <= 10 for one in scores)

    return check
