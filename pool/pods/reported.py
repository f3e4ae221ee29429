"""Actual allocations as the node's agent reports them, beside the devices that pods were bound with.

kubelet decides. A pod has the units that kubelet reports for its uid. Without a report (not yet, no agent, other
software on the node) it has the devices of its annotation.

kubelet lists main containers and sidecars, but no plain init containers, whose units stay the pod's for its whole
life. Where the other containers ask for as many, their units include those of the init containers. Where they ask
for fewer, kubelet gives them some of these at random and keeps the rest. So the pod has its report, and as many of
the assigned, unreported units as its demand still lacks. The choice of these is exact while kubelet keeps to the
annotation, and a guess of the right size where it does not. An agent reports these units as the init containers',
computed by the same function; a pod that is gone for the API server keeps them, too.
"""

from typing import TYPE_CHECKING, final

import msgspec

from api.names import UnitId, owner_of
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, KeysView, Mapping

    from api.annotations import Devices
    from api.kinds.gpunodeinventory import ContainerDevices
    from api.names import NodeName, PodUid, PoolName
    from pool.index.figures import IndexFigures
    from pool.model import PodFacts

    PodReport = tuple[ContainerDevices, ...]
    """A node's report of one pod."""


class ActualAllocation(msgspec.Struct, frozen=True):
    """Units of a bound pod."""

    units: tuple[UnitId, ...]
    missing: "Mapping[tuple[str, NodeName], int]"
    """Number of unknown units, by resource and node."""
    unassigned: tuple[UnitId, ...] = ()
    """Units that the pod was not bound with; empty for a pod that was bound without an annotation."""
    foreign: tuple[UnitId, ...] = ()
    """Reported and ignored, since no device of the node has them."""


class AllocationMismatch(msgspec.Struct, frozen=True):
    """A pod whose node reports other units than it was bound with; emitted once for each of the two kinds."""

    pod: "PodFacts"
    pool: "PoolName | None"
    """The pool that serves the pod's resource."""
    unassigned: tuple[UnitId, ...]
    foreign: tuple[UnitId, ...]


def from_annotation(pod: "PodFacts", node: "NodeName") -> ActualAllocation:
    """Return the allocation of a bound pod without a report."""
    units = _distinct(pod.devices.values() if pod.devices is not None else ())
    asked = pod.inadmissible_units or ((pod.demand.resource, pod.demand.units - len(units)),)
    return ActualAllocation(
        units, {(resource, node): count for resource, count in asked if count > 0}
    )


def from_report(
    pod: "PodFacts", node: "NodeName", report: "PodReport", *, is_here: "Callable[[UnitId], bool]"
) -> ActualAllocation:
    """Return the allocation of a bound pod by its node's report.

    Units of resources that the pod did not ask for are ignored. `is_here` says whether a unit's device is on the node.
    """
    counted = _counted(pod)
    allocated: dict[str, tuple[UnitId, ...]] = {}
    foreign: list[UnitId] = []
    reported: set[str] = set()
    for entry in report:
        if entry.resource not in counted:
            continue
        here = tuple(unit for unit in map(UnitId, entry.units) if is_here(unit))
        foreign += (unit for unit in map(UnitId, entry.units) if unit not in here)
        if here:
            reported.add(entry.container)
            allocated[entry.resource] = _distinct((allocated.get(entry.resource, ()), here))
    if not allocated:
        return msgspec.structs.replace(from_annotation(pod, node), foreign=_distinct((foreign,)))
    units = _distinct(allocated.values())
    assigned = _distinct(pod.devices.values()) if pod.devices is not None else ()
    shortfall = pod.demand.units - len(units)
    remaining = unlisted_units(pod.devices or {}, units, reported=reported, shortfall=shortfall)
    missing = {
        (resource, node): count
        for resource, asked in counted.items()
        if (count := asked - len(allocated.get(resource, ())) - len(remaining)) > 0
    }
    return ActualAllocation(
        units + remaining,
        missing,
        unassigned=tuple(unit for unit in units if unit not in assigned) if assigned else (),
        foreign=_distinct((foreign,)),
    )


def is_complete(pod: "PodFacts", report: "PodReport | None") -> bool:
    """Say whether a report has every container whose units kubelet lists."""
    listed = {entry.container for entry in report or () if entry.resource == pod.demand.resource}
    return listed.issuperset(
        item.name for item in pod.demand.containers if item.role is not ContainerRole.INIT
    )


def _counted(pod: "PodFacts") -> dict[str, int]:
    """Return the resources whose report counts, with the units that the pod asked for."""
    return dict(pod.inadmissible_units) or {pod.demand.resource: pod.demand.units}


def unlisted_units(
    assigned: "Devices", units: "Collection[str]", *, reported: "Collection[str]", shortfall: int
) -> tuple[UnitId, ...]:
    """Return as many assigned units as a pod lacks besides those that kubelet listed.

    Args:
        assigned: the pod's annotation; units of unreported containers come first.
        units: those that kubelet listed.
        reported: containers that have them.
        shortfall: how many the pod asked for besides.
    """
    if shortfall <= 0:
        return ()
    silent = [assigned[name] for name in assigned if name not in reported]
    found = _distinct((*silent, *assigned.values()))
    return tuple(unit for unit in found if unit not in units)[:shortfall]


def _distinct(groups: "Iterable[Iterable[UnitId]]") -> tuple[UnitId, ...]:
    return tuple(dict.fromkeys(unit for units in groups for unit in units))


@final
class NodeReports:
    """Reports by node and pod, whether the pods are known or not; bounded by the nodes' inventories."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, dict[PodUid, PodReport]] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    def replace(self, node: "NodeName", reports: "Mapping[PodUid, PodReport]") -> "list[PodUid]":
        """Set the node's report; return the pods whose report changed."""
        before = self._by_node.get(node, {})
        gone = [uid for uid in before if uid not in reports]
        changed = [uid for uid, report in reports.items() if before.get(uid) != report]
        if reports:
            self._by_node[node] = dict(reports)
        else:
            self._by_node.pop(node, None)
        return gone + changed

    def of(self, node: "NodeName", uid: "PodUid") -> "PodReport | None":
        """Return a node's report of a pod; only the report of the pod's own node counts."""
        reports = self._by_node.get(node)
        return reports.get(uid) if reports is not None else None

    def on(self, node: "NodeName") -> "KeysView[PodUid]":
        """Return the pods that a node reports, to be read and not kept."""
        return self._by_node.get(node, {}).keys()


@final
class AllocationMismatches:
    """Emits each pod with unassigned units once, and each pod with foreign units once."""

    def __init__(self, on_found: "Callable[[AllocationMismatch], None] | None") -> None:
        self._on_found = on_found
        self._emitted: dict[PodUid, tuple[bool, bool]] = {}
        # pod -> whether unassigned units, and foreign ones, were reported

    def __len__(self) -> int:
        return len(self._emitted)

    def check(self, pod: "PodFacts", actual: ActualAllocation, index: "IndexFigures") -> None:
        if not actual.unassigned and not actual.foreign:
            return
        moved, strayed = self._emitted.get(pod.uid, (False, False))
        unassigned = () if moved else actual.unassigned
        foreign = () if strayed else actual.foreign
        if not unassigned and not foreign:
            return
        self._emitted[pod.uid] = (moved or bool(unassigned), strayed or bool(foreign))
        if self._on_found is not None:
            pool = index.pool_of(pod.demand.resource)
            self._on_found(
                AllocationMismatch(pod, owner_of(pool.name) if pool else None, unassigned, foreign)
            )

    def forget(self, uid: "PodUid") -> None:
        self._emitted.pop(uid, None)
