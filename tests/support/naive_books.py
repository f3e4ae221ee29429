"""What the books must say, computed the slow way: plain dicts, everything anew at every question.

It shares no code with `pool` but words: units are text, slots are sets of numbers, fractions are exact.
"""

import itertools
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pool.refusal import NodeReason

HOLDS = ("held", "tied", "confirmed")
RANK = {"pending": 0, "bound": 1, "ended": 2}
OBSERVE_WITHIN_S = 5.0


@dataclass
class NaiveBooks:
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """As observed last."""
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    reports: dict[str, dict[str, list[tuple[str, str, list[str]]]]] = field(default_factory=dict)
    """By node and uid: container, resource, units."""

    # --- units -----------------------------------------------------------------------------------

    def units_of(self, device: dict[str, Any]) -> list[str]:
        pool = self.pools.get(device["pool"])
        if pool is None or not device["uuid"]:
            return []
        if pool["mode"] == "Exclusive":
            return [device["uuid"]]
        if pool["mode"] == "TimeSlice":
            return [f"{device['uuid']}::{n}" for n in range(pool["slices"])]
        return sorted({uuid for profile, uuid in device["migs"] if profile == pool["profile"]})

    def parts(self, device: dict[str, Any]) -> set[str]:
        return {device["uuid"], *(uuid for _, uuid in device["migs"])} - {""}

    def slots(self, device: dict[str, Any], units: Any) -> set[int]:
        """Slots that these units take; all of them where a unit is of another cut."""
        ids = self.units_of(device)
        taken: set[int] = set()
        for unit in units:
            if unit.split("::")[0] in self.parts(device):
                taken |= {ids.index(unit)} if unit in ids else set(range(len(ids)))
        return taken

    def observed_units(self, pod: dict[str, Any]) -> list[str]:
        if pod["phase"] != "bound":
            return []
        promised = list(dict.fromkeys(itertools.chain(*(pod["devices"] or {}).values())))
        told = self.told_of(pod)
        has = {unit for _, _, unit in told}
        if not has:
            return promised
        silent = [
            units
            for name, units in (pod["devices"] or {}).items()
            if name not in {c for c, _, _ in told}
        ]
        others = [unit for unit in [*itertools.chain(*silent), *promised] if unit not in has]
        lacking = max(0, pod["size"] - len(has))
        return [*has, *list(dict.fromkeys(others))[:lacking]]

    def told_of(self, pod: dict[str, Any]) -> list[tuple[str, str, str]]:
        """What the pod's node says of it, of cards on that node and in what the pod asked for."""
        resources = dict(pod["astray"]) or {pod["resource"]: 0}
        return [
            (container, resource, unit)
            for container, resource, units in self.reports.get(pod["node"], {}).get(pod["uid"], ())
            for unit in units
            if resource in resources and self.is_on(unit, pod["node"])
        ]

    def is_on(self, unit: str, node: str) -> bool:
        return any(
            device["node"] == node and unit.split("::", maxsplit=1)[0] in self.parts(device)
            for device in self.devices.values()
        )

    def observed_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        units = (self.observed_units(pod) for uid, pod in self.pods.items() if uid not in without)
        return self.slots(device, itertools.chain(*units))

    def assumed_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        units = (one["units"] for id_, one in self.reservations.items() if id_ not in without)
        return self.slots(device, itertools.chain(*units))

    def is_usable(self, device: dict[str, Any]) -> bool:
        twins = (other for other in self.devices.values() if other is not device)
        return not device["faulted"] and not any(
            self.parts(device) & self.parts(other) for other in twins
        )

    def devices_on(self, pool: str, node: str) -> list[dict[str, Any]]:
        return [one for one in self.devices.values() if one["pool"] == pool and one["node"] == node]

    def free_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        """Slots that may be given to whoever holds `without`."""
        if not self.is_usable(device):
            return set()
        everything = set(range(len(self.units_of(device))))
        return everything - self.observed_slots(device) - self.assumed_slots(device, without)

    def unaccounted(self, resource: str, node: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for uid, pod in self.pods.items():
            if (pod["phase"], pod["node"]) != ("bound", node):
                continue
            asked = {
                each: count - len({unit for _, what, unit in self.told_of(pod) if what == each})
                for each, count in pod["astray"]
            } or {pod["resource"]: pod["size"] - len(self.observed_units(pod))}
            if asked.get(resource, 0) > 0:
                found[uid] = asked[resource]
        return found

    def held_twice(self) -> dict[str, set[str]]:
        """Units that several bound pods have; a whole card is the same as each of its slices."""
        claims = [
            (uid, unit) for uid, pod in self.pods.items() for unit in self.observed_units(pod)
        ]
        found: dict[str, set[str]] = {}
        for (uid, unit), (other, theirs) in itertools.permutations(claims, 2):
            if uid != other and unit in {theirs, theirs.split("::")[0]}:
                found.setdefault(unit, set()).update({uid, other})
        return found

    # --- figures ---------------------------------------------------------------------------------

    def figures(self, pool: str, node: str, own: Any = ()) -> dict[str, Any] | None:
        """Figures of a node; `own` are reservations that count as free."""
        if pool not in self.pools:
            return None
        found = dict.fromkeys(
            ("total", "used", "held", "free", "unhealthy", "partial", "unusable"), 0
        )
        for device in self.devices_on(pool, node):
            everything = set(range(len(self.units_of(device))))
            observed, assumed = self.observed_slots(device), self.assumed_slots(device)
            idle = everything - observed - assumed
            is_usable = self.is_usable(device)
            mine = self.free_slots(device, own) - idle if own else set()
            found["total"] += len(everything)
            found["used"] += len(observed)
            found["held"] += len(assumed - observed - mine)
            found["unusable"] += 0 if is_usable else len(everything)
            found["free"] += len(idle | mine) if is_usable else 0
            found["unhealthy"] += 0 if is_usable else len(idle)
            found["partial"] += len(idle) if is_usable and observed | assumed else 0
        if not found["total"]:
            return None
        facts = self.nodes.get(node)
        return {
            **found,
            "unaccounted": sum(self.unaccounted(self.pools[pool]["resource"], node).values()),
            "is_placeable": facts is not None and facts["ready"] and not facts["cordoned"],
            "closed": NodeReason(closed) if (closed := self.pools[pool]["closed"]) else None,
        }

    def nodes_of(self, pool: str) -> dict[str, dict[str, Any]]:
        names = sorted({device["node"] for device in self.devices.values()})
        found = {name: self.figures(pool, name) for name in names}
        return {name: figures for name, figures in found.items() if figures is not None}

    def reason(self, figures: dict[str, Any], size: int) -> str | None:
        if figures["closed"] is not None:
            return str(figures["closed"].value)
        if figures["free"] >= size and not figures["unaccounted"]:
            return None
        if figures["total"] - figures["unusable"] < size:
            return "NodeTooSmall"
        return "UnaccountedPods" if figures["unaccounted"] else "InsufficientUnits"

    def score(self, pool: str, figures: dict[str, Any], size: int) -> int:
        total: int = figures["total"]
        left: int = figures["free"] - size
        match self.pools[pool]["strategy"]:
            case "BinPack":
                return int(Fraction(9 * (total - left), total))
            case "Spread":
                return int(Fraction(9 * left, total))
            case _:
                return max(0, 9 - left)

    def capacity(self, pool: str, of: dict[str, dict[str, Any]] | None = None) -> dict[str, int]:
        nodes = (self.nodes_of(pool) if of is None else of).values()
        found = {
            "total": sum(node["total"] for node in nodes),
            "reserved": sum(node["held"] for node in nodes),
            "used": sum(node["used"] + min(node["unaccounted"], node["free"]) for node in nodes),
            "available": sum(
                node["free"]
                for node in nodes
                if node["is_placeable"] and not node["unaccounted"] and node["closed"] is None
            ),
        }
        rest = found["total"] - found["reserved"] - found["used"] - found["available"]
        return {**found, "unhealthy": rest}

    def best_node(self, pool: str, size: int) -> str | None:
        """Where a hold without constraints is taken."""
        keys = []
        for name, node in self.nodes_of(pool).items():
            if node["closed"] is not None:
                continue
            claimed = self.nominated_units(self.pools[pool]["resource"], name)
            if not node["is_placeable"] or node["unaccounted"] or node["free"] < size + claimed:
                continue
            left = node["free"] - size
            keys.append(
                {
                    "BinPack": (Fraction(left, node["total"]), left, name),
                    "Spread": (Fraction(-left, node["total"]), -left, name),
                    "LeastFragmentation": (left, max(0, size - node["partial"]), name),
                }[self.pools[pool]["strategy"]]
            )
        return min(keys)[-1] if keys else None

    def nominated_units(self, resource: str, node: str) -> int:
        return sum(
            pod["size"]
            for uid, pod in self.pods.items()
            if (pod["phase"], pod["resource"], pod["nominated"]) == ("pending", resource, node)
            and self.reservation_of(uid) is None
        )

    def serving(self, resource: str) -> str | None:
        claims = [
            (pool["created"], name)
            for name, pool in self.pools.items()
            if pool["resource"] == resource
        ]
        return min(claims)[1] if claims else None

    # --- reservations ------------------------------------------------------------------------------

    def reservation_of(self, uid: str) -> dict[str, Any] | None:
        return next((one for one in self.reservations.values() if one["uid"] == uid), None)

    def waiting(self, resource: str) -> list[str]:
        pods = [
            (-pod["priority"], pod["created"], pod["name"], uid)
            for uid, pod in self.pods.items()
            if (pod["phase"], pod["resource"]) == ("pending", resource)
            and self.reservation_of(uid) is None
        ]
        return [uid for *_, uid in sorted(pods)]

    def deadline(self, one: dict[str, Any]) -> float | None:
        if one["phase"] not in HOLDS:
            return None
        if one["phase"] == "confirmed":
            return float(one["expires"])
        return float(min(one["expires"], one["observe_by"]))

    def next_deadline(self) -> float | None:
        deadlines = [self.deadline(one) for one in self.reservations.values()]
        return min((one for one in deadlines if one is not None), default=None)

    def expire(self, now: float) -> set[str]:
        over = set()
        for id_, one in list(self.reservations.items()):
            deadline = self.deadline(one)
            if deadline is not None and deadline <= now:
                del self.reservations[id_]
                if one["node"] is not None:
                    over.add(id_)
        return over

    def release_holds(self, pool: str) -> set[str]:
        over = {
            id_
            for id_, one in self.reservations.items()
            if one["pool"] == pool and one["phase"] in HOLDS and one["node"] is not None
        }
        for id_ in over:
            del self.reservations[id_]
        return over

    def tie(self, id_: str, uid: str, now: float) -> bool:
        one, other = self.reservations.get(id_), self.reservation_of(uid)
        if one is None or one["uid"] not in {None, uid} or other not in (None, one):
            return False
        if one["phase"] == "held":
            one |= {"uid": uid, "phase": "tied", "observe_by": now + OBSERVE_WITHIN_S}
        return True

    def is_intact(self, one: dict[str, Any], pool: str, node: str) -> bool:
        free = set()
        for device in self.devices_on(pool, node):
            ids = self.units_of(device)
            free |= {ids[slot] for slot in self.free_slots(device, {one["id"]})}
        return (one["pool"], one["node"]) == (pool, node) and set(one["units"]) <= free

    def is_taken(self, one: dict[str, Any] | None) -> bool:
        """Say whether somebody else has a unit of a reservation: a bound pod, or another reservation."""
        return one is not None and any(
            self.slots(device, one["units"])
            & (self.observed_slots(device) | self.assumed_slots(device, {one["id"]}))
            for device in self.devices.values()
        )

    # --- what the watch says -----------------------------------------------------------------------

    def observe(self, pod: dict[str, Any], now: float, utc: float) -> set[str]:
        """Take over a pod; return the reservations with units that this ends."""
        uid, before = pod["uid"], self.pods.get(pod["uid"])
        if before is not None and RANK[before["phase"]] > RANK[pod["phase"]]:
            return set()
        self.pods[uid] = pod
        note = pod["note"]
        own = self.own(pod)
        if pod["phase"] != "pending":
            return self.drop(own)
        if own is None and before is None and note is not None:
            self.restore(pod, note, now, utc)
        elif own is not None and own["phase"] in HOLDS:
            if own["node"] is None:
                return self.drop(own)
            own |= {"uid": uid, "phase": "confirmed"}
        return set()

    def drop(self, one: dict[str, Any] | None) -> set[str]:
        if one is None:
            return set()
        del self.reservations[one["id"]]
        return {one["id"]} if one["node"] is not None else set()

    def restore(self, pod: dict[str, Any], note: dict[str, Any], now: float, utc: float) -> None:
        pool = self.serving(pod["resource"])
        if pool is None or note["pool"] != pool or not note["node"]:
            return
        if self.pools[pool]["closed"]:
            return
        units = list(dict.fromkeys(itertools.chain(*note["devices"].values())))
        left = min(note["expires"] - utc, self.pools[pool]["ttl"])
        one = {
            "id": note["id"],
            "uid": pod["uid"],
            "pool": pool,
            "node": note["node"],
            "devices": note["devices"],
            "units": units,
            "containers": pod["containers"],
            "phase": "confirmed",
            "expires": now + left,
            "observe_by": now,
        }
        if (
            left > 0
            and note["id"] not in self.reservations
            and self.is_intact(one, pool, note["node"])
        ):
            self.reservations[note["id"]] = one

    def discard(self, uid: str) -> set[str]:
        pod = self.pods.pop(uid, None)
        return self.drop(self.own(pod) if pod is not None else self.reservation_of(uid))

    def own(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """The reservation of an observed pod: its own, or the one in its note that nobody tied yet."""
        own = self.reservation_of(pod["uid"])
        if own is None and pod["note"] is not None:
            noted = self.reservations.get(pod["note"]["id"])
            return noted if noted is not None and noted["uid"] is None else None
        return own

    # --- preemption --------------------------------------------------------------------------------

    def can_place_without(
        self, victims: set[str], node: str, pool: str, units: int, uid: str | None
    ) -> bool:
        if self.pools[pool]["closed"]:
            return False
        gone = [self.reservation_of(one) for one in {*victims, *([uid] if uid else [])}]
        ids = {one["id"] for one in gone if one is not None}
        free = 0
        for device in self.devices_on(pool, node):
            if self.is_usable(device):
                taken = self.observed_slots(device, victims) | self.assumed_slots(device, ids)
                free += len(self.units_of(device)) - len(taken)
        strangers = self.unaccounted(self.pools[pool]["resource"], node).keys() - victims
        return free >= units and not strangers
