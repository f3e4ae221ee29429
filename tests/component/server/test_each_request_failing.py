"""Each kind of request that the server makes fails, one kind a run: everything comes to the same end.

Which kinds there are is tested too, and that they are all that our rights allow. The first request of a
kind is refused, the next one cut off before it is carried out, the one after it carried out and its answer
lost; of reads, which have no effect, the last is cut off as well.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from simulator.apiserver.faults import Breakage, Fault
from simulator.apiserver.requestlog import Request
from tests.component.server.whole_story import (
    SERVED,
    a_story,
    breaking,
    kind_of,
    pods_come_and_the_lead_goes,
    pods_wait,
    requests_of_ours,
)
from tests.support.metric_samples import Counted
from tests.support.rights import allows, asked_in, our_rights

# What is not asked over the network is not waited for, so few idle turns will do.
pytestmark = pytest.mark.looptime(noop_cycles=10)

READS = (
    *(f"{verb} {resource}" for verb in ("LIST", "WATCH") for resource in ("gpupools", "gpudevices", "nodes", "namespaces", "pods")),
    "LIST pods that are bound",
    "GET pods",
    "GET secrets gpu-control-plane-tls",
    "GET secrets gpu-control-plane-reservations",
    "GET mutatingwebhookconfigurations",
    "GET validatingwebhookconfigurations",
    "GET leases",
    "GET gpucontrolplaneterms",
)  # fmt: skip
WRITES = (
    "POST secrets",
    "PATCH secrets gpu-control-plane-tls",
    "PATCH mutatingwebhookconfigurations",
    "PATCH validatingwebhookconfigurations",
    "POST leases",
    "PUT leases",
    "POST gpucontrolplaneterms",
    "PATCH gpucontrolplaneterms",
    "PATCH gpudevices/status",
    "PATCH gpupools/status",
    "PATCH nodes",
    "POST pods/binding",
    "POST events",
)
WAITING = ("PATCH pods/status", "PATCH pods", "PATCH events")
"""What only pods cause that wait for long."""


def card(allocated: int, capacity: int = 1) -> dict[str, int]:
    return {"capacity": capacity, "reserved": 0, "allocated": allocated}


def figures(total: int, **others: int) -> dict[str, int]:
    return {"total": total, "reserved": 0, "used": 0, "available": 0, "unhealthy": 0, **others}


EMPTY: dict[str, Any] = {
    "bound": set(),
    "with devices": set(),
    "is any unit given twice": False,
    "pools": {"whole": figures(3, available=3), "slow": figures(64, available=64)},
    "units": {"w0": card(0), "w1": card(0), "w2": card(0), "sliced": card(0, 64)},
    "labels": {"pool.gpu.deckhouse.io/whole", "pool.gpu.deckhouse.io/slow"},
    "holds": 0,
    "are CAs injected": {True},
    "is all ready": True,
}
FULL = {
    **EMPTY,
    "bound": {*SERVED, "lost", "stolen"},
    "with devices": {*SERVED, "lost"},
    # A pod is on unknown slices: the node takes no others.
    "pools": {"whole": figures(3, used=3), "slow": figures(64, used=1, unhealthy=63)},
    "units": {"w0": card(1), "w1": card(1), "w2": card(1), "sliced": card(0, 64)},
}


async def the_story_ends_well(
    folder: Path, faults: list[Fault], *, with_waiting: bool
) -> list[Request]:
    """Tell it with these faults; return the requests that the server made."""
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    with capture_logs() as logs:
        async with a_story(folder, *faults) as story:
            if with_waiting:
                await pods_wait(story)
            await pods_come_and_the_lead_goes(story)
            await story.comes_to(FULL)
            for name in FULL["bound"]:
                await story.remove_pod(name)
            await story.comes_to(EMPTY)
            assert not story.server.is_over
        asked = requests_of_ours(story.cluster)
    assert unhandled == []
    assert [log for log in logs if log["log_level"] not in {"debug", "info", "warning"}] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return asked


async def test_the_story_makes_every_kind_of_request(tmp_path: Path) -> None:
    requests = await the_story_ends_well(tmp_path, [], with_waiting=True)
    assert {kind_of(request) for request in requests} == {*READS, *WRITES, *WAITING}
    asked = asked_in(requests)
    assert [right for right in our_rights() if not any(allows(right, one) for one in asked)] == []


AGAIN = {"POST secrets": (1, 2)}
"""Two Secrets are made, by two parts of the server: either one's request fails."""


def every_failure() -> list[Any]:
    return [
        pytest.param(kind, nth, id=kind if nth == 1 else f"{kind} {nth}")
        for kind in (*READS, *WRITES, *WAITING)
        for nth in AGAIN.get(kind, (1,))
    ]


def failing(kind: str, nth: int) -> list[Fault]:
    refused = breaking(kind, Breakage.STATUS, nth=nth)
    if kind in READS:
        # aiohttp itself asks a second time when a kept-alive connection is cut.
        return [refused, breaking(kind, Breakage.RESET_BEFORE, nth=nth, times=2)]
    ways = (Breakage.RESET_BEFORE, Breakage.RESET_AFTER)
    return [refused, *(breaking(kind, way, nth=nth) for way in ways)]


def codes_of(kind: str, counted: Counted) -> set[str]:
    """Return how requests of this kind ended, as the metrics say."""
    verb, _, rest = kind.partition(" ")
    wanted = ("GET" if verb == "LIST" else verb, rest.split()[0])
    ends = counted.growth("gpu_api_request_duration_seconds_count")
    return {code for code, *of in ends if tuple(of) == wanted}


@pytest.mark.parametrize(("kind", "nth"), every_failure())
async def test_everything_comes_to_the_same_end(tmp_path: Path, kind: str, nth: int) -> None:
    counted = Counted()
    faults = failing(kind, nth)
    await the_story_ends_well(tmp_path, faults, with_waiting=kind in WAITING)
    assert [fault.seen >= fault.nth for fault in faults] == [True] * len(faults)
    assert {"500", "Unreachable"} <= codes_of(kind, counted)
