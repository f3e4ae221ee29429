"""Leader election during API failures: never two leaders, and one again afterwards."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.client import KubeClient
from tests.component.kube.fake_leases import BadNetwork, Candidate, FakeLeases, running
from tests.support.canned_api import (
    Answer,
    CannedApi,
    Cut,
    Hang,
    Json,
    NotHttp,
    Reset,
    Seen,
    Text,
    status,
)
from tests.support.loop_clock import LoopClock

ABSENT = Json(status(404, "NotFound", details={"name": "engine", "kind": "leases"}), 404)


class LeaseServer:
    """A Lease over HTTP, for a canned server; `trouble` answers instead of it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.trouble: Answer | None = None
        self._version = 0

    def __call__(self, seen: Seen) -> Answer:
        if self.trouble is not None:
            return self.trouble
        if seen.method == "GET":
            return Json(self.lease) if self.lease else ABSENT
        version = seen.json["metadata"].get("resourceVersion")
        if self.lease and version != self.lease["metadata"]["resourceVersion"]:
            return Json(status(409, "Conflict"), 409)
        self._version += 1
        metadata = {**seen.json["metadata"], "resourceVersion": str(self._version)}
        self.lease = {**seen.json, "metadata": metadata}
        return Json(self.lease, 201 if seen.method == "POST" else 200)


@pytest.mark.looptime
@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Json(status(500, "InternalError"), 500), id="500"),
        pytest.param(Text(status=502), id="502 with a page"),
        pytest.param(Text("<html>hello</html>", 200), id="200 with a page"),
        pytest.param(Json({"kind": "Lease"}), id="a Lease without metadata"),
        pytest.param(Reset(), id="dropped connection"),
        pytest.param(Cut(), id="cut body"),
        pytest.param(NotHttp(), id="not HTTP"),
        pytest.param(Hang(), id="hang"),
        pytest.param(Json(status(403, "Forbidden"), 403), id="403"),
        pytest.param(Json(status(409, "Conflict"), 409), id="409 for ever"),
        pytest.param(ABSENT, id="404 for ever"),
        pytest.param(Json(status(404, "NotFound"), 404), id="404 of a proxy"),
    ],
)
async def test_a_leader_that_cannot_renew_stops_before_others_may_start(
    api: CannedApi, client: KubeClient, clock: LoopClock, trouble: Answer
) -> None:
    server = LeaseServer()
    api.always = server
    candidate = Candidate(client, "leader", clock)
    async with running(candidate):
        await candidate.election.leading.wait()
        await asyncio.sleep(30)
        server.trouble = trouble
        began = clock.monotonic()
        await asyncio.sleep(10.01)
        assert not candidate.election.is_leading()
        assert candidate.said == ["started", "stopped"]
        stopped_after = candidate.calls[-1][1] - began
        assert stopped_after <= 10
        server.trouble = None
        await asyncio.sleep(30)
        assert candidate.election.is_leading()
        assert candidate.said == ["started", "stopped", "started"]


@pytest.mark.looptime
async def test_one_failed_renewal_is_not_the_end(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    server = LeaseServer()
    api.always = server
    candidate = Candidate(client, "leader", clock)
    async with running(candidate):
        await candidate.election.leading.wait()
        for trouble in (Text(), Reset(), Json(status(409, "Conflict"), 409)):
            server.trouble = trouble
            await asyncio.sleep(3)
            server.trouble = None
            await asyncio.sleep(5)
        assert candidate.said == ["started"]


@pytest.mark.looptime
async def test_a_renewal_whose_answer_is_lost_is_found_out_by_reading(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    server = LeaseServer()
    losing = False

    def answer(seen: Seen) -> Answer:
        answered = server(seen)
        return Reset() if losing and seen.method == "PUT" else answered

    api.always = answer
    candidate = Candidate(client, "leader", clock)
    async with running(candidate):
        await candidate.election.leading.wait()
        losing = True
        await asyncio.sleep(3)
        losing = False
        await asyncio.sleep(30)
        assert candidate.said == ["started"]


@pytest.mark.looptime(noop_cycles=3)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), trouble=st.sampled_from([0.05, 0.3, 0.6]))
@example(seed=40534, trouble=0.6)
async def test_at_no_moment_do_two_lead(seed: int, trouble: float) -> None:
    rng = random.Random(seed)
    leases = FakeLeases()
    # 1.15 / 0.85 is below 15 / 10, the difference in speed that the terms allow.
    candidates = [
        Candidate(
            network, f"c{n}", LoopClock(rate=rng.uniform(0.85, 1.15), offset_s=rng.uniform(0, 1e6))
        )
        for n, network in enumerate(BadNetwork(leases, rng) for _ in range(3))
    ]
    networks = [candidate.election._client for candidate in candidates]
    led: set[str] = set()
    leaders: set[str] = set()
    async with running(*candidates):
        # A call that hangs ends after half of the renew deadline, eight times as long after a slow spell: 40 s
        # of a clock with a rate of 0.85 or more. Its candidate may be the one that all others follow.
        for share, until in ((trouble, 900), (0.0, 600)):
            for network in networks:
                assert isinstance(network, BadNetwork)
                network.trouble = share
            for _ in range(until):
                await asyncio.sleep(0.1)
                leaders = {c.election.identity for c in candidates if c.election.is_leading()}
                assert len(leaders) <= 1
                led |= leaders
        assert len(leaders) == 1
    assert led
