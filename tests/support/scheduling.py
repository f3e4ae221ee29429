"""An extender context, a binder that behaves like the API server's binding subresource, and wire requests."""

import asyncio
import datetime as dt
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION, NodeName, PodUid, ReservationId, UnitId
from pool.allocation_state import AllocationState
from pool.model import PodPhase
from pool.reservations.reservation import PlacementRequest
from scheduler.context import ExtenderContext
from scheduler.ports import (
    BindRefused,
    BindUnknown,
    BindWritten,
    BoundReading,
    MissingReading,
    NeverWaiting,
    PendingReading,
)
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool, at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.clock import Instant
    from pool.model import PodFacts, PoolFacts
    from pool.reservations.reservation import Reservation
    from scheduler.ports import BindOutcome, PodBinding, PodReading, PodRef, ReportPort

LOST = BindUnknown("no answer within 3 s")


@dataclass
class FakeBinder:
    """Binds each pod once, answers 409 after that, and fails on request."""

    bindings: "list[PodBinding]" = field(default_factory=list)
    """Every Binding that was sent."""
    reads: "list[PodRef]" = field(default_factory=list)
    bound: dict[str, BoundReading] = field(default_factory=dict)
    """uid -> what the API server has."""
    gone: set[str] = field(default_factory=set)
    fail_next: "list[BindOutcome | BaseException]" = field(default_factory=list)
    """Answers of the next writes, none of which is carried out."""
    lose_next: bool = False
    """Carry the next write out, and lose the answer."""
    reading: "PodReading | BaseException | None" = None
    """Outcome of every read."""
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """A call is under way."""
    pause: asyncio.Event | None = None
    """While set to an event, calls wait for it before they do anything."""

    async def bind(self, binding: "PodBinding") -> "BindOutcome":
        self.bindings.append(binding)
        await self._wait()
        if self.fail_next:
            outcome = self.fail_next.pop(0)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        if binding.uid in self.gone:
            return BindRefused(f'pods "{binding.name}" not found', is_conflict=False)
        if binding.uid in self.bound:
            node = self.bound[binding.uid].node
            return BindRefused(
                f'pod {binding.name} is already assigned to node "{node}"', is_conflict=True
            )
        self.bound[binding.uid] = BoundReading(
            binding.node, decode_devices(binding.annotations.get(DEVICES_ANNOTATION))
        )
        if self.lose_next:
            self.lose_next = False
            return LOST
        return BindWritten()

    async def read(self, pod: "PodRef", *, within_s: float | None = None) -> "PodReading":
        self.reads.append(pod)
        await self._wait()
        if isinstance(self.reading, BaseException):
            raise self.reading
        if self.reading is not None:
            return self.reading
        if pod.uid in self.gone:
            return MissingReading()
        return self.bound.get(pod.uid) or PendingReading()

    async def _wait(self) -> None:
        if self.pause is not None:
            self.sent.set()
            await self.pause.wait()


@dataclass
class Time:
    """Both clocks, set by hand."""

    seconds: float = 100.0
    wall_ahead_s: float = 0.0

    def now(self) -> "Instant":
        moment = at(self.seconds)
        ahead = dt.timedelta(seconds=self.wall_ahead_s)
        return msgspec.structs.replace(moment, utc=moment.utc + ahead)


