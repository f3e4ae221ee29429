"""What it costs to simulate a workload on pools, through the server's decisions.

Correct: when all pods have ended, every device is free again; no pod waits, and each that fits the largest node was placed.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import yaml

from cli.simulation.snapshot import take_snapshot
from cli.simulation.workload.pool_run import POOL_STRATEGIES, PoolCluster, workload_on_pools
from pool.placement.simulation.engine import run_workload
from pool.placement.simulation.results import Mode
from tests.bench.bench_what_if import objects_of
from tests.bench.report import Result, at_most, checked
from tests.bench.world import WHOLE, World
from tests.support.builders import at

if TYPE_CHECKING:
    from cli.simulation.workload.workload_run import Scenario

LIMIT_S: Final = 10.0
"""Of 2,000 pods on 500 nodes."""
PODS_PER_NODE: Final = 4


def measure_pool_workload(nodes: int) -> list[Result]:
    """Simulate four pods a node with each strategy: they fill the cluster, some wait, and all end."""
    objects = objects_of(World(nodes=nodes, pool_count=1))
    cluster = PoolCluster(objects=objects, snapshot_of=lambda found: take_snapshot(found, at(0)))
    with TemporaryDirectory() as folder:
        file = Path(folder, "workload.yaml")
        file.write_text(yaml.safe_dump({"pods": _groups(nodes * PODS_PER_NODE)}))
        scenario = workload_on_pools(cluster, file)
    return [_simulate(scenario, strategy, nodes) for strategy in POOL_STRATEGIES[1:]]


def _groups(pods: int) -> list[dict[str, object]]:
    """Return half of the pods with one device, a fifth each with two and four, a tenth with eight."""
    shares = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}
    return [
        {
            "name": f"of-{units}",
            "pool": WHOLE,
            "units": units,
            "cpu": 1,
            "count": max(1, round(pods * share)),
            "every": 60 / share * 2000 / pods,
            "duration": "20h",
        }
        for units, share in shares.items()
    ]


def _simulate(scenario: "Scenario", strategy: str, nodes: int) -> Result:
    began = time.process_time()
    cluster = scenario.cluster(strategy, 0)
    result = run_workload(cluster, scenario.pods, mode=Mode.WAIT)
    cpu_s = time.process_time() - began
    assert result.curve.allocated_milli[-1] == 0
    assert result.curve.waiting[-1] == 0
    assert all(one.refused == 0 for one in result.refused.values())
    checked("simulated workload")
    pods = len(scenario.pods)
    return Result(
        subject="placement",
        case=f"workload of {pods} pods on {nodes} nodes of a pool, {strategy}",
        samples=pods,
        cpu_ms=cpu_s * 1000 / pods,
        cpu_s=cpu_s,
        aims=(at_most("cpu_s", LIMIT_S),),
    )
