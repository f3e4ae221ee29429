"""The books against a naive model that computes everything anew.

The machine plays the cluster: operators who change cards, pools and nodes under live claims, users,
kube-scheduler, strangers who bind around us, a watch that is late and repeats itself, an API server
whose answers get lost, and restarts. HYPOTHESIS_PROFILE=long looks longer.
"""

import datetime as dt
import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from api.annotations import ReservationNote
from api.gpupool import AllocationMode, Strategy
from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId, UnitId
from pool.books import AlreadyBound, Applicant, Books, Exhausted
from pool.demand import distinct_units
from pool.model import (
    Constraints,
    ContainerDemand,
    Demand,
    DeviceFacts,
    Instant,
    NodeFacts,
    PodFacts,
    PodPhase,
    PoolFacts,
    Role,
)
from pool.placement import Placed, Refused
from pool.reservation import Ended
from tests.support.builders import EPOCH, a_node, a_pool
from tests.support.naive_books import HOLDS, NaiveBooks

NODES = ["n1", "n2"]
POOLS = ["a", "b"]
CARDS = 5
SIZES = range(1, 6)
RESOURCES = [f"gpu.deckhouse.io/{name}" for name in POOLS]

nodes = st.sampled_from(NODES)
pools = st.sampled_from(POOLS)
pool_specs = st.fixed_dictionaries(
    {
        "resource": st.sampled_from([None, None, None, *RESOURCES]),
        "mode": st.sampled_from(["Exclusive", "TimeSlice", "TimeSlice", "MIG"]),
        "strategy": st.sampled_from(["BinPack", "Spread", "LeastFragmentation"]),
        "slices": st.integers(2, 3),
        "profile": st.sampled_from(["1g", "1g", "2g"]),
        "ttl": st.sampled_from([3, 60, 60]),
    }
)
device_changes = st.sampled_from(
    [
        *({"faulted": faulted} for faulted in (False, False, True)),
        *({"node": node} for node in NODES),
        *({"pool": pool} for pool in ("a", "a", "b", None)),
        *({"uuid": uuid} for uuid in ("G0", "G1", "G7", "")),
        *({"migs": migs} for migs in ([], ["1g"], ["1g", "2g"], ["1g", "1g", "1g"])),
        {},
    ]
)
node_specs = st.sampled_from([(True, False)] * 3 + [(True, True), (False, False)])
roles = st.sampled_from([Role.INIT, Role.SIDECAR])
demands = st.tuples(
    st.lists(st.tuples(roles, st.integers(1, 2)), max_size=2),
    st.lists(st.tuples(st.just(Role.MAIN), st.integers(1, 2)), min_size=1, max_size=2),
)


class BooksMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ahead_s = 0.0
        """How far the wall clock has gone beside the monotonic one."""
        self.numbers = itertools.count()
        self.model = NaiveBooks()
        self.books = Books(on_end=lambda ended: self.told.append(ended.reservation.id))
        self.told: list[str] = []
        self.ended: list[str] = []
        """Reservations whose end the books told, and those that the model ended."""
        self.coming: dict[str, dict[str, Any]] = {}
        """Admitted pods that the API server has not stored."""
        self.stored: dict[str, list[dict[str, Any]]] = {}
        """uid -> every state that the API server had; the last is the truth."""
        self.sent: dict[str, dict[str, Any]] = {}
        """uid -> a Binding of ours whose end we do not know."""

    # --- what is there -----------------------------------------------------------------------------

    @initialize(one=pool_specs, other=pool_specs)
    def a_small_cluster(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        for node in NODES:
            self.set_node(node, (True, False))
        self.set_pool("a", {**one, "resource": None})
        self.set_pool("b", {**other, "resource": None})
        for number in range(CARDS):
            self.set_device(f"d{number}", {})

    @rule(
        name=st.sampled_from([f"d{number}" for number in range(CARDS)]),
        change=device_changes,
        is_gone=st.sampled_from([False, False, False, True]),
    )
    def device(self, name: str, change: dict[str, Any], is_gone: bool) -> None:
        """A card faults, heals, moves, is swapped, changes pool or instances, goes or comes back."""
        if is_gone and name in self.model.devices:
            del self.model.devices[name]
            self.books.index.discard_device(DeviceName(name))
        else:
            self.set_device(name, change)

    @rule(
        name=pools,
        spec=pool_specs,
        node=nodes,
        state=node_specs,
        what=st.sampled_from(["pool", "pool", "pool gone", "node", "node", "node gone"]),
    )
    def pool_or_node(
        self, name: str, spec: dict[str, Any], node: str, state: tuple[bool, bool], what: str
    ) -> None:
        match what:
            case "pool":
                self.set_pool(name, spec)
            case "pool gone":
                self.model.pools.pop(name, None)
                self.books.index.discard_pool(PoolName(name))
            case "node":
                self.set_node(node, state)
            case _:
                self.model.nodes.pop(node, None)
                self.books.index.discard_node(NodeName(node))

    def set_pool(self, name: str, spec: dict[str, Any]) -> None:
        spec = {**spec, "resource": spec["resource"] or f"gpu.deckhouse.io/{name}"}
        self.model.pools[name] = spec
        self.books.index.replace_pool(self.pool_facts(name))

    def set_device(self, name: str, change: dict[str, Any]) -> None:
        number = int(name[1:])
        spec = {
            "uuid": f"G{number}",
            "node": NODES[number % 2],
            "pool": "b" if number == CARDS - 1 else "a",
            "faulted": False,
            "migs": ["1g", "1g"],
            **change,
        }
        spec["migs"] = [(profile, f"M{number}{i}") for i, profile in enumerate(spec["migs"])]
        self.model.devices[name] = spec
        self.books.index.replace_device(self.device_facts(name))

    def set_node(self, name: str, state: tuple[bool, bool]) -> None:
        self.model.nodes[name] = {"ready": state[0], "cordoned": state[1]}
        self.books.index.replace_node(self.node_facts(name))

    # --- admission ---------------------------------------------------------------------------------

    @rule(
        resource=st.sampled_from([RESOURCES[0], *RESOURCES]),
        demand=demands,
        priority=st.integers(0, 1),
        ties=st.booleans(),
        is_stored=st.sampled_from([True, True, False]),
    )
    def admit(
        self,
        resource: str,
        demand: tuple[list[Any], list[Any]],
        priority: int,
        ties: bool,
        is_stored: bool,
    ) -> None:
        pool = self.books.index.pool_of(resource)
        assert (pool.name if pool else None) == self.model.serving(resource)
        if pool is None:
            return
        number = next(self.numbers)
        pod = self.new_pod(number, resource, [*demand[0], *demand[1]], priority)
        asked = self.demand_of(pod)
        plan = self.books.plan_hold(pool, asked, Constraints())
        want = self.model.best_node(pool.name, asked.units)
        applicant = Applicant(
            id=ReservationId(f"r{number}"), pool=pool, demand=asked, namespace="ns"
        )
        reservation = {
            "id": f"r{number}",
            "uid": None,
            "pool": str(pool.name),
            "node": want,
            "devices": {},
            "units": [],
            "containers": pod["containers"],
            "phase": "held",
            "expires": self.now + pool.ttl_s,
            "observe_by": self.now + 5,
        }
        if isinstance(plan, Exhausted):
            assert want is None
            self.books.hold(applicant, None, self.instant())
            pod["note"] = {"id": f"r{number}", "pool": pool.name, "node": "", "devices": {}}
        else:
            assert plan.node == want
            self.check_given(plan, pod)
            self.books.hold(applicant, plan, self.instant())
            given = {name: list(units) for name, units in plan.devices.items()}
            reservation |= {"devices": given, "units": units_of(given)}
            pod["note"] = {
                "id": f"r{number}",
                "pool": str(pool.name),
                "node": want,
                "devices": given,
                "expires": self.utc() + pool.ttl_s,
            }
        self.model.reservations[f"r{number}"] = reservation
        self.coming[pod["uid"]] = pod
        if ties:
            self.tie(pod["uid"])
        if is_stored:
            self.is_stored(pod["uid"])
            self.deliver(pod["uid"], 0)

    admit_another = admit

    @precondition(lambda self: self.coming)
    @rule(data=st.data())
    def is_tied_stored_or_rejected(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.coming)))
        match data.draw(st.sampled_from(["tie", "store", "reject", "withdraw"])):
            case "tie":
                self.tie(uid)
            case "store":
                self.is_stored(uid)
            case "reject":
                del self.coming[uid]
            case _:
                self.withdraw(self.coming.pop(uid)["note"]["id"])

    def tie(self, uid: str) -> None:
        id_ = self.coming[uid]["note"]["id"]
        got = self.books.tie(ReservationId(id_), PodUid(uid), name=uid, now=self.instant())
        assert got is self.model.tie(id_, uid, self.now)

    def withdraw(self, id_: str) -> None:
        held = self.model.reservations.get(id_)
        expected = held is not None and held["phase"] == "held"
        assert (self.books.withdraw(ReservationId(id_)) is not None) is expected
        if expected:
            self.ended += self.model.drop(held)

    def is_stored(self, uid: str) -> None:
        self.stored[uid] = [self.coming.pop(uid)]

    # --- the watch ---------------------------------------------------------------------------------

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def event(self, data: st.DataObject) -> None:
        """The newest state, or an older one once more, or one before its predecessors."""
        uid = data.draw(st.sampled_from(sorted(self.stored)))
        last = len(self.stored[uid]) - 1
        self.deliver(uid, data.draw(st.just(last) | st.integers(0, last)))

    another_event = event

    def deliver(self, uid: str, state: int) -> None:
        pod = self.stored[uid][state]
        ended = self.books.observe_pod(self.pod_facts(pod), self.instant())
        self.check_ended(ended, self.model.observe(pod, self.now, self.utc()))

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), ends=st.booleans(), late=st.sampled_from(["written", "doubt", "release"]))
    def pod_ends_or_is_deleted(self, data: st.DataObject, ends: bool, late: str) -> None:
        uid = data.draw(st.sampled_from(sorted(self.stored)))
        self.sent.pop(uid, None)
        if ends and self.truth(uid)["phase"] != "ended":
            self.changes(uid, phase="ended")
            self.deliver(uid, -1)
        else:
            del self.stored[uid]
            self.check_ended(self.books.discard_pod(PodUid(uid)), self.model.discard(uid))
            self.answer(uid, late)

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), node=st.none() | nodes)
    def pod_is_nominated(self, data: st.DataObject, node: str | None) -> None:
        uid = data.draw(st.sampled_from(sorted(self.stored)))
        if self.truth(uid)["phase"] == "pending":
            self.changes(uid, nominated=node)
            self.deliver(uid, -1)

    @rule(seconds=st.sampled_from([0.5, 0.5, 2, 2, 5, 61]), expires=st.booleans())
    def time_passes(self, seconds: float, expires: bool) -> None:
        self.now += seconds
        if expires:
            self.check_ended(self.books.expire(self.instant()), self.model.expire(self.now))

    # --- binding -----------------------------------------------------------------------------------

    @precondition(lambda self: self.stored)
    @rule(
        data=st.data(),
        node=nodes,
        keeps_hold=st.booleans(),
        lands=st.booleans(),
        answers=st.sampled_from(["at once", "at once", "late", "never"]),
    )
    def bind(
        self, data: st.DataObject, node: str, keeps_hold: bool, lands: bool, answers: str
    ) -> None:
        pending = [uid for uid in self.stored if self.truth(uid)["phase"] == "pending"]
        uid = data.draw(st.sampled_from(sorted(self.stored) + pending * 3))
        pod = self.truth(uid)
        pool = self.books.index.pool_of(pod["resource"])
        if pool is None:
            return
        own = self.model.reservation_of(uid)
        if keeps_hold and own is not None:
            node = own["node"] or node
        plan = self.check_bind_plan(pool, pod, NodeName(node))
        if not isinstance(plan, Placed):
            return
        applicant = Applicant(
            id=ReservationId(f"b{next(self.numbers)}"),
            pool=pool,
            demand=self.demand_of(pod),
            namespace="ns",
            name=uid,
        )
        commitment = self.books.commit(applicant, plan, uid=PodUid(uid), now=self.instant())
        given = {name: list(units) for name, units in plan.devices.items()}
        self.model.reservations[commitment.id] = {
            "expires": self.now,
            **(own or {}),
            "id": str(commitment.id),
            "uid": uid,
            "pool": str(pool.name),
            "node": node,
            "devices": given,
            "units": units_of(given),
            "containers": pod["containers"],
            "phase": "committed",
            "observe_by": self.now + 5,
        }
        self.sent[uid] = {"node": node, "devices": given, "landed": False}
        if lands:
            self.land(uid)
        self.binding_ends(uid, answers)

    bind_another = bind_a_third = bind

    def land(self, uid: str) -> None:
        if self.truth(uid)["phase"] == "pending" and not self.sent[uid]["landed"]:
            self.sent[uid]["landed"] = True
            self.changes(
                uid, phase="bound", node=self.sent[uid]["node"], devices=self.sent[uid]["devices"]
            )

    def binding_ends(self, uid: str, answers: str) -> None:
        if answers == "late":
            return
        if answers == "never":
            self.answer(uid, "doubt")
        else:
            self.answer(uid, "written" if self.sent.pop(uid)["landed"] else "release")

    def answer(self, uid: str, what: str) -> None:
        one = self.model.reservation_of(uid)
        phase = one["phase"] if one is not None else None
        match what:
            case "written":
                self.books.written(PodUid(uid))
                if one is not None and phase not in HOLDS:
                    one["phase"] = "bound"
            case "doubt":
                self.books.doubt(PodUid(uid), self.instant())
                if one is not None and phase == "committed":
                    one |= {"phase": "doubtful", "observe_by": self.now}
            case _:
                ended = self.books.release(PodUid(uid))
                assert (ended is not None) is (one is not None)
                self.ended += self.model.drop(one)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), lands=st.booleans())
    def binding_is_settled(self, data: st.DataObject, lands: bool) -> None:
        """An answer comes after all, or the same Binding is sent again, or the pod is read."""
        uid = data.draw(st.sampled_from(sorted(self.sent)))
        one = self.model.reservation_of(uid)
        retried = self.books.retry(PodUid(uid))
        assert (retried is not None) is (one is not None and one["phase"] == "doubtful")
        if retried is not None and one is not None:
            assert list(retried.units) == one["units"]
            one["phase"] = "committed"
        if lands:
            self.land(uid)
        self.binding_ends(uid, data.draw(st.sampled_from(["at once", "never"])))

    @rule(
        data=st.data(),
        resource=st.sampled_from(RESOURCES),
        node=nodes,
        devices=st.sampled_from([None, {}]),
        is_new=st.booleans(),
    )
    def stranger_acts(
        self, data: st.DataObject, resource: str, node: str, devices: Any, is_new: bool
    ) -> None:
        """Somebody stores a pod around admission, or binds one around us, with no word on devices."""
        if is_new:
            pod = self.new_pod(next(self.numbers), resource, [(Role.MAIN, 1)], 0)
            self.stored[pod["uid"]] = [pod]
        elif self.stored:
            uid = data.draw(st.sampled_from(sorted(self.stored)))
            if self.truth(uid)["phase"] == "pending":
                self.changes(uid, phase="bound", node=node, devices=devices)

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), node=nodes, pool=pools)
    def preemption_is_considered(self, data: st.DataObject, node: str, pool: str) -> None:
        facts = self.books.index.pool(PoolName(pool))
        if facts is None:
            return
        uids = st.sampled_from(sorted(self.stored))
        victims = data.draw(st.sets(uids, max_size=3))
        uid = data.draw(st.none() | uids)
        units = data.draw(st.integers(1, 4))
        got = self.books.can_place_without(
            [PodUid(one) for one in victims],
            NodeName(node),
            (facts, Demand(facts.resource, (), units)),
            uid=PodUid(uid) if uid else None,
        )
        gone = [self.model.reservation_of(one) for one in {*victims, *([uid] if uid else [])}]
        ids = {one["id"] for one in gone if one is not None}
        free = 0
        for device in self.model.devices_on(pool, node):
            if self.model.is_usable(device):
                taken = self.model.observed_slots(device, victims)
                taken |= self.model.assumed_slots(device, ids)
                free += len(self.model.units_of(device)) - len(taken)
        strangers = self.model.unaccounted(facts.resource, node).keys() - victims
        assert got is (free >= units and not strangers)

    # --- restart -----------------------------------------------------------------------------------

    @rule(data=st.data(), ahead_s=st.sampled_from([0, 0, 30, -3600]))
    def restart(self, data: st.DataObject, ahead_s: float) -> None:
        """A new process: another monotonic clock, empty books, LISTs in any order before pods."""
        now = data.draw(st.sampled_from([0.0, 1000.0]))
        self.ahead_s += ahead_s + self.now - now
        self.now = now
        self.model.pods.clear()
        self.model.reservations.clear()
        self.sent.clear()
        self.books = Books(on_end=lambda ended: self.told.append(ended.reservation.id))
        index = self.books.index
        facts: list[Any] = [
            *((index.replace_pool, self.pool_facts(name)) for name in self.model.pools),
            *((index.replace_device, self.device_facts(name)) for name in self.model.devices),
            *((index.replace_node, self.node_facts(name)) for name in self.model.nodes),
        ]
        for write, fact in data.draw(st.permutations(facts)):
            write(fact)
        for uid in data.draw(st.permutations(sorted(self.stored))):
            self.deliver(uid, -1)

    # --- what must be so ---------------------------------------------------------------------------

    @invariant()
    def figures_are_right(self) -> None:
        for pool in POOLS:
            state = self.books.index.state(PoolName(pool))
            got = {
                str(name): {key: getattr(node, key) for key in node.__slots__}
                for name, node in state.nodes().items()
            }
            want = self.model.nodes_of(pool)
            assert got == want
            capacity = state.capacity()
            sums = {key: getattr(capacity, key) for key in capacity.__slots__}
            assert sums == self.model.capacity(pool)
            assert state.largest_node() == max((node["total"] for node in want.values()), default=0)
            for size in SIZES:
                self.check_view(pool, size, want)

    def check_view(self, pool: str, size: int, nodes: dict[str, Any]) -> None:
        view = self.books.index.view(PoolName(pool), size)
        reasons = {name: self.model.reason(node, size) for name, node in nodes.items()}
        got = {name: one.reason.value if one else None for name, one in view.refusals.items()}
        assert got == reasons
        assert view.scores == {
            name: self.model.score(pool, node, size)
            for name, node in nodes.items()
            if reasons[name] is None
        }

    @invariant()
    def reservations_are_right(self) -> None:
        got = {
            str(one.id): (one.uid, one.pool, one.node, list(one.units), one.phase.value)
            for one in self.books.ledger.all()
        }
        assert got == {
            id_: (one["uid"], one["pool"], one["node"], one["units"], one["phase"])
            for id_, one in self.model.reservations.items()
        }
        for one in self.books.ledger.all():
            assert self.books.ledger.get(one.id) is one
            assert one.uid is None or self.books.ledger.of_pod(one.uid) is one
        deadline, want = self.books.ledger.next_deadline(), self.model.next_deadline()
        assert want is None or (deadline is not None and deadline <= want)
        late = {id_ for id_, one in self.model.reservations.items() if one["phase"] in LATE}
        assert self.told == self.ended
        assert {one.id for one in self.books.unsettled()} == late

    @invariant()
    def waiting_pods_are_right(self) -> None:
        for resource in RESOURCES:
            got = [str(pod.uid) for pod in self.books.waiting(resource)]
            assert got == self.model.waiting(resource)

    @invariant()
    def no_unit_is_given_to_two_pods(self) -> None:
        given: dict[str, str] = {}
        for uid, states in self.stored.items():
            if states[-1]["phase"] == "bound" and states[-1]["devices"]:
                for unit in units_of(states[-1]["devices"]):
                    assert given.setdefault(unit, uid) == uid
        for one in self.model.reservations.values():
            for unit in one["units"] if one["phase"] not in HOLDS else ():
                assert given.setdefault(unit, one["uid"]) == one["uid"]

    def teardown(self) -> None:
        for uid in list(self.stored):
            self.books.discard_pod(PodUid(uid))
        self.now += 1000
        self.books.expire(self.instant())
        assert len(self.books.ledger) == 0
        assert self.books.ledger.due(self.now) == []
        for pool in POOLS:
            capacity = self.books.index.state(PoolName(pool)).capacity()
            assert (capacity.used, capacity.reserved) == (0, 0)
        for claims in (self.books.index._observed, self.books.index._assumed):
            assert (claims._units_by_owner, claims._owners_by_part) == ({}, {})
        assert (len(self.books._pending), self.books._pods) == (0, {})
        assert (self.books.index._unaccounted, self.books.index._unaccounted_place) == ({}, {})

    # --- checks ------------------------------------------------------------------------------------

    def check_ended(self, got: list[Ended], want: set[str]) -> None:
        assert {one.reservation.id for one in got} == want
        self.ended += [one.reservation.id for one in got]

    def check_bind_plan(self, pool: PoolFacts, pod: dict[str, Any], node: NodeName) -> Any:
        uid, demand = PodUid(pod["uid"]), self.demand_of(pod)
        plan = self.books.plan_bind(node, pool, demand, uid=uid)
        seen, own = self.model.pods.get(uid), self.model.reservation_of(uid)
        if seen is not None and seen["phase"] != "pending" and seen["node"] is not None:
            assert plan == AlreadyBound(seen["node"], None)
            return plan
        if own is not None and own["phase"] not in HOLDS:
            assert isinstance(plan, AlreadyBound)
            assert plan.node == own["node"]
            return plan
        if seen is not None and seen["phase"] == "ended":
            return None
        mine = {own["id"]} if own is not None and own["node"] == node else set()
        figures = self.model.figures(pool.name, node, mine)
        reason = self.model.reason(figures, demand.units) if figures else "NodeNotInPool"
        refusal = self.books.refusal_on(node, pool, demand, uid=uid)
        assert (refusal.reason.value if refusal else None) == reason
        if refusal is not None:
            assert plan == Refused(node, refusal)
            return plan
        assert isinstance(plan, Placed)
        assert (plan.pool, plan.node) == (pool.name, node)
        self.check_given(plan, pod, own)
        if own is not None and self.model.is_intact(own, pool.name, node):
            assert {name: list(units) for name, units in plan.devices.items()} == own["devices"]
        return plan

    def check_given(
        self, plan: Placed, pod: dict[str, Any], own: dict[str, Any] | None = None
    ) -> None:
        free: set[str] = set()
        for device in self.model.devices_on(plan.pool, plan.node):
            ids = self.model.units_of(device)
            free |= {
                ids[slot] for slot in self.model.free_slots(device, {own["id"]} if own else ())
            }
        given = {name: list(units) for name, units in plan.devices.items()}
        assert set(units_of(given)) <= free
        assert len(units_of(given)) == pod["size"]
        counts = {name: len(set(units)) for name, units in given.items()}
        assert counts == {name: units for name, _, units in pod["containers"]}

    # --- from the model's dicts to facts -------------------------------------------------------------

    def instant(self) -> Instant:
        return Instant(self.now, EPOCH + dt.timedelta(seconds=self.utc()))

    def utc(self) -> float:
        return self.now + self.ahead_s

    def truth(self, uid: str) -> dict[str, Any]:
        return self.stored[uid][-1]

    def changes(self, uid: str, **fields: Any) -> None:
        self.stored[uid].append({**self.truth(uid), **fields})

    def new_pod(
        self, number: int, resource: str, asked: list[Any], priority: int
    ) -> dict[str, Any]:
        containers = [(f"c{i}", role, units) for i, (role, units) in enumerate(asked)]
        return {
            "uid": f"u{number}",
            "name": f"u{number}",
            "resource": resource,
            "containers": containers,
            "size": distinct_units(ContainerDemand(*one) for one in containers),
            "priority": priority,
            "created": f"{number // 2:04}",
            "phase": "pending",
            "node": None,
            "devices": None,
            "nominated": None,
            "note": None,
        }

    def demand_of(self, pod: dict[str, Any]) -> Demand:
        containers = tuple(ContainerDemand(*one) for one in pod["containers"])
        return Demand(pod["resource"], containers, pod["size"])

    def pod_facts(self, pod: dict[str, Any]) -> PodFacts:
        note = None
        if pod["note"] is not None:
            expires = pod["note"].get("expires")
            note = ReservationNote(
                id=pod["note"]["id"],
                pool=pod["note"]["pool"],
                node=pod["note"]["node"],
                devices=as_devices(pod["note"]["devices"]),
                expires_at=EPOCH + dt.timedelta(seconds=expires) if expires is not None else None,
            )
        return PodFacts(
            uid=PodUid(pod["uid"]),
            namespace="ns",
            name=pod["name"],
            demand=self.demand_of(pod),
            phase=PodPhase(pod["phase"]),
            node=pod["node"],
            devices=as_devices(pod["devices"]) if pod["devices"] is not None else None,
            reservation=note,
            nominated_node=pod["nominated"],
            created=pod["created"],
            priority=pod["priority"],
        )

    def pool_facts(self, name: str) -> PoolFacts:
        spec = self.model.pools[name]
        return a_pool(
            name,
            resource=spec["resource"],
            mode=AllocationMode(spec["mode"]),
            strategy=Strategy(spec["strategy"]),
            ttl_s=spec["ttl"],
            mig_profile=spec["profile"],
            slices_per_device=spec["slices"],
        )

    def device_facts(self, name: str) -> DeviceFacts:
        spec = self.model.devices[name]
        return DeviceFacts(
            name=DeviceName(name),
            node=NodeName(spec["node"]),
            uuid=spec["uuid"],
            pool=PoolName(spec["pool"]) if spec["pool"] else None,
            is_faulted=spec["faulted"],
            mig_instances=tuple(spec["migs"]),
        )

    def node_facts(self, name: str) -> NodeFacts:
        spec = self.model.nodes[name]
        return a_node(name, is_ready=spec["ready"], is_cordoned=spec["cordoned"])


LATE = ("doubtful", "bound")


def units_of(devices: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(itertools.chain(*devices.values())))


def as_devices(devices: dict[str, Any]) -> dict[str, tuple[UnitId, ...]]:
    return {name: tuple(map(UnitId, units)) for name, units in devices.items()}


TestBooks = BooksMachine.TestCase
PROFILE = settings()
TestBooks.settings = settings(max_examples=PROFILE.max_examples * 2, stateful_step_count=50)
