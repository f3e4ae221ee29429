"""What would have to change for a pod that is not placed: remedies of `pool.what_if`, and the node that would do."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from admission.pods.access import may_use
from api.kinds.gpupool import DeviceTopology
from cli.simulation.answers import NewNode
from cli.simulation.pod_scheduling import question_of, request_of, stored_pod
from pool.demand import demand_of
from pool.model import Demand
from pool.what_if.evictions import fits_when_empty
from pool.what_if.question import WaitQuestion
from pool.what_if.remedies import other_pools, remedies_in
from pool.what_if.usable_pools import tolerations_by_pool
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from api.names import NodeName
    from cli.simulation.answers import PodDecision
    from cli.simulation.pod_file import NewPod
    from cli.simulation.pod_scheduling import PodCreator, PoolQuestion
    from cli.simulation.snapshot import Snapshot
    from pool.model import PoolFacts
    from pool.what_if.explanation import AnyRemedy

_MOST_POOLS: Final = 32
"""Other pools that are tried."""
_CAPACITY_DENIALS: Final = frozenset(
    {RefusalReason.EXCEEDS_CAPACITY.value, RefusalReason.INSUFFICIENT_CAPACITY.value}
)
_POOL_DENIALS: Final = _CAPACITY_DENIALS | {
    RefusalReason.POOL_NOT_FOUND.value,
    RefusalReason.POOL_TERMINATING.value,
    RefusalReason.POOL_IN_MAINTENANCE.value,
    RefusalReason.ACCESS_DENIED.value,
}
"""Denials that another pool would not give; the cure of any other one is in its text."""


def remedies_for(
    pod: "NewPod", decision: "PodDecision", snapshot: "Snapshot", *, caller: "PodCreator"
) -> "list[AnyRemedy]":
    """Return the changes after which the pod, or the changed pod, would be placed now; the least one first."""
    if not isinstance(demand_of(pod.pod.spec, pod.namespace), Demand):
        return []
    if decision.reason is not None and decision.reason not in _POOL_DENIALS:
        return []
    wait = _wait_question(pod, snapshot, caller)
    question = question_of(pod, snapshot)
    if question is None or (
        decision.reason is not None and decision.reason not in _CAPACITY_DENIALS
    ):
        return list(other_pools(snapshot.index, wait))
    reader, index = snapshot.state.reader, snapshot.index
    pool, constraints = question.pool, question.pod.constraints
    weighed = reader.with_peer_tests(pool, constraints, uid=question.uid)
    found = remedies_in(reader, index, wait, pool=pool, constraints=weighed)
    return [remedy for remedy in found if remedy is not None]


def _wait_question(pod: "NewPod", snapshot: "Snapshot", caller: "PodCreator") -> WaitQuestion:
    request, catalog = request_of(pod, caller), snapshot.catalog
    usable = [
        pool
        for pool in sorted(catalog.pools.values(), key=lambda pool: pool.name)
        if may_use(pool, request, snapshot.admission)
    ][:_MOST_POOLS]
    facts = {pool.name: pool for pool in snapshot.index.pools()}
    return WaitQuestion(
        pod=stored_pod(pod),
        other_pools=[facts[pool.name] for pool in usable if pool.name in facts],
        tolerated=tolerations_by_pool(usable),
        now=snapshot.admission.now().monotonic,
    )


def new_node_for(question: "PoolQuestion", snapshot: "Snapshot") -> NewNode:
    """Return the smallest kind of node in the pool that would take the pod if it were new."""
    index, pool = snapshot.index, question.pool
    requested = (pool, question.demand)
    kinds: dict[object, NodeName] = {}
    for name in sorted(index.state(pool.name).devices_by_node):
        products = tuple(sorted(_products(pool, name, snapshot).items()))
        kinds.setdefault((products, index.device_rules(pool.name, name)), name)
    for name in sorted(kinds.values(), key=lambda name: len(index.devices_on(pool.name, name))):
        if fits_when_empty(index, requested, name):
            return NewNode(like=name, devices=dict(_products(pool, name, snapshot)))
    per_device = max(1, pool.slices_per_device)
    return NewNode(
        like=None,
        devices={"": -(-question.demand.units // per_device)},
        aligned=pool.device_topology is DeviceTopology.REQUIRED,
    )


def _products(pool: "PoolFacts", node: "NodeName", snapshot: "Snapshot") -> Counter[str]:
    """Count the pool's devices on a node by product; "" where it is unknown."""
    found: Counter[str] = Counter()
    for entry in snapshot.index.devices_on(pool.name, node):
        device = snapshot.stores.devices.get(entry.facts.name)
        found[device.status.product if device is not None else ""] += 1
    return found
