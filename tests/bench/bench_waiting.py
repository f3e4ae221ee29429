"""Why pods wait: what the plugin's answer costs at growing pools, and what explaining costs the leader.

The plugin reads lists that are encoded beforehand, so that neither kubectl nor an API server counts. The leader is the
real server beside an API server in another process, with 1,000 pods that wait while pods, devices and nodes change: once
as it is, once without its task `pod.explanation`, in turn.

Correct: the figures are the world's, the smaller size that is named is the largest that any node has free; conditions of
waiting pods say what the figures allow, and no pod has one without the task.
"""

import asyncio
import json
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from api.foreign.core import Pod
from api.names import UNITS_CONDITION
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES, PODS
from kubectl_gpu.cluster_lists import ClusterLists
from kubectl_gpu.waiting.pod_wait import wait_of
from pool.explanation.explanation import AskFewerUnits, UnitWaitReason
from reconciler.pod.wait_explanation import TASK
from server.system_clock import SystemClock
from tests.bench.processes import api_server, make_certificates, measured_server
from tests.bench.report import Result, at_most, checked, in_ms
from tests.bench.world import DEVICES, WHOLE, World, a_pod

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Iterable, Iterator

    from kube.resources import Resource
    from kubectl_gpu.cluster_source import ListQuery
    from kubectl_gpu.waiting.pod_wait import PodExplanation
    from tests.bench.processes import MeasuredServer
    from tests.bench.sizes import Sizes

LIMIT_MS: Final = 3_000.0
CORE_LIMIT_PCT: Final = 2.0
PAGE: Final = 500
SETTLE_S: Final = 8.0
"""A pod is explained after it has waited for five seconds."""
REASONS: Final = {UnitWaitReason.UNITS_FRAGMENTED.value, UnitWaitReason.UNITS_EXHAUSTED.value}


async def measure(sizes: "Sizes") -> list[Result]:
    """Ask about one pod in pools of each size, then let the leader explain many."""
    asked = [_ask(nodes, sizes.why_questions) for nodes in sizes.why_nodes]
    return [*asked, *await _leader(sizes)]


class EncodedLists:
    """A `ReadableSource` of a world; what it answers is encoded beforehand."""

    origin = "a benchmark"

    def __init__(self, world: World) -> None:
        self._clock = SystemClock()
        self._pages = {
            GPU_POOLS.plural: _pages(world.pools()),
            GPU_DEVICES.plural: _pages(world.devices()),
            NODES.plural: _pages(world.node_objects()),
            PODS.plural: _pages(world.bound_pods()),
        }

    def now(self) -> "dt.datetime":
        return self._clock.utc_now()

    def namespace(self) -> str:
        return "ml-team"

    def object(self, resource: "Resource", name: str, *, namespace: str | None = None) -> bytes:
        raise AssertionError(f"nobody asks for {resource.kind} {namespace}/{name}")

    def pages(self, query: "ListQuery") -> "Iterator[bytes]":
        is_of_no_pool = query.resource == GPU_DEVICES and not query.fields.endswith(WHOLE)
        yield from () if is_of_no_pool else self._pages.get(query.resource.plural, ())


def _pages(objects: "Iterable[dict[str, Any]]") -> list[bytes]:
    items = list(objects)
    return [
        json.dumps({"metadata": {"resourceVersion": "1"}, "items": items[at : at + PAGE]}).encode()
        for at in range(0, len(items), PAGE)
    ]


