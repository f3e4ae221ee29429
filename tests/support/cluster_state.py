"""The state of the small cluster: the cluster, the allocation state that observes it, and the naive model."""

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

from api.clock import Instant
from api.names import NodeName, PodUid
from pool.allocation_state import AllocationState
from pool.demand import distinct_units
from pool.model import ContainerDemand, ContainerRole
from pool.reservations.reservation import Ended
from tests.support import agreement, naive_facts
from tests.support.builders import EPOCH
from tests.support.naive_allocation_state import NaiveAllocationState

Option = TypeVar("Option")

NODES: Final = ("n1", "n2", "n3")
POOLS: Final = ("a", "b", "c")
DEVICES: Final = 8
RESOURCES: Final = [f"gpu.deckhouse.io/{name}" for name in POOLS]
HOMES: Final = (
    *(("n1", "a"), ("n2", "a"), ("n3", "b"), ("n1", "b")),
    *(("n1", "c"), ("n1", "a"), ("n1", "b"), ("n1", "a")),
)
"""The first node and pool of each device."""
START: Final = {"a": "TimeSlice", "b": "Exclusive", "c": "MIG"}
NUMA: Final = (0, 1, 0, 1, 0, 1, 0, 0)
"""NUMA node of each device."""
BRIDGES: Final = {"d3": "d6", "d6": "d3", "d5": "d7", "d7": "d5"}
"""Devices that NVLink connects, on different NUMA nodes."""
STATES_KEPT: Final = 6
"""States of a pod that a confused watch may deliver once more."""

DEVICE_CHANGES: Final[Sequence[dict[str, Any]]] = (
    *({"faulted": faulted} for faulted in (False, False, True)),
    *({"node": node} for node in NODES),
    *({"pool": pool} for pool in (*POOLS, None)),
    *({"uuid": uuid} for uuid in ("G0", "G1", "G7", "")),
    {"uuid": "G0", "created": "2025-12-31T00:00:00Z"},
    *({"migs": migs} for migs in ([], ["1g"], ["1g", "2g"], ["1g", "1g", "1g"])),
    *({"numa": numa} for numa in (None, 0, 1)),
    *({"links": links} for links in ({}, {"d0": 2}, {"d5": 1, "d3": 1}, {"d7": 0, "d6": 1})),
    *[{}] * 30,
)
NODE_STATES: Final = (
    *[(True, "")] * 8,
    *((True, closed) for closed in ("cordoned", "leaving", "starting")),
    (False, ""),
)
"""Whether a node is ready, and what else keeps reservations away."""
INIT: Final = (
    *[()] * 6,
    (ContainerRole.INIT,),
    (ContainerRole.SIDECAR,),
    (ContainerRole.INIT, ContainerRole.SIDECAR),
)
MAIN: Final = (*[(ContainerRole.MAIN,)] * 4, (ContainerRole.MAIN, ContainerRole.MAIN))


class Pick(Protocol):
    def __call__(self, options: Sequence[Option]) -> Option:
        """Return one of the options."""


