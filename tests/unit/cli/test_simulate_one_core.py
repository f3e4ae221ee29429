"""A workload on pools: each pod gets what `simulate --pod` says of it in the state at that moment."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.annotations import encode_devices
from api.names import API_VERSION, DEVICES_ANNOTATION
from cli.simulation.answers import DecisionKind, PodDecision
from cli.simulation.cluster_objects import LISTED, ClusterObjects
from cli.simulation.object_files import read_cluster
from cli.simulation.pod_answer import answer_for
from cli.simulation.pod_decision import decide
from cli.simulation.pod_file import NewPod, pod_of_object
from cli.simulation.snapshot import take_snapshot
from cli.simulation.workload.pool_run import PoolCluster, workload_on_pools
from cli.simulation.workload.snapshot_cluster import SnapshotCluster
from http_edge.system_clock import SystemClock
from pool.placement.planner import Placed
from pool.placement.simulation.engine import run_workload
from pool.placement.simulation.placing_cluster import PlacedPod
from pool.placement.simulation.results import Mode, RefusalCause
from tests.support.cluster_objects import (
    Object,
    a_device_object,
    a_list_file,
    a_node_object,
    a_pool_object,
)

NOW = SystemClock().instant()
NODES = 5
PODS = 40
POOLS: dict[str, Object] = {
    "aligned": {"scheduling": {"deviceTopology": "Required", "strategy": "BinPack"}},
    "spread": {"scheduling": {"strategy": "Spread"}},
    "same": {
        "allocation": {"mode": "TimeSlice", "slicesPerDevice": 4, "slicePlacement": "SameDevice"}
    },
    "distinct": {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 3}},
    "instances": {
        "allocation": {"mode": "MIG", "migProfile": "1g.18gb"},
        "scheduling": {"strategy": "BinPack"},
    },
    "strict": {
        "scheduling": {"strategy": "BinPack"},
        "reservation": {"whenExhausted": "Reject"},
        "access": {"namespaces": ["default"]},
    },
}
PODS_OF_LISTS = LISTED[-1]
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def a_cluster(rng: random.Random) -> list[Object]:
    """Return pools of all kinds on nodes with two NUMA nodes, NVLinks and kubelets of all policies."""
    found = [a_pool_object(name, **spec) for name, spec in POOLS.items()]
    for number in range(NODES):
        node = f"n{number}"
        spec: Object = {"unschedulable": True} if number == NODES - 1 else {}
        found.append(a_node_object(node, cpu=str(rng.choice((8, 16, 64))), **spec))
        count = rng.choice((4, 8))
        homes = [rng.choice(list(POOLS)) for _ in range(count)]
        for at in range(count):
            links = [
                {"peer": f"{node}-0000:{other + 23:02x}:00.0", "type": "NVLink", "count": 2}
                for other in range(count)
                if other // 2 == at // 2 and other != at
            ]
            instances = [
                {"profile": "1g.18gb", "uuid": f"MIG-{node}-{at}-{item}"}
                for item in range(7 if homes[at] == "instances" else 0)
            ]
            status: Object = {"numaNode": at * 2 // count, "links": links}
            found.append(
                a_device_object(node, at, pool=homes[at], mig={"instances": instances}, **status)
            )
        found.append(
            {
                "apiVersion": API_VERSION,
                "kind": "GPUNodeInventory",
                "metadata": {"name": node},
                "status": {
                    "kubelet": {
                        "topologyManagerPolicy": rng.choice(POLICIES),
                        "topologyManagerScope": rng.choice(("container", "pod")),
                    }
                },
            }
        )
    return found


def a_group(rng: random.Random, number: int) -> Object:
    """Return a pod of one or two containers in time."""
    pool = rng.choice(list(POOLS))
    if not rng.randrange(8):
        return {"name": f"p{number}", "cpu": 6, "arrival": number * 10, "duration": 100}
    containers = [
        {
            "name": name,
            "resources": {
                "limits": {f"gpu.deckhouse.io/{pool}": str(rng.choice((1, 1, 2, 4)))},
                "requests": {"cpu": str(rng.choice((1, 2)))},
            },
        }
        for name in rng.choice((["main"], ["main"], ["main", "side"]))
    ]
    return {
        "name": f"p{number}",
        "namespace": rng.choice(("default", "default", "other")),
        "arrival": number * 10,
        "duration": rng.choice((30, 100, 300)),
        "template": {
            "spec": {"containers": containers, "priority": rng.choice((0, 0, 5))},
        },
    }


class Compared:
    """A cluster whose every answer is compared with that of `simulate --pod` on the objects as they are then."""

    def __init__(self, cluster: SnapshotCluster, objects: ClusterObjects) -> None:
        self.strategy, self.demands = cluster.strategy, cluster.demands
        self.node_count, self.sizes = cluster.node_count, cluster.sizes
        self.capacity_milli, self.taken_milli = cluster.capacity_milli, cluster.taken_milli
        self.notes, self.idle = cluster.notes, cluster.idle
        self.compared = 0
        self._cluster = cluster
        self._objects = objects
        self._stored: dict[int, Object] = {}

    @property
    def fragmentation_milli(self) -> float:
        return self._cluster.fragmentation_milli

    def place(self, number: int) -> PlacedPod | RefusalCause:
        expected = self._asked(number)
        found = self._cluster.place(number)
        assert (found is RefusalCause.DENIED) is (expected.verdict is DecisionKind.DENIED)
        self._agree(number, expected)
        if found is not RefusalCause.DENIED:
            self._store(number, found)
        return found

    def place_on(self, number: int, node: int) -> PlacedPod | None:
        expected = self._asked(number)
        found = self._cluster.place_on(number, node)
        self._agree(number, expected)
        self._store(number, found)
        return found

    def release(self, number: int) -> None:
        self._cluster.release(number)
        self._stored.pop(number, None)

    def _asked(self, number: int) -> PodDecision:
        """Ask about the pod alone, on a new copy; nodes are valued by the demand so far, which only the run knows."""
        pod = self._cluster._pods[number]
        if self.strategy == "LeastFragmentation":
            self._cluster._rank(pod.simulated.arrival_s)
            waits = number in self._stored
            return decide(
                renamed(pod.asked) if waits else pod.asked, self._cluster._snapshot, pod.creator
            )
        asked = pod_of_object(copied(pod.asked.manifest), where="")
        assert asked is not None
        pods: list[Any] = [PODS_OF_LISTS.project(decoded(item)) for item in self._stored.values()]
        snapshot = take_snapshot(dataclasses.replace(self._objects, pods=pods), NOW)
        return answer_for(asked, snapshot, pod.creator).decision

    def _agree(self, number: int, expected: PodDecision) -> None:
        placed = self._cluster.placed.get(number)
        where = expected.placement
        assert (placed is None) is (where is None)
        if placed is not None and where is not None:
            assert placed.node == where.node
            assert sorted(units_of(placed)) == sorted(
                unit for device in where.devices for unit in device.units
            )
            self.compared += 1

    def _store(self, number: int, found: PlacedPod | RefusalCause | None) -> None:
        stored = copied(self._cluster._pods[number].asked.manifest)
        placed = self._cluster.placed.get(number)
        if placed is not None:
            stored["metadata"]["annotations"] = {DEVICES_ANNOTATION: encode_devices(placed.devices)}
        if isinstance(found, PlacedPod):
            node = self._cluster._nodes[found.node]
            stored["spec"] = {**stored["spec"], "nodeName": node}
            stored["status"] = {"phase": "Running"}
        self._stored[number] = stored


def copied(manifest: Object) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"]}}


def decoded(item: Object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(item), type=PODS_OF_LISTS.item_type)


def renamed(asked: NewPod) -> NewPod:
    """Return an equal pod beside the one that waits."""
    return asked.created("again", namespace=asked.namespace, uid="again", at=NOW.utc, after_s=0.0)


def units_of(placed: Placed) -> list[str]:
    return [unit for units in placed.devices.values() for unit in units]


def a_pool_cluster(folder: Path, objects: list[Object]) -> PoolCluster:
    file = a_list_file(folder / "start.json", *objects)
    return PoolCluster(
        objects=read_cluster([file]), snapshot_of=lambda found: take_snapshot(found, NOW)
    )


@pytest.mark.parametrize("strategy", ["PoolSpec", "LeastFragmentation"])
@pytest.mark.parametrize("seed", range(4))
def test_each_pod_of_a_workload_gets_what_is_said_of_it_alone(
    seed: int, strategy: str, tmp_path: Path
):
    rng = random.Random(seed)
    objects = a_cluster(rng)
    groups = [a_group(rng, number) for number in range(PODS)]
    pools = a_pool_cluster(tmp_path, objects)
    scenario = workload_on_pools(pools, a_workload_file(tmp_path, groups))
    cluster = scenario.cluster(strategy, 0)
    assert isinstance(cluster, SnapshotCluster)
    compared = Compared(cluster, pools.objects)
    result = run_workload(compared, scenario.pods, mode=Mode.WAIT)
    assert compared.compared > PODS // 2
    assert result.refusal_causes
    assert result.curve.allocated_milli[-1] == cluster.taken_milli == 0


def a_workload_file(folder: Path, groups: list[Object]) -> Path:
    file = folder / "workload.json"
    file.write_text(json.dumps({"pods": groups}))
    return file
