"""Karpenter's double leaves in the API what the unmodified Karpenter left (tests/cluster/autoscaling/test_traces.py).

It records no Events, which only people read, and knows no limits of a NodePool: the control plane itself keeps them.
"""

import json
from pathlib import Path

import pytest

from tests.support.karpenter_traces import SITUATIONS, Situation, at_its_limit, trace_of
from tests.support.loop_clock import LoopClock
from tests.support.scaling_double import a_scaling_cluster

RECORD = Path(__file__).parents[2] / "data" / "karpenter-traces.json"

pytestmark = pytest.mark.looptime(noop_cycles=10)


@pytest.mark.parametrize(
    "situation",
    [item for item in SITUATIONS if item.play is not at_its_limit],
    ids=lambda item: item.name,
)
async def test_a_trace_is_that_of_karpenter(tmp_path: Path, situation: Situation):
    async with a_scaling_cluster(tmp_path) as cluster:
        found = await trace_of(cluster, LoopClock(), situation)

    recorded = json.loads(RECORD.read_text())[situation.name]
    assert found == recorded | {"events": []}
