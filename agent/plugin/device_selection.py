"""Selects the units of a container: the assigned ones, or the best substitutes.

Units of live pods are never selected. Units that are assigned to containers without units yet come last. Where
too few are left the selection is refused, and kubelet rejects the pod.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from api.kinds.gpupool import SlicePlacement
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
    """The units that the pod was bound with."""

    units: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SubstitutedUnits:
    """Some of the assigned units cannot be allocated."""

    units: tuple[str, ...]
    missing: tuple[str, ...]
    given: tuple[str, ...]
    why: str


@final
@dataclass(frozen=True, slots=True)
class UnassignedUnits:
    """The container has no assigned units, or is not identified."""

    units: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class SelectionRefused:
    """Too few units can be allocated without sharing."""

    text: str


UnitSelection = AssignedUnits | SubstitutedUnits | UnassignedUnits | SelectionRefused


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableUnits:
    """The units of a resource and their holders at one moment."""

    resource: str
    units: "Mapping[str, Unit]"
    """All advertised units, by id."""
    held_by: "HeldBy"
    reserved: "Collection[str]" = ()
    """Assigned to other containers that have no units yet."""
    of_pod: "Collection[str]" = ()
    """Assigned to any container of the pod."""
    slice_placement: SlicePlacement = SlicePlacement.DISTINCT_DEVICES


def select(
    request: "ContainerPreferredAllocationRequest",
    allocatable: AllocatableUnits,
    assigned: "Sequence[str] | None",
) -> UnitSelection:
    """Select the units of one container; deterministic.

    Args:
        request: kubelet's; unknown and duplicate ids are passed over.
        allocatable: the units to select from.
        assigned: the container's units in the annotation; None where it has none.
    """
    must = [
        unit for unit in dict.fromkeys(request.must_include_deviceIDs) if unit in allocatable.units
    ]
    shared = {item: holder for item in must if (holder := allocatable.held_by(item))}
    if shared:
        return SelectionRefused(f"{allocatable.resource}: {_pairs(shared)}")
    whole = _whole_assignment(request, allocatable, assigned)
    if whole is not None:
        return whole
    draft = _Draft(request, allocatable, must)
    preferred = [unit for unit in dict.fromkeys(assigned or ()) if unit not in must]
    match allocatable.slice_placement:
        case SlicePlacement.SAME_DEVICE:
            draft.fill_device_by_device(preferred)
        case (
            SlicePlacement.DISTINCT_DEVICES
        ):  # pragma: no branch  # mypy proves that none is missing
            draft.take_assigned(preferred)
            draft.fill()
    if draft.shortfall > 0:
        return SelectionRefused(draft.refusal())
    units = tuple(draft.chosen)
    if not assigned:
        return UnassignedUnits(units)
    # kubelet gave an init container's units to other containers of the pod than the annotation: the pod has its own.
    swapped = [unit for unit in must if unit in allocatable.of_pod and unit not in assigned]
    given = tuple(unit for unit in units if unit not in assigned and unit not in swapped)
    if not given:
        return AssignedUnits(units)
    missing = [unit for unit in assigned if unit not in units]
    elsewhere = [unit for unit in missing if unit not in request.available_deviceIDs]
    lost = tuple(unit for unit in missing if unit not in elsewhere[: len(swapped)])
    return SubstitutedUnits(units, lost, given, draft.why_not(lost))


def _whole_assignment(
    request: "ContainerPreferredAllocationRequest",
    allocatable: AllocatableUnits,
    assigned: "Sequence[str] | None",
) -> AssignedUnits | None:
    """Return the assigned units where all of them are free: the usual case, without ranking the rest."""
    units = tuple(dict.fromkeys((*request.must_include_deviceIDs, *(assigned or ()))))
    if (
        not assigned
        or len(units) != request.allocation_size
        or len(set(assigned)) != request.allocation_size
    ):
        return None
    is_free = set(units) <= set(request.available_deviceIDs) and all(
        (unit := allocatable.units.get(item)) is not None
        and unit.is_healthy
        and not allocatable.held_by(item)
        for item in units
    )
    return AssignedUnits(units) if is_free else None


@final
@dataclass(slots=True)
class _Draft:
    """A selection in progress."""

    request: "ContainerPreferredAllocationRequest"
    allocatable: AllocatableUnits
    chosen: list[str]
    free: set[str] = field(init=False)
    """Available to kubelet, healthy, and held by no live pod."""
    moved: dict[str, str] = field(default_factory=dict)
    """Device of a missing unit -> the device of its substitute."""
    left: Counter[str] = field(init=False)
    """Device -> number of free units."""
    used: Counter[str] = field(init=False)
    """Device -> number of chosen units."""

    def __post_init__(self) -> None:
        self.free = {
            deviceID
            for deviceID in self.request.available_deviceIDs
            if (unit := self.allocatable.units.get(deviceID)) is not None
            and unit.is_healthy
            and not self.allocatable.held_by(deviceID)
        } - set(self.chosen)
        self.left = Counter(map(self.device_of, self.free))
        self.used = Counter(map(self.device_of, self.chosen))

    @property
    def shortfall(self) -> int:
        return self.request.allocation_size - len(self.chosen)

    def device_of(self, unit_id: str) -> str:
        unit = self.allocatable.units.get(unit_id)
        return part_of(UnitId(unit_id)) if unit is None else unit.device

    def take(self, unit_id: str) -> None:
        self.chosen.append(unit_id)
        self.used[self.device_of(unit_id)] += 1
        if unit_id in self.free:
            self.free.discard(unit_id)
            self.left[self.device_of(unit_id)] -= 1

    def take_assigned(self, preferred: "Sequence[str]") -> None:
        """Take the free ones of the assigned units, and substitutes for the others."""
        for item in preferred:
            if item in self.free and self.shortfall:
                self.take(item)
        lost = [item for item in preferred if item not in self.chosen]
        for at, item in enumerate(lost):
            self.replace(item, lost[at + 1 :])

    def fill_device_by_device(self, preferred: "Collection[str]") -> None:
        """Take the lacking units from as few devices as possible; the assigned ones first on each.

        The rest of a container lies on one device if there is one with capacity for it, the fullest of them;
        reserved units are taken only where the others do not suffice.
        """
        for entry in (self.free - set(self.allocatable.reserved), self.free):
            by_device: dict[str, list[str]] = {}
            for item in sorted(entry & self.free):
                by_device.setdefault(self.device_of(item), []).append(item)
            while self.shortfall > 0 and by_device:
                device = min(
                    by_device, key=lambda item: self._device_rank(by_device[item], preferred)
                )
                units = sorted(by_device.pop(device), key=lambda item: item not in preferred)
                for unit in units[: self.shortfall]:
                    self.take(unit)

    def replace(self, lost: str, others: "Sequence[str]") -> None:
        """Take a substitute for a missing unit, on its device if possible, or near it.

        Units of one device move to one device, if there is one with capacity for them.
        """
        if self.shortfall <= 0 or not self.free:
            return
        unit = self.allocatable.units.get(lost)
        device = self.device_of(lost)
        target = _Target(
            devices=(device, self.moved.get(device)),
            on_device=1 + sum(self.device_of(other) == device for other in others),
            numa_node=self._numa_node() if unit is None else unit.numa_node,
        )
        best = min(self.free, key=lambda item: self._rank(item, target))
        self.moved[device] = self.device_of(best)
        self.take(best)

    def fill(self) -> None:
        """Take the lacking units: one of each device before a second of any."""
        while self.shortfall > 0 and self.free:
            target = _Target(numa_node=self._numa_node())
            self.take(min(self.free, key=lambda item: self._rank(item, target)))

    def refusal(self) -> str:
        """Return why the selection is refused."""
        advertised = len(self.allocatable.units)
        held = {
            deviceID: holder
            for deviceID in self.request.available_deviceIDs
            if (holder := self.allocatable.held_by(deviceID))
        }
        text = (
            f"{self.allocatable.resource}: {self.request.allocation_size} requested, and only"
            f" {len(self.chosen)} of {advertised} can be allocated without sharing"
        )
        return f"{text}: {_pairs(held)}" if held else text

    def why_not(self, missing: "Iterable[str]") -> str:
        """Return why assigned units are not selected."""
        reasons: dict[str, str] = {}
        for item in missing:
            holder = self.allocatable.held_by(item)
            unit = self.allocatable.units.get(item)
            if unit is None:
                reasons[item] = "is no longer advertised"
            elif holder:
                reasons[item] = f"is held by {holder}"
            elif not unit.is_healthy:
                reasons[item] = "is unhealthy"
            elif item not in self.request.available_deviceIDs:
                reasons[item] = "is in use"
            else:
                reasons[item] = "is replaced by a unit of an init container"
        return ", ".join(f"{item} {reason}" for item, reason in reasons.items())

    def _numa_node(self) -> int | None:
        nodes = Counter(
            unit.numa_node
            for item in self.chosen
            if (unit := self.allocatable.units.get(item)) is not None and unit.numa_node is not None
        )
        return min(nodes, key=lambda node: (-nodes[node], node), default=None)

    def _device_rank(
        self, units: "Sequence[str]", preferred: "Collection[str]"
    ) -> tuple[bool, int, int, bool, int, str]:
        """Return the sort key of a device by its free units; the best one comes first."""
        first = self.allocatable.units[units[0]]
        near = self._numa_node()
        return (
            not self.used[first.device],
            max(0, self.shortfall - len(units)),
            -sum(unit in preferred for unit in units),
            None not in {near, first.numa_node} and near != first.numa_node,
            len(units),
            first.device,
        )

    def _rank(self, unit_id: str, target: "_Target") -> tuple[bool, int, int, bool, int, str, str]:
        """Return the sort key; the best unit comes first."""
        unit = self.allocatable.units[unit_id]
        left = self.left[unit.device]
        is_far = (
            None not in {target.numa_node, unit.numa_node} and target.numa_node != unit.numa_node
        )
        return (
            unit_id in self.allocatable.reserved,
            # Slices of one device are one device to the container, so a further slice there ranks lower.
            target.devices.index(unit.device)
            if unit.device in target.devices
            else len(target.devices) + self.used[unit.device],
            max(0, target.on_device - left),
            is_far,
            left,
            unit.device,
            unit_id,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The properties of the best unit."""

    devices: tuple[str | None, ...] = ()
    """Devices in order of preference."""
    on_device: int = 1
    """Units that should be on one device."""
    numa_node: int | None = None


def _pairs(held: "Mapping[str, str]") -> str:
    return ", ".join(f"{item} is held by {holder}" for item, holder in sorted(held.items()))
