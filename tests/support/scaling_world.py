"""A pool whose nodes come by plans: pods, nodes, requests, and an autoscaler that does what it is told.

Every step is one call, and no time passes by itself. Nodes that come have the devices of their shape.
"""

import dataclasses
import datetime as dt
from dataclasses import dataclass, field

from api.names import NodeName, PodUid, ReservationId
from autoscaling.node_planner import plan
from autoscaling.scaling_model import (
    NodeRequest,
    ObservedRequest,
    RequestId,
    RequestPhase,
    ScalingParameters,
    ScalingPlan,
    Supply,
)
from pool.allocation_state import AllocationState
from pool.model import PodFacts, PodPhase
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from tests.support.builders import a_device, a_node, at
from tests.support.scaling_plans import NOW, an_index, launched, ready, signalled


@dataclass(slots=True)
class ScalingWorld:
    parameters: ScalingParameters
    now: dt.datetime = NOW
    state: AllocationState = field(init=False)
    waiting: dict[PodUid, PodFacts] = field(default_factory=dict)
    running: dict[PodUid, PodFacts] = field(default_factory=dict)
    requests: dict[RequestId, ObservedRequest] = field(default_factory=dict)
    units: dict[NodeName, int] = field(default_factory=dict)
    """Of each node that exists."""
    unused: set[NodeName] = field(default_factory=set)
    """Nodes that have had no pod yet."""
    came: int = 0

    def __post_init__(self) -> None:
        self.state = AllocationState(an_index(self.parameters.pool))

    @property
    def in_flight(self) -> tuple[ObservedRequest, ...]:
        return tuple(self.requests.values())

    def supply(self) -> Supply:
        return Supply(in_flight=self.in_flight, used_ids=frozenset(self.requests))

    def plan(self) -> ScalingPlan:
        pods = list(self.waiting.values())
        return plan(self.parameters, pods, self.state.index, supply=self.supply(), now=self.now)

    def carry_out(self, made: ScalingPlan) -> None:
        """Delete the signals that are cancelled, create those that are asked for: a second later than the last."""
        self.now += dt.timedelta(seconds=1)
        for cancel in made.cancels:
            del self.requests[cancel.id]
        for request in made.requests:
            assert request.id not in self.requests
            self.requests[request.id] = signalled(request, created=self.now)

    def launch(self, id_: RequestId) -> None:
        one = self.requests[id_]
        shape = one.shape
        assert shape is not None
        claim = launched(_request(one), created=self.now).claim
        self.requests[id_] = dataclasses.replace(one, phase=RequestPhase.LAUNCHED, claim=claim)

    def fail(self, id_: RequestId) -> None:
        """Have its NodeClaim deleted before the node is registered."""
        one = self.requests[id_]
        self.requests[id_] = dataclasses.replace(one, phase=RequestPhase.FAILED, claim=None)

    def arrive(self, id_: RequestId) -> None:
        """Have its node tell of its devices."""
        one = self.requests[id_]
        assert one.shape is not None
        self.came += 1
        name = NodeName(f"node-{self.came}")
        self.state.index.replace_node(a_node(name))
        for number in range(one.shape.devices):
            self.state.index.replace_device(a_device(name, number, pool=self.parameters.pool.name))
        self.units[name] = one.shape.units
        self.unused.add(name)
        node = ready(_request(one), name, one.shape.units, created=self.now).node
        self.requests[id_] = dataclasses.replace(one, phase=RequestPhase.AGENT_READY, node=node)

    def hand_over(self, id_: RequestId, pods: tuple[PodUid, ...]) -> None:
        """Give its units to the pods that it came for, in order, and end the request."""
        node = self.requests.pop(id_).node
        assert node is not None
        for uid in pods:
            self._bind(self.waiting[uid], node.name)

    def serve(self) -> None:
        """Give free units to waiting pods in their order, on the fullest node that takes them."""
        coming = {item.node.name for item in self.in_flight if item.node is not None}
        summaries = self.state.index.state(self.parameters.pool.name)
        for pod in sorted(
            self.waiting.values(), key=lambda item: (-item.priority, item.created, item.ref)
        ):
            nodes = [name for name in self.units if name not in coming]
            free = {name: item.free for name, item in summaries.nodes().items()}
            for name in sorted(nodes, key=lambda item: (free[item], item)):
                if free[name] >= pod.demand.units and self._bind(pod, name):
                    break

    def end(self, uid: PodUid) -> None:
        """Have a pod end, or vanish while it waits."""
        if self.waiting.pop(uid, None) is None:
            del self.running[uid]
            self.state.discard_pod(uid)

    def empty_nodes(self) -> set[NodeName]:
        busy = {pod.node for pod in self.running.values()}
        coming = {item.node.name for item in self.in_flight if item.node is not None}
        return {name for name in self.units if name not in busy and name not in coming}

    def remove(self, name: NodeName) -> None:
        """Remove an empty node."""
        for entry in self.state.index.devices_on(self.parameters.pool.name, name):
            self.state.index.discard_device(entry.facts.name)
        self.state.index.discard_node(name)
        del self.units[name]
        self.unused.discard(name)

    def _bind(self, pod: PodFacts, name: NodeName) -> bool:
        pool = self.parameters.pool
        placed = self.state.reader.plan_bind(name, pool, pod.demand, uid=pod.uid)
        if not isinstance(placed, Placed):
            return False
        request = PlacementRequest(
            id=ReservationId(f"r-{pod.uid}"),
            pool=pool,
            demand=pod.demand,
            namespace=pod.namespace,
        )
        self.state.commit(request, placed, uid=pod.uid, now=at(0))
        bound = dataclasses.replace(
            pod,
            phase=PodPhase.BOUND,
            node=name,
            devices=placed.devices,
            awaits_capacity=False,
        )
        self.state.observe_pod(bound, at(0))
        del self.waiting[pod.uid]
        self.running[pod.uid] = bound
        self.unused.discard(name)
        return True


def _request(one: ObservedRequest) -> NodeRequest:
    assert one.shape is not None
    return NodeRequest(id=one.id, pool=one.pool, shape=one.shape)
