"""From the start of the real server process to ready, beside a full in-memory API server.

The API server has a process of its own, and one of the two cores; reading and encoding its lists is
part of what is measured. Correct: /metrics shows the capacity that the world was made with.
"""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.processes import api_server, make_certificates, measured_server
from tests.bench.report import Result, at_most
from tests.bench.world import DEVICES, World

if TYPE_CHECKING:
    from tests.bench.sizes import ClusterSize, Sizes


async def measure(sizes: "Sizes") -> list[Result]:
    """Start a server at every size."""
    largest = sizes.startups[-1]
    return [await _at(startup, is_largest=startup == largest) for startup in sizes.startups]


async def _at(size: "ClusterSize", *, is_largest: bool) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        make_certificates(directory)
        with api_server(size) as api:
            started = time.perf_counter()
            async with measured_server(directory, api.url) as server:
                memory = await server.wait_ready()
                seconds = time.perf_counter() - started
                await server.wait_capacity(total=World(nodes=size.nodes).units(), used=size.pods)
                peak = max(memory, server.rss_mib)
    return Result(
        subject="startup",
        case=f"{size.nodes:,} nodes, {size.nodes * DEVICES:,} devices, {size.pods:,} pods",
        samples=1,
        p50_ms=seconds * 1e3,
        rss_mib=peak,
        aims=(at_most("p50_ms", 5_000), at_most("rss_mib", 300)) if is_largest else (),
    )
