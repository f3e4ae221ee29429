"""Which units kubelet is told to take: those that were promised, or the best that can be had in their place.

Units of live pods are never among them. Units that are promised to others who have not got theirs yet are the
last to be taken. Where too few are left kubelet is told to reject the pod.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from api.names import UnitId
from api.units import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from agent.plugin.advertised import Unit
    from api.kubelet.proto.deviceplugin_pb2 import ContainerPreferredAllocationRequest

    HeldBy = Callable[[str], str | None]
    """Unit -> `namespace/name` of another live pod with which it would be shared."""


@final
@dataclass(frozen=True, slots=True)
class AssignedUnits:
    """What the pod was bound with."""

    units: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SubstitutedUnits:
    """Some of what was promised cannot be given."""

    units: tuple[str, ...]
    missing: tuple[str, ...]
    given: tuple[str, ...]
    why: str


@final
@dataclass(frozen=True, slots=True)
class UnassignedUnits:
    """Nothing was promised, as far as is known."""

    units: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SelectionRefused:
    """Too little can be given without sharing it."""

    text: str


Choice = AssignedUnits | SubstitutedUnits | UnassignedUnits | SelectionRefused


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableUnits:
    """What may be given out, as it is at one moment."""

    resource: str
    units: "Mapping[str, Unit]"
    """All that are offered, by id."""
    held_by: "HeldBy"
    reserved: "Collection[str]" = ()
    """Promised to others that have not got theirs yet."""


def choose(
    request: "ContainerPreferredAllocationRequest",
    pool: AllocatableUnits,
    promised: "Sequence[str] | None",
) -> Choice:
    """Return what one container is to get; deterministic.

    Args:
        request: kubelet's; ids that nobody offers are passed over, and so are doubles.
        pool: what there is.
        promised: to this container; None where nobody promised it anything.
    """
    must = [one for one in dict.fromkeys(request.must_include_deviceIDs) if one in pool.units]
    shared = {one: holder for one in must if (holder := pool.held_by(one))}
    if shared:
        return SelectionRefused(f"{pool.resource}: {_pairs(shared)}")
    whole = _whole_promise(request, pool, promised)
    if whole is not None:
        return whole
    fitting = _Fitting(request, pool, must)
    wanted = [one for one in dict.fromkeys(promised or ()) if one not in must]
    for one in wanted:
        if one in fitting.free and fitting.lacking:
            fitting.take(one)
    lost = [one for one in wanted if one not in fitting.chosen]
    for at, one in enumerate(lost):
        fitting.replace(one, lost[at + 1 :])
    fitting.fill()
    if fitting.lacking > 0:
        return SelectionRefused(fitting.refusal())
    units = tuple(fitting.chosen)
    if not promised:
        return UnassignedUnits(units)
    missing = tuple(one for one in promised if one not in units)
    given = tuple(one for one in units if one not in promised)
    if not missing and not given:
        return AssignedUnits(units)
    return SubstitutedUnits(units, missing, given, fitting.why_not(missing))


def _whole_promise(
    request: "ContainerPreferredAllocationRequest",
    pool: AllocatableUnits,
    promised: "Sequence[str] | None",
) -> AssignedUnits | None:
    """Return the promise where all of it can be given: by far most often, and without a look at the rest."""
    units = tuple(dict.fromkeys((*request.must_include_deviceIDs, *(promised or ()))))
    if (
        not promised
        or len(units) != request.allocation_size
        or len(set(promised)) != request.allocation_size
    ):
        return None
    is_free = set(units) <= set(request.available_deviceIDs) and all(
        (unit := pool.units.get(one)) is not None and unit.is_healthy and not pool.held_by(one)
        for one in units
    )
    return AssignedUnits(units) if is_free else None


@final
@dataclass(slots=True)
class _Fitting:
    """The choice while it is being made."""

    request: "ContainerPreferredAllocationRequest"
    pool: AllocatableUnits
    chosen: list[str]
    free: set[str] = field(init=False)
    """What kubelet has to give, and may be given: healthy, and held by no live pod."""
    moved: dict[str, str] = field(default_factory=dict)
    """Card of a unit that was lost -> the card that stands in for it."""
    left: Counter[str] = field(init=False)
    """Card -> free units."""
    used: Counter[str] = field(init=False)
    """Card -> chosen units."""

    def __post_init__(self) -> None:
        self.free = {
            one
            for one in self.request.available_deviceIDs
            if (unit := self.pool.units.get(one)) is not None
            and unit.is_healthy
            and not self.pool.held_by(one)
        } - set(self.chosen)
        self.left = Counter(map(self.device_of, self.free))
        self.used = Counter(map(self.device_of, self.chosen))

    @property
    def lacking(self) -> int:
        return self.request.allocation_size - len(self.chosen)

    def device_of(self, one: str) -> str:
        unit = self.pool.units.get(one)
        return part_of(UnitId(one)) if unit is None else unit.device

    def take(self, one: str) -> None:
        self.chosen.append(one)
        self.used[self.device_of(one)] += 1
        if one in self.free:
            self.free.discard(one)
            self.left[self.device_of(one)] -= 1

    def replace(self, lost: str, others: "Sequence[str]") -> None:
        """Take another in place of one that is lost, on its card if possible, or near it.

        Those of one card move to one card, if there is one with room for them.
        """
        if self.lacking <= 0 or not self.free:
            return
        unit = self.pool.units.get(lost)
        device = self.device_of(lost)
        look = _Look(
            devices=(device, self.moved.get(device)),
            room=1 + sum(self.device_of(other) == device for other in others),
            numa_node=self._numa_node() if unit is None else unit.numa_node,
        )
        best = min(self.free, key=lambda one: self._rank(one, look))
        self.moved[device] = self.device_of(best)
        self.take(best)

    def fill(self) -> None:
        """Take what is lacking: one of each card before a second of any."""
        while self.lacking > 0 and self.free:
            look = _Look(numa_node=self._numa_node())
            self.take(min(self.free, key=lambda one: self._rank(one, look)))

    def refusal(self) -> str:
        """Say why there is not enough."""
        offered = len(self.pool.units)
        held = {
            one: holder
            for one in self.request.available_deviceIDs
            if (holder := self.pool.held_by(one))
        }
        text = (
            f"{self.pool.resource}: {self.request.allocation_size} wanted, and only {len(self.chosen)} of"
            f" {offered} can be given without sharing them"
        )
        return f"{text}: {_pairs(held)}" if held else text

    def why_not(self, missing: "Iterable[str]") -> str:
        """Say what became of units that were promised."""
        reasons: dict[str, str] = {}
        for one in missing:
            holder = self.pool.held_by(one)
            unit = self.pool.units.get(one)
            if unit is None:
                reasons[one] = "is not there any more"
            elif holder:
                reasons[one] = f"is held by {holder}"
            elif not unit.is_healthy:
                reasons[one] = "is unhealthy"
            elif one not in self.request.available_deviceIDs:
                reasons[one] = "is in use"
            else:
                reasons[one] = "gives way to what an init container has"
        return ", ".join(f"{one} {reason}" for one, reason in reasons.items())

    def _numa_node(self) -> int | None:
        nodes = Counter(
            unit.numa_node
            for one in self.chosen
            if (unit := self.pool.units.get(one)) is not None and unit.numa_node is not None
        )
        return min(nodes, key=lambda node: (-nodes[node], node), default=None)

    def _rank(self, one: str, look: "_Look") -> tuple[bool, int, int, bool, int, str, str]:
        """Return what is least for the best."""
        unit = self.pool.units[one]
        left = self.left[unit.device]
        is_far = None not in {look.numa_node, unit.numa_node} and look.numa_node != unit.numa_node
        return (
            one in self.pool.reserved,
            # Slices of one card are one card to the container, so each it has there makes it worse.
            look.devices.index(unit.device)
            if unit.device in look.devices
            else len(look.devices) + self.used[unit.device],
            max(0, look.room - left),
            is_far,
            left,
            unit.device,
            one,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What would be best."""

    devices: tuple[str | None, ...] = ()
    """Best first."""
    room: int = 1
    """Units that are to be on one card."""
    numa_node: int | None = None


def _pairs(held: "Mapping[str, str]") -> str:
    return ", ".join(f"{one} is held by {holder}" for one, holder in sorted(held.items()))
