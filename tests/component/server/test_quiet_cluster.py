"""Where nothing happens, next to nothing is done: agents' heartbeats are no reason to look or to write."""

import asyncio
from pathlib import Path

import pytest

from tests.component.server.full_run import a_run
from tests.component.server.request_kinds import kind_of, requests_of_ours
from tests.support.metric_samples import Counted

pytestmark = pytest.mark.looptime(noop_cycles=10)

STABLE_S = 10.0
QUIET_S = 150.0
"""Longer than the two minutes after which an agent would count as silent."""
PERIODIC = {"node.inventory", "node.bootstrap"}
"""Who looks whether a heartbeat did not come."""
POLLS = {"scheduler.trust", "service.endpoint", "node.operands", "pool.workloads"}
"""Who looks at the Secret as often as certificates are checked, at the EndpointSlice every five seconds, and at the
objects of operands and pools every ten."""


async def test_a_quiet_cluster_is_neither_written_to_nor_looked_at(tmp_path: Path) -> None:
    async with a_run(tmp_path) as run:
        await asyncio.sleep(STABLE_S)
        run.cluster.api.requests.clear()
        counted = Counted()
        await asyncio.sleep(QUIET_S)
        asked = {kind_of(request) for request in requests_of_ours(run.cluster)}
        reconciles = {
            key: times
            for key, times in counted.growth("gpu_reconciles_total").items()
            if key[0] not in POLLS
        }
    assert {kind for kind in asked if not kind.startswith(("GET ", "LIST "))} == {"PUT leases"}
    assert {controller for controller, _ in reconciles} <= PERIODIC
    assert all(times <= 2 for times in reconciles.values())
