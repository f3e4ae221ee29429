"""filter and prioritize in a small and in a large cluster: the same request to two servers in turn."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.calls import beside, calls
from tests.bench.processes import make_certificates, options_of, served
from tests.bench.report import Result, at_most
from tests.bench.wire import connect
from tests.bench.world import World

if TYPE_CHECKING:
    import ssl

    from tests.bench.sizes import Pair, Sizes


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure every pair of clusters."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        for pair in sizes.scaling:
            results += await _pair(pair, directory, context, sizes.pairs_of_calls)
    return results


async def _pair(
    pair: "Pair", directory: Path, context: "ssl.SSLContext", count: int
) -> list[Result]:
    both = [
        World(nodes=one.nodes, pool_count=one.pool_count).whole_nodes()
        for one in (pair.small, pair.large)
    ]
    # Asked of both: what is in the pool of whole devices in either.
    shared = sorted(set(both[0]) & set(both[1]))
    results: list[Result] = []
    with (
        served(directory, *options_of(pair.small)) as (small_port, _),
        served(directory, *options_of(pair.large)) as (large_port, _),
    ):
        small, large = await connect(small_port, context), await connect(large_port, context)
        for call in calls(shared, pair.candidates)[:2]:
            call.check(await small.send(call.requests[0]))
            call.check(await large.send(call.requests[0]))
            times = await beside((large, call.requests), (small, call.requests), count)
            results.append(
                Result(
                    subject="scaling",
                    case=f"{call.title}: {_text(pair)}",
                    samples=count,
                    p50_ms=times.p50_ms,
                    p99_ms=times.p99_ms,
                    base_p50_ms=times.base_p50_ms,
                    ratio=times.ratio,
                    aims=(at_most("ratio", 1.2),),
                )
            )
        small.close()
        large.close()
    return results


def _text(pair: "Pair") -> str:
    """Return what differs."""
    small, large = pair.small, pair.large
    figures = (
        ("nodes", small.nodes, large.nodes),
        ("pods", small.pods, large.pods),
        ("pools", small.pool_count, large.pool_count),
    )
    return ", ".join(f"{b:,} {name} to {a:,}" for name, a, b in figures if a != b)
