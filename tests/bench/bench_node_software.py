"""A ClusterPolicy until its objects exist, quiet, with labels of nodes that flap, and what it costs in memory.

The real server, leading, beside an API server in another process. Correct: every object and every node took one write;
quiet, and while the labels of Node Feature Discovery go and come, no object and no label of ours is written; at the end
the policy is ready.
"""

import asyncio
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from api.names import POLICY_STATE_LABEL
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS
from manifests.constants import DEFAULT_NAMESPACE
from tests.bench.processes import ApiServer, api_server, make_certificates, measured_server
from tests.bench.report import Result, at_most, checked
from tests.bench.sizes import ClusterSize
from tests.bench.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tests.bench.processes import MeasuredServer
    from tests.bench.sizes import Sizes

Json = dict[str, Any]

SETTINGS: Final[Json] = {
    "node_software": {"enabled": True},
    "bootstrap": {"operands": "External"},
}
POLICY: Final = "gpus"
LONGEST_MS: Final = 5_000.0
CORE_LIMIT_PCT: Final = 20.0
MEMORY_LIMIT_MIB: Final = 20.0
WITHIN_S: Final = 300.0
STILL_S: Final = 7.0
"""Longer than the pause between two looks at what is not ready."""
_OTHERS: Final = (
    "device.assignment",
    "device.state",
    "node.inventory",
    "node.operands",
    "pool.workloads",
)
"""Controllers that would be busy for minutes with 40,000 devices that they have not seen."""
_LOOKS: Final = 60
_SWITCHED: Final = (
    "devicePlugin",
    "dcgmExporter",
    "dcgm",
    "gfd",
    "migManager",
    "nodeStatusExporter",
)


async def measure(sizes: "Sizes") -> list[Result]:
    """Bring a policy up on some nodes and leave it alone; then weigh a server with and without one."""
    small = ClusterSize(nodes=sizes.software_nodes, pods=0)
    with tempfile.TemporaryDirectory() as folder, api_server(small, "--node-software") as api:
        make_certificates(Path(folder))
        async with _leader(Path(folder), api, SETTINGS, small) as server:
            await _until_still(api)
            brought_up = await _bring_up(api, small)
            quiet, flapping = await _flap(api, server, sizes)
    return [brought_up, quiet, flapping, await _memory(sizes.software_cluster)]


async def _bring_up(api: ApiServer, size: ClusterSize) -> Result:
    began = time.perf_counter()
    await _create_policy(api)
    paths, last = await _until_still(api)
    once = {path: count for path, count in paths.items() if not path.endswith("/status")}
    assert set(once.values()) == {1}, {path: count for path, count in once.items() if count > 1}
    assert sum("/nodes/" in path for path in once) == size.nodes
    assert sum("/daemonsets/" in path for path in once) >= len(_SWITCHED) + 3
    checked("one write an object")
    return Result(
        subject="node_software",
        case=f"ClusterPolicy until all objects and labels of nodes are there, {size.nodes:,} nodes",
        samples=1,
        p50_ms=(last - began) * 1e3,
        writes=sum(once.values()),
        aims=(at_most("p50_ms", LONGEST_MS),),
    )


async def _flap(api: ApiServer, server: "MeasuredServer", sizes: "Sizes") -> tuple[Result, Result]:
    api.roll_out()
    await _until_ready(api)
    await _until_still(api)
    seconds = sizes.software_flap_s
    spent = server.cpu_s
    await asyncio.sleep(seconds)
    quiet_s = server.cpu_s - spent
    quiet_writes = api.take_paths()
    changes, spent = api.count_changes(), server.cpu_s
    api.flap(sizes.software_flaps_per_s)
    await asyncio.sleep(seconds)
    flapping_s, changes = server.cpu_s - spent, api.count_changes() - changes
    api.flap(0)
    assert changes >= sizes.software_flaps_per_s * seconds * 0.8, f"{changes} changes only"
    flapping_writes = api.take_paths()
    await _until_ready(api)
    assert not quiet_writes, quiet_writes
    assert not flapping_writes, flapping_writes
    checked("no write")
    nodes = f"{sizes.software_nodes:,} nodes"
    return (
        Result(
            subject="node_software",
            case=f"{seconds:g} s, nothing changes, {nodes}",
            cpu_s=quiet_s,
            writes=sum(quiet_writes.values()),
            aims=(at_most("writes", 0),),
        ),
        Result(
            subject="node_software",
            case=f"{seconds:g} s, labels of nodes change {sizes.software_flaps_per_s} times a second, {nodes}",
            samples=changes,
            cpu_s=flapping_s,
            core_pct=max(0.0, flapping_s - quiet_s) / seconds * 100,
            writes=sum(flapping_writes.values()),
            aims=(at_most("writes", 0), at_most("core_pct", CORE_LIMIT_PCT)),
        ),
    )