class ClusterState:
    """The cluster, the allocation state that observes it, and the model."""

    homes: Sequence[tuple[str, str]] = HOMES
    sizes: Sequence[int] = (1, 1, 1, 1, 1, 1, 2, 2, 4)
    """Units of containers."""

    def __init__(self, pick: Pick) -> None:
        self.now = 0.0
        self.ahead_s = 0.0
        """Offset of the wall clock against the monotonic one."""
        self.numbers = itertools.count()
        self.model = NaiveAllocationState()
        self.ended: list[str] = []
        self.ends_reported: list[str] = []
        """Reservations that the model ended, and those whose end the allocation state reported."""
        self.allocation_state = self.new_allocation_state()
        self.coming: dict[str, dict[str, Any]] = {}
        """Admitted pods that the API server has not stored."""
        self.stored: dict[str, list[dict[str, Any]]] = {}
        """uid -> states of the pod at the API server; the last is the present one."""
        self.missed_deletions: set[str] = set()
        """Deleted pods whose event the watch has lost."""
        self.sent: dict[str, dict[str, Any]] = {}
        """uid -> a Binding of ours with an unknown result."""
        self.moved: dict[str, set[str]] = {}
        """uid -> units in which the pod's assignment and kubelet's allocation differ."""
        for node in NODES:
            self.set_node(node, (True, ""))
        for name in POOLS:
            self.set_pool(name, {**self.a_pool_spec(pick), "resource": None, "mode": START[name]})
        for number in range(DEVICES):
            self.set_device(f"d{number}", {})

    def new_allocation_state(self) -> AllocationState:
        self.reported: list[int] = []
        """An entry for each call of `on_reported` since `wakes` looked."""
        self.unreported: set[str] = set()
        self.layout = ""
        return AllocationState(
            on_end=lambda ended: self.ends_reported.append(ended.reservation.id),
            on_reported=lambda: self.reported.append(1),
        )

    def a_pool_spec(self, pick: Pick) -> dict[str, Any]:
        return {
            "resource": pick((None, None, None, *RESOURCES)),
            "mode": pick(("Exclusive", "TimeSlice", "TimeSlice", "MIG")),
            "strategy": pick(("BinPack", "Spread", "LeastFragmentation")),
            "slices": pick((2, 3)),
            "placement": pick(("DistinctDevices", "SameDevice")),
            "topology": pick(("Preferred", "Required", "None")),
            "profile": pick(("1g", "1g", "2g")),
            "ttl": pick((3, 60, 60)),
            "closed": pick((*[None] * 14, "PoolChanging", "PoolEnding")),
            "created": pick(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")),
        }

    def set_pool(self, name: str, spec: dict[str, Any]) -> None:
        spec = {**spec, "resource": spec["resource"] or f"gpu.deckhouse.io/{name}"}
        if spec["mode"] != "TimeSlice":
            spec["placement"] = "DistinctDevices"
        self.model.pools[name] = spec
        self.allocation_state.index.replace_pool(naive_facts.pool_facts(name, spec))

    def set_device(self, name: str, change: dict[str, Any]) -> None:
        number = int(name[1:])
        spec = {
            "name": name,
            "uuid": f"G{number}",
            "node": self.homes[number][0],
            "pool": self.homes[number][1],
            "faulted": False,
            "migs": ["1g", "1g"],
            "numa": NUMA[number],
            "links": {BRIDGES[name]: 4} if name in BRIDGES else {},
            "created": "2026-01-01T00:00:00Z",
            **change,
        }
        spec["migs"] = [(profile, f"M{number}{i}") for i, profile in enumerate(spec["migs"])]
        self.model.devices[name] = spec
        self.allocation_state.index.replace_device(naive_facts.device_facts(name, spec))

    def set_node(self, name: str, state: tuple[bool, str]) -> None:
        spec = {"ready": state[0], "closed": state[1]}
        self.model.nodes[name] = spec
        self.allocation_state.index.replace_node(naive_facts.node_facts(name, spec))

    def instant(self) -> Instant:
        return Instant(self.now, EPOCH + dt.timedelta(seconds=self.utc()))

    def utc(self) -> float:
        return self.now + self.ahead_s

    def truth(self, uid: str) -> dict[str, Any]:
        return self.stored[uid][-1]

    def change(self, uid: str, **fields: Any) -> None:
        states = self.stored[uid]
        states.append({**states[-1], **fields})
        del states[:-STATES_KEPT]

    def new_pod(self, pick: Pick, resource: str) -> dict[str, Any]:
        number = next(self.numbers)
        roles = (*pick(INIT), *pick(MAIN))
        containers = [(f"c{i}", role, pick(self.sizes)) for i, role in enumerate(roles)]
        return {
            "number": number,
            "uid": f"u{number}",
            "name": f"u{number}",
            "ns": pick(("ns", "ns", "other")),
            "resource": resource,
            "containers": containers,
            "size": distinct_units(ContainerDemand(*container) for container in containers),
            "priority": pick((0, 1)),
            "created": f"{number // 2:06}",
            "phase": "pending",
            "node": None,
            "devices": None,
            "is_ours": False,
            "nominated": None,
            "note": None,
            "inadmissible_units": (),
            "gated": not pick(range(6)),
            "awaits": not pick(range(4)),
        }

    def deliver(self, uid: str, state: int) -> None:
        pod = self.stored[uid][state]
        ended = self.allocation_state.observe_pod(naive_facts.pod_facts(pod), self.instant())
        want = self.model.observe(pod, self.now, self.utc())
        self.note_taken_over()
        self.check_ended(ended, want)

    def check_ended(self, got: list[Ended], want: set[str]) -> None:
        assert sorted(item.reservation.id for item in got) == sorted(want)
        self.ended += [item.reservation.id for item in got]

    def note_taken_over(self) -> None:
        self.ended += self.model.taken_over
        self.model.taken_over.clear()

    def say(self, node: str, said: dict[str, list[tuple[str, str, list[str]]]]) -> None:
        """Let a node's agent report this, and nothing else."""
        self.model.say(node, said)
        self.allocation_state.observe_reports(NodeName(node), naive_facts.reports(said))

    def holds(self) -> None:
        """The cheap checks, after every step."""
        for pool in POOLS:
            agreement.figures_add_up(self.allocation_state, pool)
        moved = {unit for uid, units in self.moved.items() if uid in self.stored for unit in units}
        agreement.no_unit_has_two_of_our_owners(self.stored, self.model, besides=moved)
        assert self.ends_reported == self.ended
        assert len(self.allocation_state.ledger) == len(self.model.reservations)
        self.wakes()

    def wakes(self) -> None:
        """`on_reported` is called when a pod is reported or gone; a change of devices or pools does not call it."""
        layout = repr((self.model.devices, self.model.pools))
        unreported = {
            str(uid)
            for facts in self.allocation_state.index.pools()
            for node in NODES
            for uid in self.allocation_state.reader.unreported(facts, NodeName(node))
        }
        if layout == self.layout and not self.unreported <= unreported:
            assert self.reported
        self.reported.clear()
        self.unreported, self.layout = unreported, layout

    def agrees(self) -> None:
        """All checks, recomputed by the model."""
        for pool in POOLS:
            agreement.agree_on_figures(self.allocation_state, self.model, pool)
        agreement.agree_on_reservations(self.allocation_state, self.model)
        agreement.agree_on_pods(self.allocation_state, self.model, RESOURCES)

    def ends(self) -> None:
        """Every pod ends and every reservation expires: nothing may be left."""
        for uid in sorted({*self.stored, *self.missed_deletions, *self.model.pods}):
            self.allocation_state.discard_pod(PodUid(uid))
        for node in NODES:
            self.say(node, {})
        self.now += 1000
        self.allocation_state.expire(self.instant())
        agreement.nothing_is_left(self.allocation_state, self.now)
