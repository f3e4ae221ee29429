"""Karpenter's double leaves in the API what the unmodified Karpenter left (tests/cluster/autoscaling/test_traces.py)."""

import json
from pathlib import Path

import pytest

from tests.support.karpenter_traces import SITUATIONS, Situation, trace_of
from tests.support.loop_clock import LoopClock
from tests.support.scaling_double import a_scaling_cluster

RECORD = Path(__file__).parents[2] / "data" / "karpenter-traces.json"

pytestmark = pytest.mark.looptime(noop_cycles=10)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda item: item.name)
async def test_a_trace_is_that_of_karpenter(tmp_path: Path, situation: Situation):
    async with a_scaling_cluster(tmp_path) as cluster:
        found = await trace_of(cluster, LoopClock(), situation)

    assert found == json.loads(RECORD.read_text())[situation.name]
