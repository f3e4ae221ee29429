"""Remedies carried out on a world, and the state that is built from what comes of it."""

from collections.abc import Iterable

from api.names import NodeName
from pool.allocation_state import AllocationState
from pool.placement.planner import Placed
from pool.what_if import explanation
from pool.what_if.explain import explain
from pool.what_if.question import JoinableDevice, WaitQuestion
from tests.support import naive_remedies
from tests.support.naive_remedies import NaivePlacement
from tests.support.waiting_worlds import NOW, WaitingWorld


def explained(world: WaitingWorld, state: AllocationState | None = None) -> explanation.Explanation:
    state = state or world.built()
    question = WaitQuestion(
        pod=world.pod,
        other_pools=world.usable_pools,
        joinable=[JoinableDevice(device=item, obstacle="no pool") for item in world.joinable],
        now=NOW,
    )
    return explain(state.reader, state.index, question)


def carried_out(remedy: explanation.AnyRemedy, world: WaitingWorld) -> WaitingWorld:
    """Return the world after just that change which the remedy names."""
    match remedy:
        case explanation.AskFewerUnits(units=units):
            assert 0 < units < world.pod.demand.units
            return naive_remedies.asking(world, units)
        case explanation.ReservationsExpire(holders=holders):
            return naive_remedies.without_reservations(world, reservations_of(holders, world))
        case explanation.UsePool(pool=name, resource=resource):
            pool = world.serving(resource)
            assert pool is not None
            assert pool.name == name
            return naive_remedies.asking_pool(world, pool)
        case explanation.UnitsReturn(cause=explanation.WithheldBy.CORDONED, node=node):
            return naive_remedies.with_node(world, naive_remedies.schedulable(world.nodes[node]))
        case explanation.UnitsReturn(cause=explanation.WithheldBy.NOT_READY, node=node):
            return naive_remedies.with_node(world, naive_remedies.ready(world.nodes[node]))
        case explanation.UnitsReturn(devices=devices):
            return naive_remedies.restored(world, devices)
        case explanation.DevicesJoin(devices=devices):
            return naive_remedies.joined(world, devices)
        case explanation.PodsEnd(holders=holders):
            return naive_remedies.without_pods(world, [holder.uid for holder in holders])


def reservations_of(holders: Iterable[explanation.UnitsHolder], world: WaitingWorld) -> list[str]:
    uids = {holder.uid for holder in holders}
    return [name for name, item in world.reserved.items() if item.pod.uid in uids]


def is_placed(world: WaitingWorld, node: str) -> bool:
    """Say whether a state built from nothing binds the pod on the node, where kube-scheduler may send it."""
    state, pod = world.built(), world.pod
    pool = state.index.pool_of(pod.demand.resource)
    if pool is None:
        return False
    plan = state.reader.plan_bind(NodeName(node), pool, pod.demand, uid=pod.uid)
    naive = NaivePlacement(world)
    assert isinstance(plan, Placed) == naive.has_units(node), plan
    return isinstance(plan, Placed) and naive.takes(node)
