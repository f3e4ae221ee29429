"""A reservation: units set aside for one pod, from admission to the moment its binding is observed.

    HELD ─tie→ TIED ─observe→ CONFIRMED ─┐
      │          │                │      ├─commit→ COMMITTED ─written→ BOUND ─observe→ ended: bound
      └──────────┴────────────────┴──────┘             │
         not observed, expired, released               └─doubt→ DOUBTFUL ─resolved by read→ …

Before commit the deadline is the pool's TTL; from commit on there is none, because the API server
may have bound the pod: only the watch, or a read of the pod, ends it.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from api.annotations import Devices
    from api.clock import Instant
    from api.names import NodeName, PodUid, PoolName, ReservationId, UnitId
    from pool.model import Demand, PoolFacts
    from pool.peer_rules import Peer
    from pool.placement.planner import Placed

OBSERVE_WITHIN_S: Final = 5.0
"""How long after admission the watch may take to show the pod; the API server stores it within
milliseconds of the last webhook, so this covers a slow etcd and a watch that reconnects."""


class ReservationPhase(Enum):
    HELD = "held"
    """Made by the mutating webhook; the pod has no uid yet."""
    TIED = "tied"
    """The validating webhook saw the pod's final name and uid."""
    CONFIRMED = "confirmed"
    """The watch showed the pod."""
    COMMITTED = "committed"
    """The Binding was sent."""
    DOUBTFUL = "doubtful"
    """The Binding's answer never came; the API server may have bound the pod."""
    BOUND = "bound"
    """The API server accepted the Binding; the watch has not delivered it yet."""

    is_uncommitted: bool
    """Whether it may be released without asking the API server."""
    is_confirmed: bool
    """Whether the API server is known to have stored the pod. Before that, its units are kept from other pods at
    admission only: any pod that exists may take them over.
    """

    def __init__(self, name: str) -> None:
        # Kept with the member: it is asked at every step, and to hash a member takes longer.
        self.is_uncommitted = name in {"held", "tied", "confirmed"}
        self.is_confirmed = name not in {"held", "tied"}


class End(Enum):
    """How a reservation ended."""

    BOUND = "bound"
    EXPIRED = "expired"
    RELEASED = "released"
    """The pod ended, was deleted or is bound elsewhere, its Binding was refused, or admission was called again for a
    changed pod.
    """
    NOT_OBSERVED = "not_observed"
    """The pod did not appear: a quota, a name conflict or another webhook rejected it."""
    TAKEN_OVER = "taken_over"
    """The pod had not appeared yet, and a pod that exists needed the units; should it appear, it waits."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Units reserved for one pod; `node` and `devices` are empty where nothing could be reserved."""

    id: "ReservationId"
    pool: "PoolName"
    demand: "Demand"
    namespace: str
    name: str = ""
    """Empty until the pod has its final name."""
    uid: "PodUid | None" = None
    peer: "Peer | None" = None
    """The pod as rules of other pods select it; None where its labels are not read."""
    node: "NodeName | None" = None
    devices: "Devices"
    phase: ReservationPhase
    created_at: float
    """Clock.monotonic() seconds, as the two below."""
    expires_at: float
    observe_by: float
    """Time by which the watch must have shown the pod."""

    @property
    def units(self) -> "tuple[UnitId, ...]":
        """Distinct units of all containers, in the order in which they appear."""
        if len(self.devices) == 1:
            (units,) = self.devices.values()
            return units if len(units) == 1 else tuple(dict.fromkeys(units))
        return tuple(dict.fromkeys(unit for units in self.devices.values() for unit in units))

    @property
    def has_units(self) -> bool:
        """Whether units are reserved, or the pod was only admitted."""
        return self.node is not None

    @property
    def pod(self) -> str:
        """`namespace/name`, with `*` for a name not known yet."""
        return f"{self.namespace}/{self.name or '*'}"


class Ended(msgspec.Struct, frozen=True):
    """A reservation that ended, and how."""

    reservation: Reservation
    end: End


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is to get units: at admission, before it has a uid, or at bind."""

    id: "ReservationId"
    pool: "PoolFacts"
    demand: "Demand"
    namespace: str
    name: str = ""
    peer: "Peer | None" = None
    """The pod as rules of other pods select it, where it is not observed."""

    def reservation(
        self,
        placed: "Placed | None",
        now: "Instant",
        *,
        phase: ReservationPhase,
        uid: "PodUid | None" = None,
    ) -> Reservation:
        """Return the reservation of the planned units; without a plan, one that has none."""
        return Reservation(
            id=self.id,
            pool=self.pool.name,
            demand=self.demand,
            namespace=self.namespace,
            name=self.name,
            uid=uid,
            peer=self.peer,
            node=placed.node if placed else None,
            devices=placed.devices if placed else {},
            phase=phase,
            created_at=now.monotonic,
            expires_at=now.monotonic + self.pool.ttl_s,
            observe_by=now.monotonic + OBSERVE_WITHIN_S,
        )
