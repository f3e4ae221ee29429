"""A small cluster with every kind of event of a large one, checked against the naive model.

Operators change devices, pools and nodes under live reservations. Users, kube-scheduler and foreign
binders act. The watch is late, repeats events and loses them until the next list. The API server's
responses get lost, the process restarts, clocks jump.

Each action takes `pick`, which chooses among options, and asserts that allocation state and model
agree. The caller chooses: hypothesis, or a random number generator.
"""

from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId
from pool.admission_planner import Exhausted
from pool.admission_rules import IncomingPod
from pool.model import Constraints, ContainerRole, Demand
from pool.reservations.reservation import PlacementRequest
from tests.support import agreement, naive_facts
from tests.support.cluster_state import (
    DEVICE_CHANGES,
    DEVICES,
    NODE_STATES,
    NODES,
    POOLS,
    RESOURCES,
    ClusterState,
    Pick,
)
from tests.support.naive_allocation_state import UNCOMMITTED
from tests.support.naive_facts import units_of


class SmallCluster(ClusterState):
    """The possible actions."""

    def device(self, pick: Pick) -> None:
        """A device faults, recovers, moves, is replaced, changes pool or instances, goes or comes back."""
        name = f"d{pick(range(DEVICES))}"
        if name in self.model.devices and not pick(range(4)):
            del self.model.devices[name]
            self.allocation_state.index.discard_device(DeviceName(name))
        else:
            self.set_device(name, pick(DEVICE_CHANGES))

    def pool(self, pick: Pick) -> None:
        """A pool is created, changed in every field, or deleted."""
        name = pick(POOLS)
        if pick(range(8)):
            self.set_pool(name, self.a_pool_spec(pick))
        else:
            self.model.pools.pop(name, None)
            self.allocation_state.index.discard_pool(PoolName(name))

    def node(self, pick: Pick) -> None:
        """A node joins, is cordoned, becomes unready, or leaves."""
        name = pick(NODES)
        if pick(range(8)):
            self.set_node(name, pick(NODE_STATES))
        else:
            self.model.nodes.pop(name, None)
            self.allocation_state.index.discard_node(NodeName(name))

    def admit(self, pick: Pick) -> None:
        """A pod is mutated: units are reserved as in the model."""
        resource = pick(RESOURCES)
        pool = self.allocation_state.index.pool_of(resource)
        assert (pool.name if pool else None) == self.model.serving(resource)
        if pool is None:
            return
        pod = self.new_pod(pick, resource)
        id_, asked = f"r{pod['number']}", naive_facts.demand_of(pod)
        incoming = IncomingPod(namespace=pod["ns"], priority=pod["priority"], now=self.now)
        plan = self.allocation_state.reader.admission.plan(
            pool, asked, Constraints(), incoming=incoming
        )
        deferral = self.model.deferral(pod, pool.name, self.now)
        split = agreement.split_nodes(self.allocation_state, pool.name, asked)
        want = self.model.best_node(pool.name, pod, self.now, split) if deferral is None else None
        found = plan.deferral if isinstance(plan, Exhausted) else None
        assert (found and found.value) == deferral
        request = PlacementRequest(
            id=ReservationId(id_), pool=pool, demand=asked, namespace=pod["ns"]
        )
        reservation = {
            "id": id_,
            "uid": None,
            "ns": pod["ns"],
            "pool": str(pool.name),
            "node": want,
            "devices": {},
            "units": [],
            "containers": pod["containers"],
            "phase": "held",
            "expires": self.now + pool.ttl_s,
            "observe_by": self.now + 5,
        }
        pod["note"] = {"id": id_, "pool": str(pool.name), "node": want or "", "devices": {}}
        if isinstance(plan, Exhausted):
            assert want is None
            self.allocation_state.reserve(request, None, self.instant())
        else:
            assert plan.node == want
            agreement.given_as_the_model_allows(self.model, plan, pod)
            self.allocation_state.reserve(request, plan, self.instant())
            given = {name: list(units) for name, units in plan.devices.items()}
            assert self.model.allows((str(pool.name), str(plan.node)), given)
            reservation |= {"devices": given, "units": units_of(given)}
            pod["note"] |= {"devices": given, "expires": self.utc() + pool.ttl_s}
        self.model.reservations[id_] = reservation
        self.coming[pod["uid"]] = pod
        if pick((True, False)):
            self.tie(pod["uid"])
        if pick((True, False)):
            self.store(pod["uid"])
            self.deliver(pod["uid"], -1)

    def hand_in(self, pick: Pick) -> None:
        """An admitted pod is validated, stored, rejected by another webhook, or admitted again."""
        if not self.coming:
            return
        uid = pick(sorted(self.coming))
        match pick(("tie", "store", "reject", "withdraw")):
            case "tie":
                self.tie(uid)
            case "store":
                self.store(uid)
            case "reject":
                del self.coming[uid]
            case _:
                self.withdraw(self.coming.pop(uid)["note"]["id"])

    def tie(self, uid: str) -> None:
        id_ = self.coming[uid]["note"]["id"]
        got = self.allocation_state.tie(
            ReservationId(id_), PodUid(uid), name=uid, now=self.instant()
        )
        assert got is self.model.tie(id_, uid, self.now)

    def withdraw(self, id_: str) -> None:
        held = self.model.reservations.get(id_)
        expected = held is not None and held["phase"] == "held"
        assert (self.allocation_state.withdraw(ReservationId(id_)) is not None) is expected
        if expected:
            self.ended += self.model.drop(held)

    def store(self, uid: str) -> None:
        self.stored[uid] = [self.coming.pop(uid)]

    def event(self, pick: Pick) -> None:
        """The newest state, or an older one again, or one before its predecessors."""
        if self.stored:
            uid = pick(sorted(self.stored))
            last = len(self.stored[uid]) - 1
            self.deliver(uid, pick((last, *range(last + 1))))

    def relist(self, pick: Pick) -> None:
        """The watch broke: all objects are listed, bound pods first; missing ones are gone."""
        for uid in sorted(self.missed_deletions):
            self.deletion(uid)
        order = sorted(self.stored)
        turn = pick(range(len(order))) if order else 0
        order = order[turn:] + order[:turn]
        for uid in sorted(order, key=lambda uid: self.truth(uid)["phase"] == "pending"):
            self.deliver(uid, -1)

    def deletion(self, uid: str) -> None:
        """The DELETED event, or the result of a read for a pod that was never observed."""
        self.missed_deletions.discard(uid)
        if self.allocation_state.reader.pods.get(PodUid(uid)) is None:
            self.answer(uid, "release")
        else:
            self.check_ended(
                self.allocation_state.discard_pod(PodUid(uid)), self.model.discard(uid)
            )

    def end(self, pick: Pick) -> None:
        """A pod succeeds, fails or is deleted, at any stage; the watch may lose the event."""
        if not self.stored:
            return
        # Mostly of those that have units: a cluster that is full shows little.
        taking = [uid for uid in sorted(self.stored) if self.truth(uid)["phase"] == "bound"]
        uid = pick(sorted(self.stored) + taking * 8)
        self.sent.pop(uid, None)
        if self.truth(uid)["phase"] != "ended" and pick((True, False)):
            self.change(uid, phase="ended")
            if pick((True, False)):
                self.deliver(uid, -1)
            return
        del self.stored[uid]
        self.missed_deletions.add(uid)
        if pick((True, True, False)):
            self.deletion(uid)
        self.answer(uid, pick(("written", "doubt", "release")))

    def nominate(self, pick: Pick) -> None:
        """Preemption frees capacity for a pod, or kube-scheduler withdraws the nomination."""
        if self.stored:
            uid = pick(sorted(self.stored))
            if self.truth(uid)["phase"] == "pending":
                self.change(uid, nominated=pick((None, *NODES)))
                self.deliver(uid, -1)

    def ungate(self, pick: Pick) -> None:
        """A gate of a pod is removed: another one's, or ours, by hand or since it has units."""
        gated = [
            (uid, gate)
            for uid in sorted(self.stored)
            for gate in ("gated", "awaits")
            if self.truth(uid)[gate]
        ]
        if gated:
            uid, gate = pick(gated)
            self.change(uid, **{gate: False})
            if pick((True, False)):
                self.deliver(uid, -1)

    def time_passes(self, pick: Pick) -> None:
        """Both clocks advance, or one of them alone; expired reservations may be ended."""
        self.now += pick((0.5, 0.5, 2, 2, 5, 61))
        self.ahead_s += pick((0,) * 6 + (3600, -3600))
        if pick((True, False)):
            self.check_ended(
                self.allocation_state.expire(self.instant()), self.model.expire(self.now)
            )

    def empty(self, pick: Pick) -> None:
        """A pool closes, and its reservations without a Binding are released."""
        name = pick(POOLS)
        if name in self.model.pools:
            spec = self.model.pools[name]
            self.set_pool(name, {**spec, "closed": pick(("PoolChanging", "PoolEnding"))})
            ended = self.allocation_state.release_reservations(PoolName(name))
            self.check_ended(ended, self.model.release_reservations(name))
            if pick((True, True, False)):
                self.set_pool(name, {**spec, "closed": None})

    def hold(self, pick: Pick) -> None:
        """A waiting pod gets units of a node, mostly of one that is starting, and its annotation may say so."""
        waiting = [uid for uid in sorted(self.stored) if self.truth(uid)["phase"] == "pending"]
        if not waiting:
            return
        uid, name = pick(waiting), pick(NODES)
        pod = self.truth(uid)
        pool = self.allocation_state.index.pool_of(pod["resource"])
        if pool is None or pod["inadmissible_units"]:
            return
        if pick((True, False)):
            self.set_node(name, (True, "starting"))
        asked = naive_facts.demand_of(pod)
        plan = self.allocation_state.reader.plan_on(NodeName(name), pool, asked)
        if plan is None:
            reader = self.allocation_state.reader
            constrained = reader.has_constraints(pool, NodeName(name), asked)
            assert constrained or not self.model.may_hold(str(pool.name), name, pod)
            return
        assert self.model.may_hold(str(pool.name), name, pod)
        agreement.given_as_the_model_allows(self.model, plan, pod)
        request = PlacementRequest(
            id=ReservationId(f"h{next(self.numbers)}"),
            pool=pool,
            demand=asked,
            namespace=pod["ns"],
            name=pod["name"],
        )
        held = self.allocation_state.hold(request, plan, uid=PodUid(uid), now=self.instant())
        given = {name: list(units) for name, units in plan.devices.items()}
        is_held = self.model.hold(
            {
                "id": str(request.id),
                "uid": uid,
                "ns": pod["ns"],
                "pool": str(pool.name),
                "node": name,
                "devices": given,
                "units": units_of(given),
                "containers": pod["containers"],
                "phase": "confirmed",
                "expires": self.now + pool.ttl_s,
                "observe_by": self.now,
            }
        )
        assert (held is not None) is is_held
        if is_held and pick((True, False)):
            note = {"id": str(request.id), "pool": str(pool.name), "node": name, "devices": given}
            self.change(uid, note={**note, "expires": self.utc() + pool.ttl_s}, awaits=False)

    def extend(self, pick: Pick) -> None:
        """The reservation of a pod gets more time."""
        if not self.stored:
            return
        uid, ttl_s = pick(sorted(self.stored)), pick((1, 120))
        extended = self.allocation_state.extend(PodUid(uid), ttl_s, self.instant())
        assert (extended is not None) is self.model.extend(uid, self.now + ttl_s)

    def leave(self, pick: Pick) -> None:
        """A node leaves, and its reservations without a Binding end."""
        name = pick(NODES)
        self.set_node(name, (True, "leaving"))
        ended = self.allocation_state.release_on(NodeName(name))
        self.check_ended(ended, self.model.release_on(name))

    def bind(self, pick: Pick) -> None:
        """kube-scheduler requests a bind, mostly of a pending pod on the node of its reservation."""
        pending = [uid for uid in sorted(self.stored) if self.truth(uid)["phase"] == "pending"]
        if not self.stored:
            return
        uid = pick(sorted(self.stored) + pending * 3)
        pod = self.truth(uid)
        pool = self.allocation_state.index.pool_of(pod["resource"])
        if pool is None or pod["inadmissible_units"]:
            return
        own = self.model.reservation_of(uid)
        node = (own["node"] if own is not None and pick((True, False)) else None) or pick(NODES)
        plan = agreement.bind_plan_as_the_model_says(
            self.allocation_state, self.model, pool, pod, node
        )
        if plan is None:
            return
        request = PlacementRequest(
            id=ReservationId(f"b{next(self.numbers)}"),
            pool=pool,
            demand=naive_facts.demand_of(pod),
            namespace=pod["ns"],
            name=uid,
        )
        commitment = self.allocation_state.commit(
            request, plan, uid=PodUid(uid), now=self.instant()
        )
        given = {name: list(units) for name, units in plan.devices.items()}
        self.model.take_over(units_of(given), str(commitment.id), self.now)
        self.note_taken_over()
        self.model.reservations[commitment.id] = {
            "expires": self.now,
            **(own or {}),
            "id": str(commitment.id),
            "uid": uid,
            "ns": pod["ns"],
            "pool": str(pool.name),
            "node": node,
            "devices": given,
            "units": units_of(given),
            "containers": pod["containers"],
            "phase": "committed",
            "observe_by": self.now + 5,
        }
        self.sent[uid] = {"node": node, "devices": given, "landed": False}
        if pick((True, False)):
            self.land(uid)
        self.binding_ends(uid, pick(("at once", "late", "never")))

    def until_stable(self, pick: Pick) -> None:
        """A late answer arrives, or the same Binding is sent again, or the pod is read."""
        if not self.sent:
            return
        uid = pick(sorted(self.sent))
        one = self.model.reservation_of(uid)
        retried = self.allocation_state.retry(PodUid(uid))
        is_in_doubt = one is not None and one["phase"] == "doubtful"
        assert (retried is not None) is (is_in_doubt and not self.model.is_taken(one))
        if retried is not None and one is not None:
            assert list(retried.units) == one["units"]
            one["phase"] = "committed"
        if pick((True, False)):
            self.land(uid)
        self.binding_ends(uid, pick(("at once", "never")))

    def land(self, uid: str) -> None:
        sent = self.sent[uid]
        if self.truth(uid)["phase"] == "pending" and not sent["landed"]:
            sent["landed"] = True
            if uid in self.moved:  # the node has reported other units of it before
                self.moved[uid].update(units_of(sent["devices"]))
            self.change(
                uid, phase="bound", node=sent["node"], devices=sent["devices"], is_ours=True
            )

    def binding_ends(self, uid: str, answers: str) -> None:
        if answers == "never":
            self.answer(uid, "doubt")
        elif answers == "at once":
            self.answer(uid, "written" if self.sent.pop(uid)["landed"] else "release")

    def answer(self, uid: str, what: str) -> None:
        one = self.model.reservation_of(uid)
        phase = one["phase"] if one is not None else None
        match what:
            case "written":
                self.allocation_state.written(PodUid(uid))
                if one is not None and phase not in UNCOMMITTED:
                    one["phase"] = "bound"
            case "doubt":
                self.allocation_state.mark_doubtful(PodUid(uid), self.instant())
                if one is not None and phase == "committed":
                    one |= {"phase": "doubtful", "observe_by": self.now}
            case _:
                ended = self.allocation_state.release(PodUid(uid))
                assert (ended is not None) is (one is not None)
                self.ended += self.model.drop(one)

    def stranger(self, pick: Pick) -> None:
        """A foreign client stores a pod without admission, or binds one: without devices, with devices
        of others, or requesting two pools at once.
        """
        if not self.stored or pick((True, False)):
            pod = self.new_pod(pick, pick(RESOURCES))
            self.stored[pod["uid"]] = [pod]
            return
        uid = pick(sorted(self.stored))
        if self.truth(uid)["phase"] != "pending":
            return
        holders = (
            *(states[-1] for states in self.stored.values()),
            *self.model.reservations.values(),
        )
        taken = [{"c0": units_of(holder["devices"])[:2]} for holder in holders if holder["devices"]]
        inadmissible_units = ((RESOURCES[0], 1), (RESOURCES[1], 2))
        devices = pick([None, {}, *taken[-4:]])
        if pick(range(4)):
            self.change(uid, phase="bound", node=pick(NODES), devices=devices)
        elif uid not in self.sent and self.model.reservation_of(uid) is None:
            self.change(
                uid,
                phase="bound",
                node=pick(NODES),
                inadmissible_units=inadmissible_units,
                resource=RESOURCES[0],
            )

    def report(self, pick: Pick) -> None:
        """A node's agent reports the allocations of a pod: the assigned units or others, of all its
        containers or of some; it repeats or withdraws a report, or reports pods of other nodes.
        """
        node = pick(NODES)
        said = dict(self.model.reports.get(node, {}))
        here = [
            uid
            for uid in sorted(self.stored)
            if self.truth(uid)["node"] == node or uid in self.sent or not pick(range(8))
        ]
        if not here or not pick(range(5)):
            gone = [uid for uid in sorted(said) if pick((True, False))]
            self.say(node, {uid: what for uid, what in said.items() if uid not in gone})
            return
        uid = pick(here)
        pod = self.truth(uid)
        units = [
            unit
            for _, item in sorted(self.model.devices.items())
            for unit in self.model.units_of(item)
        ]
        resource = pick((pod["resource"],) * 6 + tuple(RESOURCES))
        what = []
        for name, role, count in pod["containers"]:
            if role is ContainerRole.INIT or not pick(range(6)):
                continue
            promised = list((pod["devices"] or {}).get(name, ()))
            if not promised or not pick(range(3)):
                promised = [pick([*units, "G9", "G0::7"]) for _ in range(count)]
            what.append((name, resource, sorted(promised)))
        self.say(node, {**said, uid: what})
        promised = units_of(pod["devices"] or {})
        given = {unit for _, _, item in what for unit in item}
        if given - set(promised):
            self.moved.setdefault(uid, set()).update(given, promised)

    def preempt(self, pick: Pick) -> None:
        """kube-scheduler asks whether evicting some pods frees capacity."""
        facts = self.allocation_state.index.pool(PoolName(pick(POOLS)))
        if facts is None or not self.stored:
            return
        uids, node = sorted(self.stored), pick(NODES)
        victims = {pick(uids) for _ in range(pick(range(4)))}
        uid, units = pick([None, *uids]), pick(range(1, 5))
        got = self.allocation_state.reader.fits_without(
            [PodUid(victim) for victim in sorted(victims)],
            NodeName(node),
            (facts, Demand(facts.resource, (), units)),
            uid=PodUid(uid) if uid else None,
        )
        assert got is self.model.fits_without(victims, node, facts.name, units, uid)

    def restart(self, pick: Pick) -> None:
        """A new process: another monotonic clock, empty allocation state, LISTs in any order before pods."""
        now = pick((0.0, 1000.0))
        self.ahead_s += pick((0, 0, 30, -3600)) + self.now - now
        self.now = now
        self.model.pods.clear()
        self.model.left.clear()
        self.model.reservations.clear()
        self.model.absences.clear()
        self.sent.clear()
        self.missed_deletions.clear()
        self.allocation_state = self.new_allocation_state()
        reports_first = pick((True, False))
        if reports_first:
            self.repeat_reports()
        names = [*self.model.pools, *self.model.devices, *self.model.nodes]
        turn = pick(range(len(names))) if names else 0
        for name in names[turn:] + names[:turn]:
            if name in self.model.pools:
                self.set_pool(name, self.model.pools[name])
            elif name in self.model.devices:
                facts = naive_facts.device_facts(name, self.model.devices[name])
                self.allocation_state.index.replace_device(facts)
            else:
                facts_of_node = naive_facts.node_facts(name, self.model.nodes[name])
                self.allocation_state.index.replace_node(facts_of_node)
        if not reports_first:
            self.repeat_reports()
        self.relist(pick)

    def repeat_reports(self) -> None:
        for node, said in self.model.reports.items():
            self.say(node, said)
