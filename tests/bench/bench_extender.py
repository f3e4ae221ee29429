"""filter and prioritize over HTTPS beside an echo of the same request and an answer of the same size."""

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.calls import beside, calls, calls_of_new_lists, calls_of_successive_pods
from tests.bench.processes import make_certificates, options_of, served
from tests.bench.report import Aim, Result, at_most, rss_mib
from tests.bench.wire import connect, request_bytes
from tests.bench.world import World

if TYPE_CHECKING:
    from tests.bench.calls import Call
    from tests.bench.sizes import Sizes
    from tests.bench.wire import Connection


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure every number of candidates in one cluster."""
    cluster = sizes.extender_cluster
    nodes = World(nodes=cluster.nodes).whole_nodes()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        with (
            served(directory, "--echo") as (echo_port, _),
            served(directory, *options_of(cluster)) as (port, pid),
        ):
            ours, echo = await connect(port, context), await connect(echo_port, context)
            for candidates in sizes.candidates:
                count = max(1, sizes.pairs_of_calls * 1_000 // max(1_000, candidates * 2))
                results += [
                    await _case(call, ours, echo, count)
                    for call in (
                        *calls(nodes, candidates),
                        calls_of_successive_pods(nodes, candidates),
                        *calls_of_new_lists(nodes, candidates),
                    )
                ]
            results.append(
                Result(
                    subject="extender",
                    case=f"memory, {cluster.nodes:,} nodes, {cluster.pods:,} pods",
                    rss_mib=rss_mib(pid),
                )
            )
            ours.close()
            echo.close()
    return results


async def _case(call: "Call", ours: "Connection", echo: "Connection", count: int) -> Result:
    answers = [await ours.send(request) for request in call.requests[: call.together]]
    call.check(answers[0])
    sizes = itertools.cycle(len(answer) for answer in answers)
    bodies = (request.partition(b"\r\n\r\n")[2] for request in call.requests)
    echoed = [request_bytes(f"/echo/{next(sizes)}", body) for body in bodies]
    assert len(await echo.send(echoed[0])) == len(answers[0])
    times = await beside((ours, call.requests), (echo, echoed), count, together=call.together)
    return Result(
        subject="extender",
        case=call.title,
        samples=count,
        p50_ms=times.p50_ms,
        p99_ms=times.p99_ms,
        base_p50_ms=times.base_p50_ms,
        ratio=times.ratio,
        aims=_aims(call.title),
    )


def _aims(title: str) -> tuple[Aim, ...]:
    if "none fits" in title:
        return (at_most("ratio", 2.5),)
    in_time = (at_most("p99_ms", 5),) if "1,000" in title else ()
    return (at_most("ratio", 1.5), *in_time)
