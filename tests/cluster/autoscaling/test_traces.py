"""What the unmodified Karpenter leaves in the API is what is on record, by which its double is checked.

`UPDATE_GOLDEN=1` writes the record.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from http_edge.system_clock import SystemClock
from tests.support.karpenter_traces import SITUATIONS, trace_of

if TYPE_CHECKING:
    from tests.cluster.autoscaling.real_cluster import RealScalingCluster

RECORD = Path(__file__).parents[2] / "data" / "karpenter-traces.json"


async def test_traces_are_those_on_record(scaling_cluster: "RealScalingCluster"):
    async with asyncio.TaskGroup() as group:
        tasks = {
            item.name: group.create_task(trace_of(scaling_cluster, SystemClock(), item))
            for item in SITUATIONS
        }
    found = {name: task.result() for name, task in tasks.items()}
    if os.environ.get("UPDATE_GOLDEN"):
        RECORD.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    assert found == json.loads(RECORD.read_text())
