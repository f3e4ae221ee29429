"""`simulate --workload` says of each pod what kube-scheduler and a running server then do with it."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION
from api.units import part_of
from cli.simulation.live_cluster import read_lists
from cli.simulation.snapshot import take_snapshot
from cli.simulation.workload.pool_run import PoolCluster, workload_on_pools
from http_edge.system_clock import SystemClock
from kube.resources import GPU_POOLS, PODS
from pool.placement.simulation.engine import run_workload
from pool.placement.simulation.results import Mode
from simulator.node.kubelet import register_node
from simulator.node.node_agent import FakeDevice
from tests.component.server.cluster_run import ClusterRun, eventually
from tests.component.server.full_run import a_run
from tests.component.server.run_state import at, objects
from tests.support.reviews import a_pod_object

pytestmark = pytest.mark.looptime(noop_cycles=10)

ALIGNED: Final = "NVIDIA H100 80GB HBM3"
SLICED: Final = "NVIDIA L4"
POOLS: Final[dict[str, dict[str, Any]]] = {
    "aligned": {
        "allocation": {"mode": "Exclusive"},
        "assignment": {"requireAnnotation": False},
        "deviceSelector": {"include": {"products": ["NVIDIA-H100-80GB-HBM3"]}},
        "scheduling": {"strategy": "BinPack", "deviceTopology": "Required"},
    },
    "parts": {
        "allocation": {"mode": "TimeSlice", "slicesPerDevice": 4, "slicePlacement": "SameDevice"},
        "assignment": {"requireAnnotation": False},
        "deviceSelector": {"include": {"products": ["NVIDIA-L4"]}},
    },
}
STEP_S: Final = 10
ASKED: Final = (
    ("aligned", 1, None),
    ("aligned", 2, 55),
    ("parts", 3, None),
    ("aligned", 1, 25),
    ("parts", 2, None),
    ("aligned", 2, None),
    ("aligned", 2, None),
    ("parts", 4, None),
    ("aligned", 1, None),
    ("parts", 1, None),
    ("aligned", 2, None),
    ("aligned", 2, None),
)
"""Pool, units and duration of pods that come one after another; those without a duration stay."""


def devices_of(node: str) -> list[FakeDevice]:
    """Two devices on each of two NUMA nodes, and two that are sliced."""
    return [
        FakeDevice(
            uuid=f"GPU-{node}-{number}",
            address=f"0000:{number + 23:02x}:00.0",
            product=ALIGNED if number < 4 else SLICED,
            pci_device="2330" if number < 4 else "27b8",
            memory_mib=81559,
            compute_capability="9.0",
            numa_node=number // 2 % 2,
        )
        for number in range(6)
    ]


async def add_pools(run: ClusterRun) -> None:
    for name in ("b1", "b2"):
        units = {"gpu.deckhouse.io/aligned": 4, "gpu.deckhouse.io/parts": 8}
        await register_node(run.cluster.client, name, units)
        await run.report(name, devices_of(name))
    for name, spec in POOLS.items():
        await run.add_pool(name, **spec)

    async def have_devices() -> bool:
        pools = await objects(run.cluster.client, GPU_POOLS)
        totals = [at(pools[name], "status", "capacity", "available") for name in POOLS]
        return totals == [8, 16]

    await eventually(have_devices)


async def simulated(run: ClusterRun, folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Return where the simulation places each pod, and on which devices."""
    found = await read_lists(run.cluster.client, origin="the cluster")
    file = folder / "workload.yaml"
    groups = [
        {
            "name": f"p{number}",
            "arrival": number * STEP_S,
            "template": {"spec": a_pod_object(units, pool)["spec"]},
            **({} if duration is None else {"duration": duration}),
        }
        for number, (pool, units, duration) in enumerate(ASKED)
    ]
    file.write_text(yaml.safe_dump({"pods": groups}))
    clock = SystemClock()
    pools = PoolCluster(
        objects=found, snapshot_of=lambda objects: take_snapshot(objects, clock.instant())
    )
    scenario = workload_on_pools(pools, file)
    result = run_workload(scenario.cluster("PoolSpec", 0), scenario.pods, mode=Mode.WAIT)
    nodes = sorted(node.name for node in found.nodes)
    return {
        f"p{number}": (nodes[node], [f"GPU-{nodes[node]}-{at}" for at in devices])
        for number, (node, devices) in enumerate(zip(result.nodes, result.devices, strict=True))
        if node >= 0
    }


async def served(run: ClusterRun) -> dict[str, tuple[str, list[str]]]:
    """Return where the pods go in the running cluster."""
    ends: dict[int, str] = {}
    places: dict[str, tuple[str, list[str]]] = {}
    for number, (pool, units, duration) in enumerate(ASKED):
        for moment in sorted(end for end in ends if end <= number * STEP_S):
            await run.remove_pod(ends.pop(moment))
            await until_stable(run, places)
        name = f"p{number}"
        body = a_pod_object(units, pool, name)
        body["metadata"] = {"name": name, "namespace": "default"}
        await run.create(PODS, body)
        await until_stable(run, places)
        if duration is not None:
            ends[number * STEP_S + duration] = name
    return places


async def until_stable(run: ClusterRun, places: dict[str, tuple[str, list[str]]]) -> None:
    """Wait until each pod is bound or said to be unschedulable, and note where the bound ones are."""

    async def is_stable() -> bool:
        for name, pod in (await objects(run.cluster.client, PODS)).items():
            if pod["spec"].get("nodeName"):
                note = pod["metadata"]["annotations"][DEVICES_ANNOTATION]
                devices = decode_devices(note) or {}
                places[name] = (
                    pod["spec"]["nodeName"],
                    sorted({part_of(unit) for units in devices.values() for unit in units}),
                )
            elif not at(pod, "status", "conditions"):
                return False
        return True

    await eventually(is_stable)
    await run.cluster.until_stable()
    await eventually(is_stable)


async def test_pods_go_where_the_simulation_says(tmp_path: Path):
    async with a_run(tmp_path) as run:
        await add_pools(run)
        said = await simulated(run, tmp_path)
        done = await served(run)
    assert len(done) > len(ASKED) // 2
    assert len(done) < len(ASKED)
    assert said == done
