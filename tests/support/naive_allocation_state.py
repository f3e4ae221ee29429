"""A naive model of the allocation state: plain dicts, everything recomputed at every question.

It shares no code with `pool` but words: units are text, slots are sets of numbers, fractions are exact.
"""

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pool.model import ContainerRole
from pool.refusal import NodeReason
from tests.support import naive_same_device

UNCOMMITTED = ("held", "tied", "confirmed")
UNCONFIRMED = ("held", "tied")
"""Their pods are not observed: any pod that exists may have their units."""
RANK = {"pending": 0, "bound": 1, "ended": 1}
SHARED_AND_APART = {("TimeSlice", "DistinctDevices"), ("MIG", "DistinctDevices")}
"""Modes of pools in which several pods share a device, and a container's units may be on any devices."""
OBSERVE_WITHIN_S = 5.0
NOMINATED_FOR_S = 60.0


@dataclass
class NaiveAllocationState:
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """As observed last."""
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    reports: dict[str, dict[str, list[tuple[str, str, list[str]]]]] = field(default_factory=dict)
    """By node and uid: container, resource, units."""
    nominated_at: dict[str, float] = field(default_factory=dict)
    """By uid: when the present nomination was first seen."""
    absences: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    """By pool and namespace: how many admitted pods in a row did not appear, the end of their back-off."""
    taken_over: list[str] = field(default_factory=list)
    """Reservations that ended for pods that exist, until a reader takes them."""
    left: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Pods that went without having ended, and that their node has reported ever since."""

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
        """Slots that these units take; all of them where a unit is of another partitioning."""
        ids = self.units_of(device)
        taken: set[int] = set()
        for unit in units:
            if unit.split("::")[0] in self.parts(device):
                taken |= {ids.index(unit)} if unit in ids else set(range(len(ids)))
        return taken

    def observed_units(self, pod: dict[str, Any]) -> list[str]:
        if pod["phase"] != "bound":
            return []
        assigned = list(dict.fromkeys(itertools.chain(*(pod["devices"] or {}).values())))
        reported = self.reported_of(pod)
        has = {unit for _, _, unit in reported}
        if not has:
            return assigned
        silent = [
            units
            for name, units in (pod["devices"] or {}).items()
            if name not in {c for c, _, _ in reported}
        ]
        others = [unit for unit in [*itertools.chain(*silent), *assigned] if unit not in has]
        shortfall = max(0, pod["size"] - len(has))
        return [*has, *list(dict.fromkeys(others))[:shortfall]]

    def claims(self) -> list[tuple[str, list[str]]]:
        """What pods have, those that went and are still reported among them."""
        return [
            *((uid, self.observed_units(pod)) for uid, pod in self.pods.items()),
            *(
                (uid, [unit for unit in self.observed_units(pod) if self.is_on(unit, pod["node"])])
                for uid, pod in self.left.items()
            ),
        ]

    def say(self, node: str, said: dict[str, list[tuple[str, str, list[str]]]]) -> None:
        self.reports[node] = said
        self.left = {
            uid: pod for uid, pod in self.left.items() if pod["node"] != node or uid in said
        }

    def reported_of(self, pod: dict[str, Any]) -> list[tuple[str, str, str]]:
        """The report of the pod's node, of devices on that node and resources that the pod asked for."""
        resources = dict(pod["inadmissible_units"]) or {pod["resource"]: 0}
        return [
            (container, resource, unit)
            for container, resource, units in self.reports.get(pod["node"], {}).get(pod["uid"], ())
            for unit in units
            if resource in resources and self.is_on(unit, pod["node"])
        ]

    def unreported(self, pool: str, node: str) -> set[str]:
        """Pods with devices of the pool on a node, or with a Binding under way, that lack a container in its report."""
        parts = {part for device in self.devices_on(pool, node) for part in self.parts(device)}
        reports = self.reports.get(node, {})
        bound = {
            uid
            for uid, pod in self.pods.items()
            if {unit.split("::")[0] for unit in self.observed_units(pod)} & parts
            and {
                (name, pod["resource"])
                for name, role, _ in pod["containers"]
                if role is not ContainerRole.INIT
            }
            - {(container, resource) for container, resource, _ in reports.get(uid, ())}
        }
        return bound | {
            reservation["uid"]
            for reservation in self.reservations.values()
            if reservation["phase"] not in UNCOMMITTED
            and {unit.split("::")[0] for unit in reservation["units"]} & parts
        }

    def is_on(self, unit: str, node: str) -> bool:
        return any(
            device["node"] == node and unit.split("::", maxsplit=1)[0] in self.parts(device)
            for device in self.devices.values()
        )

    def observed_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        units = (units for uid, units in self.claims() if uid not in without)
        return self.slots(device, itertools.chain(*units))

    def assumed_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        units = (item["units"] for id_, item in self.reservations.items() if id_ not in without)
        return self.slots(device, itertools.chain(*units))

    def confirmed_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        seen = (id_ for id_, item in self.reservations.items() if item["phase"] not in UNCONFIRMED)
        return self.assumed_slots(device, self.reservations.keys() - (set(seen) - set(without)))

    def is_usable(self, device: dict[str, Any]) -> bool:
        return not device["faulted"] and self.owner_of(self.parts(device), device) is device

    def owner_of(self, parts: set[str], device: Any = None) -> dict[str, Any] | None:
        """The device that comes first of those that claim any of these UUIDs, and of `device`."""
        ranks = {
            name: (other["pool"] is None, other["created"], name)
            for name, other in self.devices.items()
            if other is device or parts & self.parts(other)
        }
        return self.devices[min(ranks, key=ranks.__getitem__)] if ranks else None

    def owners(self, units: Any) -> list[tuple[dict[str, Any], list[str]]]:
        """Units by the device that owns their UUID."""
        found = [(self.owner_of({unit.split("::")[0]}), unit) for unit in units]
        return [(device, [unit]) for device, unit in found if device is not None]

    def devices_on(self, pool: str, node: str) -> list[dict[str, Any]]:
        return [
            device
            for device in self.devices.values()
            if device["pool"] == pool and device["node"] == node
        ]

    def free_slots(self, device: dict[str, Any], without: Any = ()) -> set[int]:
        """Slots that the owner of `without` may get."""
        if not self.is_usable(device):
            return set()
        everything = set(range(len(self.units_of(device))))
        return everything - self.observed_slots(device) - self.assumed_slots(device, without)

    def reachable_slots(self, device: dict[str, Any], own: Any = ()) -> set[int]:
        """Slots that an existing pod with reservation `own` may get."""
        if not self.is_usable(device):
            return set()
        everything = set(range(len(self.units_of(device))))
        return everything - self.observed_slots(device) - self.confirmed_slots(device, own)

    def free_counts(self, pool: str, node: str) -> list[int]:
        """Units of each device of the pool there that nobody has."""
        return [len(self.free_slots(device)) for device in self.devices_on(pool, node)]

    def available_counts(self, pool: str, node: str, own: Any = ()) -> list[int]:
        """Units of each device that an existing pod with reservation `own` may get."""
        return [len(self.reachable_slots(device, own)) for device in self.devices_on(pool, node)]

    def healthy_counts(self, pool: str, node: str) -> list[int]:
        return [
            len(self.units_of(device)) if self.is_usable(device) else 0
            for device in self.devices_on(pool, node)
        ]

    def is_constrained(self, pool: str) -> bool:
        """Whether the number of free units does not decide alone."""
        spec = self.pools[pool]
        return bool(spec["placement"] == "SameDevice" or spec["topology"] == "Required")

    def is_aligned(self, devices: Any) -> bool:
        nodes = {device["numa"] for device in devices}
        if len(devices) < 2 or (len(nodes) == 1 and None not in nodes):
            return True
        return all(
            item["links"].get(other["name"], 0) > 0 and other["links"].get(item["name"], 0) > 0
            for item, other in itertools.combinations(devices, 2)
        )

    def prefers_aligned(self, pool: str, node: str) -> bool:
        """Whether a set is better there than another by its topology."""
        devices = self.devices_on(pool, node)
        return self.pools[pool]["topology"] == "Preferred" and (
            any(device["numa"] is not None for device in devices)
            or any(map(self.is_aligned, itertools.combinations(devices, 2)))
        )

    def check_split(
        self, at: tuple[str, str], free: list[int], containers: Any, *, is_split: bool
    ) -> None:
        """The devices that a pod would get are aligned only if a set could be, and always where none is shared."""
        pool = self.pools[at[0]]
        if pool["placement"] != "SameDevice":
            containers = [
                ("c0", ContainerRole.MAIN, distinct((role, units) for _, role, units in containers))
            ]
        could_be = self.fits(*at, free, containers, topology="Required")
        if is_split:
            assert not could_be or (pool["mode"], pool["placement"]) in SHARED_AND_APART
        else:
            assert could_be or not self.fits(*at, free, containers)

    def fits(
        self, pool: str, node: str, free: list[int], containers: Any, topology: str | None = None
    ) -> bool:
        """Whether free units of the node's devices can serve the containers; every set of devices is tried."""
        spec = self.pools[pool]
        asked = tuple((role, units) for _, role, units in containers)
        size = distinct(asked)
        if sum(free) < size:
            return False
        devices = [
            (device, count)
            for device, count in zip(self.devices_on(pool, node), free, strict=True)
            if count
        ]
        is_required = (topology or spec["topology"]) == "Required"
        for number in range(len(devices), 0, -1):
            for combination in itertools.combinations(devices, number):
                if is_required and not self.is_aligned([device for device, _ in combination]):
                    continue
                counts = tuple(count for _, count in combination)
                if spec["placement"] == "SameDevice":
                    if naive_same_device.serves(asked, counts, spec["slices"]):
                        return True
                elif sum(counts) >= int(size):
                    return True
        return False

    def fault(self, pool: str, node: str, available: list[int], containers: Any) -> str | None:
        """Why enough free units do not do."""
        if not self.is_constrained(pool) or self.fits(pool, node, available, containers):
            return None
        healthy = self.healthy_counts(pool, node)
        is_resolvable = self.fits(pool, node, healthy, containers)
        units = available if is_resolvable else healthy
        if not self.fits(pool, node, units, containers, topology="None"):
            return "NoDeviceWithRoom" if is_resolvable else "TooFewDevices"
        return "NotAligned" if is_resolvable else "CannotAlign"

    def unaccounted(self, resource: str, node: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for uid, pod in self.pods.items():
            if (pod["phase"], pod["node"]) != ("bound", node):
                continue
            asked = {
                item: count - len({unit for _, what, unit in self.reported_of(pod) if what == item})
                for item, count in pod["inadmissible_units"]
            } or {pod["resource"]: pod["size"] - len(self.observed_units(pod))}
            if asked.get(resource, 0) > 0:
                found[uid] = asked[resource]
        return found

    def held_twice(self) -> dict[str, set[str]]:
        """Units that several bound pods have; a whole device is the same as each of its slices."""
        claims = [(uid, unit) for uid, units in self.claims() for unit in units]
        found: dict[str, set[str]] = {}
        for (uid, unit), (other, theirs) in itertools.permutations(claims, 2):
            if uid != other and unit in {theirs, theirs.split("::")[0]}:
                found.setdefault(unit, set()).update({uid, other})
        return found

    def figures(self, pool: str, node: str, own: Any = ()) -> dict[str, Any] | None:
        """Figures of a node; `own` are reservations that count as free."""
        if pool not in self.pools:
            return None
        found = dict.fromkeys(
            (
                "total",
                "used",
                "reserved",
                "unconfirmed",
                "free",
                "unhealthy",
                "partial",
                "unusable",
            ),
            0,
        )
        for device in self.devices_on(pool, node):
            everything = set(range(len(self.units_of(device))))
            observed, assumed = self.observed_slots(device), self.assumed_slots(device)
            firm = observed | self.confirmed_slots(device)
            idle = everything - observed - assumed
            is_usable = self.is_usable(device)
            mine = self.reachable_slots(device, own) & firm if own else set()
            found["total"] += len(everything)
            found["used"] += len(observed)
            found["reserved"] += len(firm - observed - mine)
            found["unconfirmed"] += len(assumed - firm) if is_usable else 0
            found["unusable"] += 0 if is_usable else len(everything)
            found["free"] += len(idle | mine) if is_usable else 0
            found["unhealthy"] += 0 if is_usable else len(everything - firm)
            found["partial"] += len(idle) if is_usable and observed | assumed else 0
        if not found["total"]:
            return None
        facts = self.nodes.get(node)
        return {
            **found,
            "unaccounted": sum(self.unaccounted(self.pools[pool]["resource"], node).values()),
            "is_placeable": facts is not None and facts["ready"] and not facts["closed"],
            "closed": NodeReason(closed) if (closed := self.closed(pool, node, own)) else None,
        }

    def closed(self, pool: str, node: str, own: Any = ()) -> str | None:
        """Why no units are given there; a node that is starting is open to reservations of pods that exist."""
        if self.pools[pool]["closed"]:
            return str(self.pools[pool]["closed"])
        mine = [one for id_ in own if (one := self.reservations[id_])["phase"] not in UNCONFIRMED]
        state = self.nodes.get(node, {"closed": ""})["closed"]
        if state == "leaving":
            return "NodeLeaving"
        if state == "withheld":
            return "DriverUpgrade"
        return "NodeStarting" if state == "starting" and not mine else None

    def may_hold(self, pool: str, node: str, pod: dict[str, Any]) -> bool:
        """Whether free units of a node do for a pod that the node came for."""
        figures = self.figures(pool, node)
        if figures is None or figures["unaccounted"]:
            return False
        if figures["closed"] not in {None, NodeReason.NODE_STARTING}:
            return False
        return self.fits(pool, node, self.free_counts(pool, node), pod["containers"])

    def hold(self, one: dict[str, Any]) -> bool:
        pod = self.pods.get(one["uid"])
        if pod is None or (pod["phase"], pod["gated"]) != ("pending", False):
            return False
        if self.reservation_of(one["uid"]) is not None:
            return False
        self.reservations[one["id"]] = one
        return True

    def extend(self, uid: str, until: float) -> bool:
        one = self.reservation_of(uid)
        if one is None or one["phase"] != "confirmed":
            return False
        one["expires"] = until
        return True

    def release_on(self, node: str) -> set[str]:
        return self.release({"node": node})

    def release(self, about: dict[str, str]) -> set[str]:
        """End the uncommitted reservations with units that are as given."""
        over = {
            id_
            for id_, item in self.reservations.items()
            if about.items() <= item.items()
            and item["phase"] in UNCOMMITTED
            and item["node"] is not None
        }
        for id_ in over:
            del self.reservations[id_]
        return over

    def nodes_of(self, pool: str) -> dict[str, dict[str, Any]]:
        names = sorted({device["node"] for device in self.devices.values()})
        found = {name: self.figures(pool, name) for name in names}
        return {name: figures for name, figures in found.items() if figures is not None}

    def reason(
        self, at: tuple[str, str], figures: dict[str, Any], containers: Any, own: Any = ()
    ) -> str | None:
        """Why the containers do not fit the pool's node now; `own` are reservations that count as free."""
        size = distinct((role, units) for _, role, units in containers)
        if figures["closed"] is not None:
            return str(figures["closed"].value)
        if figures["free"] + figures["unconfirmed"] >= size and not figures["unaccounted"]:
            return self.fault(*at, self.available_counts(*at, own), containers)
        if figures["total"] - figures["unusable"] < size:
            return "NodeTooSmall"
        return "UnaccountedPods" if figures["unaccounted"] else "InsufficientUnits"

    def score(
        self, at: tuple[str, str], figures: dict[str, Any], containers: Any, *, is_split: bool
    ) -> int:
        """The node's score; with a preference for aligned sets the upper half is theirs."""
        score = self.score_by_strategy(at, figures, containers)
        size = distinct((role, units) for _, role, units in containers)
        if score is None or size == 1 or not self.prefers_aligned(*at):
            return score or 0
        return score * 4 // 9 + (0 if is_split else 5)

    def score_by_strategy(
        self, at: tuple[str, str], figures: dict[str, Any], containers: Any
    ) -> int | None:
        pool, node = at
        total: int = figures["total"]
        left: int = figures["free"] - distinct((role, units) for _, role, units in containers)
        if left < 0:
            return None
        if self.is_constrained(pool):
            free = self.free_counts(pool, node)
            if not self.fits(pool, node, free, containers):
                return None
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
            "reserved": sum(node["reserved"] for node in nodes),
            "used": sum(node["used"] + min(node["unaccounted"], node["free"]) for node in nodes),
            "available": sum(map(self.available_on, nodes)),
        }
        remaining = found["total"] - found["reserved"] - found["used"] - found["available"]
        return {**found, "unhealthy": remaining}

    def available_on(self, node: dict[str, Any]) -> int:
        """Units that a pod which exists may be given on a node where new pods may go."""
        if not node["is_placeable"] or node["unaccounted"] or node["closed"] is not None:
            return 0
        return int(node["free"] + node["unconfirmed"])

    def best_node(self, pool: str, pod: dict[str, Any], now: float, split: Any = ()) -> str | None:
        """The node of a reservation without constraints; those where the devices would be split come last."""
        size = pod["size"]
        keys = []
        for name, node in self.nodes_of(pool).items():
            if node["closed"] is not None:
                continue
            claimed = self.nominated_units(self.pools[pool]["resource"], name, now)
            if not node["is_placeable"] or node["unaccounted"] or node["free"] < size + claimed:
                continue
            if self.is_constrained(pool) and (
                claimed
                or not self.fits(pool, name, self.free_counts(pool, name), pod["containers"])
            ):
                continue
            left = node["free"] - size
            keys.append(
                (
                    name in split,
                    *{
                        "BinPack": (Fraction(left, node["total"]), left, name),
                        "Spread": (Fraction(-left, node["total"]), -left, name),
                        "LeastFragmentation": (left, max(0, size - node["partial"]), name),
                    }[self.pools[pool]["strategy"]],
                )
            )
        return min(keys)[-1] if keys else None

    def nominated_units(self, resource: str, node: str, now: float) -> int:
        return sum(
            pod["size"]
            for uid, pod in self.pods.items()
            if (pod["phase"], pod["resource"], pod["nominated"]) == ("pending", resource, node)
            and (self.reservation_of(uid) or {"node": None})["node"] != node
            and now - self.nominated_at[uid] < NOMINATED_FOR_S
        )

    def deferral(self, pod: dict[str, Any], pool: str, now: float) -> str | None:
        """Why a pod that is not stored yet reserves nothing though units are free."""
        nodes, size = self.nodes_of(pool), pod["size"]
        if self.best_node(pool, pod, now) is None:
            claimed = {name: self.nominated_units(pod["resource"], name, now) for name in nodes}
            fits = [
                node["unconfirmed"]
                and self.available_on(node) - claimed[name] >= size
                and not self.fault(pool, name, self.available_counts(pool, name), pod["containers"])
                for name, node in nodes.items()
            ]
            return "unconfirmed" if any(fits) else None
        if self.would_be_passed(pod, [self.available_on(node) for node in nodes.values()]):
            return "waiting_pods"
        held = sum(
            len(reservation["units"])
            for reservation in self.reservations.values()
            if (reservation["pool"], reservation["ns"]) == (pool, pod["ns"])
            and reservation["phase"] in UNCONFIRMED
        )
        if held and held + size > sum(node["total"] for node in nodes.values()) // 2:
            return "share"
        return "backoff" if self.absences.get((pool, pod["ns"]), (0, now))[1] > now else None

    def would_be_passed(self, pod: dict[str, Any], pod_counts: list[int]) -> bool:
        """Whether a pod that waits and comes first might not fit beside the incoming any more."""
        sizes = [
            item["size"]
            for item in (self.pods[uid] for uid in self.waiting(pod["resource"]))
            if item["priority"] >= pod["priority"]
            and any(available_on >= item["size"] for available_on in pod_counts)
        ]
        for size in set(sizes):
            places = sum(available_on // size for available_on in pod_counts) - math.ceil(
                pod["size"] / size
            )
            if places < sizes.count(size) + sum(item for item in sizes if item != size):
                return True
        return False

    def serving(self, resource: str) -> str | None:
        claims = [
            (pool["created"], name)
            for name, pool in self.pools.items()
            if pool["resource"] == resource
        ]
        return min(claims)[1] if claims else None

    def reservation_of(self, uid: str) -> dict[str, Any] | None:
        return next(
            (
                reservation
                for reservation in self.reservations.values()
                if reservation["uid"] == uid
            ),
            None,
        )

    def waiting(self, resource: str) -> list[str]:
        pods = [
            (-pod["priority"], pod["created"], pod["ns"], pod["name"], uid)
            for uid, pod in self.pods.items()
            if (pod["phase"], pod["resource"], pod["gated"]) == ("pending", resource, False)
            and self.reservation_of(uid) is None
        ]
        return [uid for *_, uid in sorted(pods)]

    def deadline(self, one: dict[str, Any]) -> float | None:
        if one["phase"] not in UNCOMMITTED:
            return None
        if one["phase"] == "confirmed":
            return float(one["expires"])
        return float(min(one["expires"], one["observe_by"]))

    def next_deadline(self) -> float | None:
        deadlines = [self.deadline(reservation) for reservation in self.reservations.values()]
        return min((item for item in deadlines if item is not None), default=None)

    def expire(self, now: float) -> set[str]:
        over = set()
        for id_, item in list(self.reservations.items()):
            deadline = self.deadline(item)
            if deadline is not None and deadline <= now:
                del self.reservations[id_]
                if item["node"] is not None:
                    over.add(id_)
                    if item["phase"] in UNCONFIRMED and item["observe_by"] < item["expires"]:
                        self.note_absence(item, now)
        return over

    def note_absence(self, one: dict[str, Any], now: float) -> None:
        count, _ = self.absences.get((one["pool"], one["ns"]), (0, 0.0))
        self.absences[one["pool"], one["ns"]] = count + 1, now + min(60, 2**count)

    def take_over(self, units: list[str], own: str, now: float) -> None:
        """End what nobody has seen and has any of these units."""
        for id_, item in sorted(self.reservations.items()):
            if id_ == own or item["phase"] not in UNCONFIRMED:
                continue
            if any(
                self.slots(device, owned) & self.slots(device, item["units"])
                for device, owned in self.owners(units)
            ):
                del self.reservations[id_]
                self.taken_over.append(id_)
                self.note_absence(item, now)

    def release_reservations(self, pool: str) -> set[str]:
        return self.release({"pool": pool})

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

    def is_reachable(self, one: dict[str, Any]) -> bool:
        """Say whether a pod which exists may be given just these units."""
        free = set()
        for device in self.devices_on(one["pool"], one["node"]):
            ids = self.units_of(device)
            free |= {ids[slot] for slot in self.reachable_slots(device)}
        return set(one["units"]) <= free

    def is_taken(self, one: dict[str, Any] | None) -> bool:
        """Say whether another client has a unit of a reservation: a bound pod, or another reservation."""
        return one is not None and any(
            self.slots(device, owned)
            & (self.observed_slots(device) | self.confirmed_slots(device, {one["id"]}))
            for device, owned in self.owners(one["units"])
        )

    def observe(self, pod: dict[str, Any], now: float, utc: float) -> set[str]:
        """Take over a pod; return the reservations with units that this ends."""
        uid, before = pod["uid"], self.pods.get(pod["uid"])
        if before is not None and RANK[before["phase"]] > RANK[pod["phase"]]:
            return set()
        self.pods[uid] = pod
        if before is None or before["nominated"] != pod["nominated"]:
            self.nominated_at[uid] = now
        self.left.pop(uid, None)
        note = pod["note"]
        if before is None:
            self.absences.pop((self.serving(pod["resource"]) or "", pod["ns"]), None)
        own = self.own(pod)
        if pod["phase"] != "pending":
            return self.drop(own)
        if own is None and before is None and note is not None:
            self.restore(pod, note, now, utc)
        elif own is not None and own["phase"] in UNCOMMITTED:
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
            "ns": pod["ns"],
            "pool": pool,
            "node": note["node"],
            "devices": note["devices"],
            "units": units,
            "containers": pod["containers"],
            "phase": "confirmed",
            "expires": now + left,
            "observe_by": now,
        }
        if left > 0 and note["id"] not in self.reservations and self.is_reachable(one):
            self.take_over(units, note["id"], now)
            self.reservations[note["id"]] = one

    def discard(self, uid: str) -> set[str]:
        pod = self.pods.pop(uid, None)
        is_bound = pod is not None and pod["phase"] == "bound"
        if pod is not None and is_bound and uid in self.reports.get(pod["node"], {}):
            self.left[uid] = pod
        return self.drop(self.own(pod) if pod is not None else self.reservation_of(uid))

    def own(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """The reservation of an observed pod: its own, or the one in its note that nobody tied yet."""
        own = self.reservation_of(pod["uid"])
        if own is None and pod["note"] is not None:
            noted = self.reservations.get(pod["note"]["id"])
            return noted if noted is not None and noted["uid"] is None else None
        return own

    def fits_without(
        self, victims: set[str], node: str, pool: str, units: int, uid: str | None
    ) -> bool:
        if self.pools[pool]["closed"]:
            return False
        gone = [self.reservation_of(victim) for victim in {*victims, *([uid] if uid else [])}]
        ids = {item["id"] for item in gone if item is not None}
        free = []
        for device in self.devices_on(pool, node):
            taken = self.observed_slots(device, victims) | self.confirmed_slots(device, ids)
            count = len(self.units_of(device)) - len(taken)
            free.append(count if self.is_usable(device) else 0)
        strangers = self.unaccounted(self.pools[pool]["resource"], node).keys() - victims
        if sum(free) < units or strangers:
            return False
        containers = [("c0", ContainerRole.MAIN, units)]
        return not self.is_constrained(pool) or self.fits(pool, node, free, containers)

    def allows(self, at: tuple[str, str], given: Any) -> bool:
        """Whether the units of each container, and the devices of all, are as the pool demands."""
        spec = self.pools[at[0]]
        devices = [device for device in self.devices_on(*at) if self.is_usable(device)]
        of = {unit: index for index, device in enumerate(devices) for unit in self.units_of(device)}
        if spec["placement"] == "SameDevice" and not all(
            naive_same_device.is_valid(tuple(of[unit] for unit in units), spec["slices"])
            for units in given.values()
        ):
            return False
        used = {of[unit] for units in given.values() for unit in units}
        return spec["topology"] != "Required" or self.is_aligned([devices[at] for at in used])


def distinct(containers: Any) -> int:
    """Units that the containers occupy; later ones have those of init containers first."""
    total = handed_on = 0
    for role, units in containers:
        reused = min(handed_on, units)
        total += units - reused
        handed_on = max(handed_on, units) if role is ContainerRole.INIT else handed_on - reused
    return total