async def _memory(size: ClusterSize) -> Result:
    """Compare servers that have started beside the same objects, pods of the states included."""
    with tempfile.TemporaryDirectory() as folder, api_server(size, "--node-software") as api:
        make_certificates(Path(folder))

        async def resident(settings: Json) -> float:
            async with _leader(Path(folder), api, settings, size, without=_OTHERS) as server:
                return await _resident(server)

        async with _leader(Path(folder), api, SETTINGS, size, without=_OTHERS):
            await _create_policy(api)
            await _until_still(api)
            api.roll_out()
            await _until_ready(api)
        found, without = await resident(SETTINGS), await resident({})
    return Result(
        subject="node_software",
        case=f"memory over that without node software, {size.nodes:,} nodes, {size.pods:,} pods",
        samples=1,
        rss_mib=found,
        growth_mib=found - without,
        aims=(at_most("growth_mib", MEMORY_LIMIT_MIB),),
    )


async def _resident(server: "MeasuredServer") -> float:
    """Return the most resident memory over some passes."""
    samples = []
    for _ in range(_LOOKS):
        await asyncio.sleep(0.5)
        samples.append(server.rss_mib)
    return max(samples)


@asynccontextmanager
async def _leader(
    directory: Path,
    api: ApiServer,
    settings: Json,
    size: ClusterSize,
    *,
    without: "Iterable[str]" = (),
) -> "AsyncIterator[MeasuredServer]":
    async with measured_server(directory, api.url, without=without, **settings) as server:
        await server.wait_ready()
        await server.wait_capacity(total=World(nodes=size.nodes).units(), used=size.pods)
        while not (await server.metrics())["gpu_leading"]:  # noqa: ASYNC110  # the server is asked
            await asyncio.sleep(0.2)
        yield server


async def _until_still(api: ApiServer) -> tuple[dict[str, int], float]:
    """Return the writes until there is none for a while, and when the last was seen."""
    total: dict[str, int] = {}
    began = last = time.perf_counter()
    while time.perf_counter() < last + STILL_S:
        assert time.perf_counter() < began + WITHIN_S, f"writes go on: {list(total)[-5:]}"
        for path, count in api.take_paths().items():
            total[path] = total.get(path, 0) + count
            last = time.perf_counter()
        await asyncio.sleep(0.05)
    return total, last


async def _create_policy(api: ApiServer) -> None:
    images = {"repository": "registry.example.com", "version": "1"}
    spec = {
        "operator": {},
        "daemonsets": {},
        "driver": {**images, "image": "driver", "manager": {**images, "image": "manager"}},
        "toolkit": {**images, "image": "toolkit"},
        "validator": {**images, "image": "validator"},
        **{name: {**images, "image": name.lower(), "enabled": True} for name in _SWITCHED},
    }
    body = {
        "apiVersion": CLUSTER_POLICIES.api_version,
        "kind": CLUSTER_POLICIES.kind,
        "metadata": {"name": POLICY},
        "spec": spec,
    }
    async with (
        _session() as session,
        session.post(f"{api.url}{CLUSTER_POLICIES.path()}", json=body) as answer,
    ):
        assert answer.status == 201, await answer.text()


async def _until_ready(api: ApiServer) -> None:
    """Wait until the policy is ready with DaemonSets that have pods."""
    deadline = time.perf_counter() + WITHIN_S
    url, sets = f"{api.url}{CLUSTER_POLICIES.path()}/{POLICY}", DAEMON_SETS.path(DEFAULT_NAMESPACE)
    selector = {"labelSelector": POLICY_STATE_LABEL}
    status: Json = {}
    async with _session() as session:
        while time.perf_counter() < deadline:
            async with session.get(f"{api.url}{sets}", params=selector) as answer:
                found = (await answer.json())["items"]
            async with session.get(url) as answer:
                status = (await answer.json()).get("status", {})
            if status.get("state") == "ready" and all(one.get("status") for one in found):
                checked("ready policy")
                return
            await asyncio.sleep(0.2)
    raise AssertionError(f"the policy is not ready: {status}")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers={"Authorization": "Bearer bench"})
