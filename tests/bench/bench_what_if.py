"""What it costs to ask about one pod on a snapshot of a cluster that is three quarters full.

Correct: a pod that is said to be placed fits its node; of one that waits, the proposed smaller size is the largest that
any node has free, and the pods that should end are as few as the node with the most free units needs.
"""

import time
from typing import TYPE_CHECKING, Final

import msgspec

from api.names import PoolName
from cli.simulation.answers import Verdict
from cli.simulation.cluster_objects import LISTED, ClusterObjects
from cli.simulation.pod_answer import answer_for
from cli.simulation.pod_file import asked_pod
from cli.simulation.pod_scheduling import PodCreator
from cli.simulation.snapshot import take_snapshot
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES, PODS
from tests.bench.report import Result, at_most, checked, in_ms
from tests.bench.world import DEVICES, WHOLE, World, a_pod
from tests.support.builders import at

if TYPE_CHECKING:
    from cli.simulation.answers import Answer
    from cli.simulation.snapshot import Snapshot

LIMIT_MS: Final = 1_000.0
"""A person waits for the answer."""


def measure_what_if(nodes: int, questions: int) -> list[Result]:
    """Ask so many times about a pod that is placed, and about one that waits."""
    snapshot = take_snapshot(
        objects_of(World(nodes=nodes, pods=nodes * DEVICES * 3 // 4, pool_count=1)), at(0)
    )
    free = snapshot.index.state(PoolName(WHOLE)).largest_free()
    if free == DEVICES:
        raise ValueError(f"a node of {nodes} is empty: no pod waits")
    return [
        _result(f"{what}, {nodes} nodes", _ask(snapshot, units, questions, free=free))
        for what, units in (("a pod that is placed", 1), ("a pod that waits", DEVICES))
    ]


def objects_of(world: World) -> ClusterObjects:
    """Return the objects of a world as a snapshot is made of them."""
    found = ClusterObjects(origin="benchmark")
    sources = {
        GPU_POOLS: world.pools,
        GPU_DEVICES: world.devices,
        NODES: world.node_objects,
        PODS: world.bound_pods,
    }
    for kind in LISTED:
        if kind.resource not in sources:
            continue
        decoder = msgspec.json.Decoder(kind.item_type)
        for item in sources[kind.resource]():
            projected = kind.project(decoder.decode(msgspec.json.encode(item)))
            if projected is not None:
                found.of(kind).append(projected)
    return found


def _ask(snapshot: "Snapshot", units: int, questions: int, *, free: int) -> list[float]:
    samples = []
    for _ in range(questions):
        asked = asked_pod(a_pod("asked", WHOLE, units))
        assert asked is not None
        began = time.thread_time()
        answer = answer_for(asked, snapshot, PodCreator())
        samples.append(time.thread_time() - began)
        _check(answer, units, free=free)
    return samples


def _check(answer: "Answer", units: int, *, free: int) -> None:
    if units <= free:
        assert answer.decision.verdict is Verdict.PLACED
    else:
        changes = answer.changes
        assert answer.decision.verdict is Verdict.WAITS
        assert changes is not None
        assert changes.fewer_units is not None
        assert changes.fewer_units.units == free
        assert changes.ending_pods is not None
        assert len(changes.ending_pods.pods) == units - free
    checked("answer about a pod")


def _result(case: str, samples: list[float]) -> Result:
    p50, p99 = in_ms(samples)
    return Result(
        subject="placement",
        case=f"what-if, {case}",
        samples=len(samples),
        p50_ms=p50,
        p99_ms=p99,
        aims=(at_most("p99_ms", LIMIT_MS),),
    )