@dataclass
class ExtenderSetup:
    """A small cluster and the extender's context on it."""

    allocation_state: AllocationState = field(default_factory=AllocationState)
    binder: FakeBinder = field(default_factory=FakeBinder)
    time: Time = field(default_factory=Time)
    is_ready: bool = True
    leader: str | None = None
    ids: "Iterable[int]" = field(default_factory=itertools.count)
    reports: "ReportPort" = field(default_factory=NeverWaiting)

    def __post_init__(self) -> None:
        numbers = iter(self.ids)
        self.context = ExtenderContext(
            index=self.allocation_state.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            binder=self.binder,
            new_id=lambda: ReservationId(f"r{next(numbers)}"),
            now=self.time.now,
            is_ready=lambda: self.is_ready,
            leader=lambda: self.leader,
            reports=self.reports,
        )

    def pool(self, facts: "PoolFacts | None" = None, **devices: int) -> "ExtenderSetup":
        """Add a pool with so many whole devices on each node."""
        facts = facts or a_pool()
        self.allocation_state.index.replace_pool(facts)
        for node, count in devices.items():
            self.allocation_state.index.replace_node(a_node(node))
            for number in range(count):
                self.allocation_state.index.replace_device(a_device(node, number, pool=facts.name))
        return self

    def pending(self, name: str = "p", units: int = 1, **changes: Any) -> "PodFacts":
        """Let the watch show a pod that is not bound."""
        facts = a_pod_facts(name, units, **changes)
        self.allocation_state.observe_pod(facts, self.time.now())
        return facts

    def bound(self, name: str, node: str, *units: str, **changes: Any) -> "PodFacts":
        """Let the watch show a bound pod; without units, on unknown devices."""
        seen = seen_on(node, *units)
        return self.pending(
            name,
            max(1, len(units)),
            phase=PodPhase.BOUND,
            node=seen.node,
            devices=seen.devices,
            **changes,
        )

    def reserve(self, name: str, units: int, node: str | None = None) -> "Reservation":
        """Reserve at admission and tie to the pod's uid, on the given node."""
        pool = self.allocation_state.index.pool_of("gpu.deckhouse.io/whole")
        assert pool is not None
        demand = a_demand(units)
        id_ = self.context.new_id()
        request = PlacementRequest(id=id_, pool=pool, demand=demand, namespace="default", name=name)
        placed = None
        if node is not None:
            planned = self.allocation_state.reader.plan_bind(
                NodeName(node), pool, demand, uid=PodUid("nobody")
            )
            placed = planned
        reservation = self.allocation_state.reserve(request, placed, self.time.now())  # type: ignore[arg-type]  # a test that asks for too much fails here
        self.allocation_state.tie(id_, PodUid(f"uid-{name}"), name=name, now=self.time.now())
        return reservation

    def reserve_and_observe(self, name: str, units: int, node: str) -> None:
        """Reserve at admission, and let the watch show the pod."""
        self.reserve(name, units, node)
        self.pending(name, units)

    def phase(self, name: str = "p") -> str | None:
        """Return the phase of a pod's reservation."""
        reservation = self.allocation_state.ledger.of_pod(PodUid(f"uid-{name}"))
        return reservation.phase.value if reservation else None

    def free(self, node: str, pool: str = "whole") -> int:
        """Return how many units of a node may be allocated."""
        summary = self.allocation_state.index.state(a_pool(pool).name).node(NodeName(node))
        return summary.available if summary else 0

    def unreserved(self, node: str) -> int:
        """Return how many units of a node of pool whole no reservation has, confirmed or not."""
        summary = self.allocation_state.index.state(a_pool("whole").name).node(NodeName(node))
        return summary.available - summary.unconfirmed if summary else 0


def seen_on(node: str, *units: str) -> BoundReading:
    """A pod bound with these units; without units, with devices that nobody knows."""
    return BoundReading(NodeName(node), {"c0": tuple(map(UnitId, units))} if units else None)


def a_wire_pod(name: str = "p", **limits: str | int) -> dict[str, Any]:
    """A stored pod on the wire; limits by pool, one container each."""
    containers = [
        {
            "name": f"c{number}",
            "image": "cuda",
            "resources": {
                "limits": {f"gpu.deckhouse.io/{pool}": value, "cpu": "500m"},
                "requests": {f"gpu.deckhouse.io/{pool}": value},
            },
        }
        for number, (pool, value) in enumerate(limits.items())
    ] or [{"name": "c0", "image": "busybox"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Pending"},
    }


def extender_args(pod: "dict[str, Any]", *names: str) -> bytes:
    """ExtenderArgs as kube-scheduler sends them with nodeCacheCapable: true."""
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def binding_args(name: str = "p", node: str = "n1", **changes: str) -> bytes:
    """ExtenderBindingArgs."""
    fields = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node}
    return msgspec.json.encode({**fields, **changes})


def preemption_args(pod: "dict[str, Any]", **victims: "list[str]") -> bytes:
    """ExtenderPreemptionArgs with uids of victims by node."""
    by_node = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": number}
        for number, (node, uids) in enumerate(victims.items())
    }
    return msgspec.json.encode(
        {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": by_node}
    )
