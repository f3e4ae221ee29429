"""What containers really got, as the agent of their node reports it, beside what their pod was bound with.

kubelet has the last word. What it reports for a pod's uid is what the pod has; what it does not report (not
yet, no agent, other software on the node) is taken to be as the annotation promised.

kubelet lists main containers and sidecars, and no plain init container, whose units stay the pod's all its
life. Where the others ask for as many, they have the init containers' units among their own; where they ask
for fewer, kubelet gives them some of these at random and keeps the rest. So the pod has its report, and of
the units that were promised and are not reported as many as its demand still lacks. Which of them an init
container has is certain while kubelet keeps to the annotation, and a guess of the right size where it does not.
"""

from typing import TYPE_CHECKING, final

import msgspec

from api.names import UnitId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, KeysView, Mapping

    from api.kinds.gpunodeinventory import ContainerDevices
    from api.names import NodeName, PodUid, PoolName
    from pool.index.device_index import DeviceIndex
    from pool.model import PodFacts

    PodReport = tuple[ContainerDevices, ...]
    """What a node says of one pod."""


class ActualAllocation(msgspec.Struct, frozen=True):
    """What a bound pod has."""

    units: tuple[UnitId, ...]
    missing: "Mapping[tuple[str, NodeName], int]"
    """Units of which nobody knows which they are, by resource and node."""
    unassigned: tuple[UnitId, ...] = ()
    """Those of its units that it was not bound with; none for a pod that was bound without any word."""
    foreign: tuple[UnitId, ...] = ()
    """Reported, and ignored: they are of no card on the node."""


class AllocationMismatch(msgspec.Struct, frozen=True):
    """A pod whose node reports something else than it was bound with; told once for each of the two."""

    pod: "PodFacts"
    pool: "PoolName | None"
    """Which serves the pod's resource."""
    unassigned: tuple[UnitId, ...]
    foreign: tuple[UnitId, ...]


def from_annotation(pod: "PodFacts", node: "NodeName") -> ActualAllocation:
    """Return what a bound pod has where its node does not say."""
    units = _distinct(pod.devices.values() if pod.devices is not None else ())
    asked = pod.astray or ((pod.demand.resource, pod.demand.units - len(units)),)
    return ActualAllocation(
        units, {(resource, node): count for resource, count in asked if count > 0}
    )


def from_report(
    pod: "PodFacts", node: "NodeName", report: "PodReport", *, is_here: "Callable[[UnitId], bool]"
) -> ActualAllocation:
    """Return what a bound pod has by its node's word; `is_here` says whether a unit's card is on the node.

    Of another resource than the pod asked of us nothing is taken.
    """
    counted = _counted(pod)
    given: dict[str, tuple[UnitId, ...]] = {}
    foreign: list[UnitId] = []
    told: set[str] = set()
    for entry in report:
        if entry.resource not in counted:
            continue
        here = tuple(unit for unit in map(UnitId, entry.units) if is_here(unit))
        foreign += (unit for unit in map(UnitId, entry.units) if unit not in here)
        if here:
            told.add(entry.container)
            given[entry.resource] = _distinct((given.get(entry.resource, ()), here))
    if not given:
        return msgspec.structs.replace(from_annotation(pod, node), foreign=_distinct((foreign,)))
    units = _distinct(given.values())
    promised = _distinct(pod.devices.values()) if pod.devices is not None else ()
    lacking = pod.demand.units - len(units)
    rest = _rest(pod, units, told=told, lacking=lacking) if promised else ()
    missing = {
        (resource, node): count
        for resource, asked in counted.items()
        if (count := asked - len(given.get(resource, ())) - len(rest)) > 0
    }
    return ActualAllocation(
        units + rest,
        missing,
        unassigned=tuple(unit for unit in units if unit not in promised) if promised else (),
        foreign=_distinct((foreign,)),
    )


def reported_units(
    pod: "PodFacts", report: "PodReport", *, is_here: "Callable[[UnitId], bool]"
) -> tuple[UnitId, ...]:
    """Return what a pod has by its node's word alone, as `from_report` reads it."""
    counted = _counted(pod)
    return _distinct(
        [unit for unit in map(UnitId, entry.units) if is_here(unit)]
        for entry in report
        if entry.resource in counted
    )


def _counted(pod: "PodFacts") -> dict[str, int]:
    """Return the resources of which a node's word counts, with the units that the pod asked for."""
    return dict(pod.astray) or {pod.demand.resource: pod.demand.units}


def _rest(
    pod: "PodFacts", units: "Collection[UnitId]", *, told: "Collection[str]", lacking: int
) -> tuple[UnitId, ...]:
    """Return so many of the promised units besides these, those of containers that were not told of first."""
    if lacking <= 0 or pod.devices is None:
        return ()
    devices = pod.devices
    silent = [devices[name] for name in devices if name not in told]
    promised = _distinct((*silent, *devices.values()))
    return tuple(unit for unit in promised if unit not in units)[:lacking]


def _distinct(some: "Iterable[Iterable[UnitId]]") -> tuple[UnitId, ...]:
    return tuple(dict.fromkeys(unit for units in some for unit in units))


@final
class NodeReports:
    """What nodes report of pods, whether these are known or not; as much as their inventories hold."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, dict[PodUid, PodReport]] = {}

    def __len__(self) -> int:
        """Return how many nodes report anything."""
        return len(self._by_node)

    def replace(self, node: "NodeName", reports: "Mapping[PodUid, PodReport]") -> "list[PodUid]":
        """Make these all that the node reports; return the pods of which it says something else now."""
        before = self._by_node.get(node, {})
        gone = [uid for uid in before if uid not in reports]
        changed = [uid for uid, report in reports.items() if before.get(uid) != report]
        if reports:
            self._by_node[node] = dict(reports)
        else:
            self._by_node.pop(node, None)
        return gone + changed

    def of(self, node: "NodeName", uid: "PodUid") -> "PodReport | None":
        """Return what a node says of a pod: only of what runs there is it believed."""
        reports = self._by_node.get(node)
        return reports.get(uid) if reports is not None else None

    def on(self, node: "NodeName") -> "KeysView[PodUid]":
        """Return the pods of which a node says something. Read it, don't keep it."""
        return self._by_node.get(node, {}).keys()


@final
class AllocationMismatches:
    """Tells once of each pod whose node gave it something else, and once of each with units from nowhere."""

    def __init__(self, on_found: "Callable[[AllocationMismatch], None] | None") -> None:
        self._on_found = on_found
        self._told: dict[PodUid, tuple[bool, bool]] = {}
        # pod -> whether unassigned units, and foreign ones, were told

    def __len__(self) -> int:
        """Return of how many pods something was told."""
        return len(self._told)

    def judge(self, pod: "PodFacts", actual: ActualAllocation, index: "DeviceIndex") -> None:
        """Look at what is believed of a bound pod."""
        if not actual.unassigned and not actual.foreign:
            return
        moved, strayed = self._told.get(pod.uid, (False, False))
        unassigned = () if moved else actual.unassigned
        foreign = () if strayed else actual.foreign
        if not unassigned and not foreign:
            return
        self._told[pod.uid] = (moved or bool(unassigned), strayed or bool(foreign))
        if self._on_found is not None:
            pool = index.pool_of(pod.demand.resource)
            self._on_found(
                AllocationMismatch(pod, pool.name if pool else None, unassigned, foreign)
            )

    def forget(self, uid: "PodUid") -> None:
        """Forget a pod that ended."""
        self._told.pop(uid, None)