def _ask(nodes: int, questions: int) -> Result:
    world = World(nodes=nodes, pods=nodes * DEVICES * 3 // 4, pool_count=1)
    source = EncodedLists(world)
    body = json.dumps(a_pod("waiting", WHOLE, DEVICES) | {"status": {"phase": "Pending"}})
    pod = msgspec.json.decode(body, type=Pod)
    samples: list[float] = []
    for _ in range(questions):
        began = time.thread_time()
        answer = wait_of(ClusterLists(source), pod)
        samples.append(time.thread_time() - began)
        _check(answer, world)
    p50, p99 = in_ms(samples)
    return Result(
        subject="waiting",
        case=f"kubectl gpu why, {nodes:,} nodes, {nodes * DEVICES:,} devices",
        samples=questions,
        p50_ms=p50,
        p99_ms=p99,
        aims=(at_most("p99_ms", LIMIT_MS),),
    )


def _check(answer: "PodExplanation", world: World) -> None:
    found = answer.explanation
    assert found is not None
    free = world.nodes * DEVICES - world.pods
    assert (found.free, found.nodes_total) == (free, world.nodes)
    expected = (
        UnitWaitReason.UNITS_FRAGMENTED if free >= DEVICES else UnitWaitReason.UNITS_EXHAUSTED
    )
    assert found.reason is expected
    fewer = next(one for one in found.remedies if isinstance(one, AskFewerUnits))
    assert fewer.units == found.largest_free < DEVICES
    checked("explanation of a pod")


async def _leader(sizes: "Sizes") -> list[Result]:
    size = sizes.why_cluster
    without, explaining = await _processor_times(sizes)
    cluster = (
        f"{sizes.waiting_pods:,} pods wait, {sizes.why_changes_per_s} changes a second,"
        f" {size.nodes:,} nodes, {size.pods:,} pods"
    )
    return [
        Result(subject="waiting", case=f"the leader without explaining, {cluster}", cpu_s=without),
        Result(
            subject="waiting",
            case=f"the leader, {cluster}",
            cpu_s=explaining,
            ratio=explaining / without,
            core_pct=max(0.0, explaining - without) / sizes.why_s * 100,
            aims=(at_most("core_pct", CORE_LIMIT_PCT),),
        ),
    ]


async def _processor_times(sizes: "Sizes") -> tuple[float, float]:
    """Return the processor time over the measured seconds of a leader that does not explain, and of one that does."""
    async with (
        _a_leader(sizes, explains=False) as (quiet_url, quiet),
        _a_leader(sizes, explains=True) as (url, server),
    ):
        await asyncio.sleep(SETTLE_S)
        before = quiet.cpu_s, server.cpu_s
        await asyncio.sleep(sizes.why_s)
        spent = quiet.cpu_s - before[0], server.cpu_s - before[1]
        await _check_conditions(quiet_url, sizes, quiet, explains=False)
        await _check_conditions(url, sizes, server, explains=True)
    return spent


@asynccontextmanager
async def _a_leader(
    sizes: "Sizes", *, explains: bool
) -> "AsyncIterator[tuple[str, MeasuredServer]]":
    """Run a server beside an API server of its own, in which the same changes happen as in the other one's."""
    size = sizes.why_cluster
    options = ("--waiting", str(sizes.waiting_pods))
    left_out = () if explains else (TASK,)
    with (
        tempfile.TemporaryDirectory() as folder,
        api_server(size, *options) as api,
    ):
        make_certificates(Path(folder))
        async with measured_server(Path(folder), api.url, without=left_out) as server:
            await server.wait_ready()
            total = World(nodes=size.nodes, pool_count=1).units()
            await server.wait_capacity(total=total, used=size.pods)
            api.change(sizes.why_changes_per_s)
            yield api.url, server


async def _check_conditions(
    url: str, sizes: "Sizes", server: "MeasuredServer", *, explains: bool
) -> None:
    path = f"{url}/api/v1/namespaces/ml-team/pods"
    headers = {"Authorization": "Bearer bench"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(path) as answer:
        listed = (await answer.json())["items"]
    conditions = [
        condition
        for pod in listed
        if pod["metadata"]["name"].startswith("waiting-")
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == UNITS_CONDITION
    ]
    if not explains:
        assert conditions == []
        return
    wanted = min(sizes.waiting_pods, int(sizes.why_s / 4))
    assert len(conditions) >= wanted, (
        f"{len(conditions)} pods are explained\n{server.log()[-2000:]}"
    )
    assert {one["status"] for one in conditions} == {"False"}
    assert {one["reason"] for one in conditions} <= REASONS
    checked("condition of a waiting pod")
