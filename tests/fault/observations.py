"""What the API server showed, as far as the oracle judges it: read from JSON, and from nothing of ours."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.fault.upgrades.upgrade_observations import (
    DEVICE_LABEL,
    GUARDED,
    DriverPod,
    DriverSet,
    Policy,
    UpgradeMarks,
    driver_pod_of,
    driver_set_of,
    marks_of,
    policy_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "gpu.deckhouse.io/"
DEVICES_KEY: Final = f"{PREFIX}devices"
ASSIGNMENT_KEY: Final = f"{PREFIX}assignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that asks for units of a pool."""

    name: str
    uid: str
    pool: str
    asked: "Mapping[str, int]"
    """Main container -> units."""
    asked_first: "Mapping[str, int]" = field(default_factory=dict)
    """Init container -> units; they are used again by what comes later."""
    node: str = ""
    phase: str = "Pending"
    is_gated: bool = False
    """Another client's gate keeps it; one of ours is for us to take away."""
    is_deleted: bool = False
    """Deletion was asked for; until it is gone it is there."""
    devices: str = ""
    """The annotation, as it is."""
    is_guarded: bool = False
    """A disruption budget is for it."""
    disrupted: str = ""
    """Why Kubernetes ended it: the reason of its condition DisruptionTarget; empty for one that a client deleted."""

    @property
    def is_live(self) -> bool:
        """Say whether its devices are its own."""
        return bool(self.node) and self.phase not in {"Succeeded", "Failed"}

    @property
    def units(self) -> frozenset[str]:
        """Return the units that the annotation names; none where it cannot be read."""
        return frozenset(unit for units in self.given.values() for unit in units)

    @property
    def given(self) -> dict[str, list[str]]:
        """Return container -> units of the annotation; empty where it cannot be read."""
        try:
            given = json.loads(self.devices)
        except ValueError:
            return {}
        is_readable = isinstance(given, dict) and all(
            isinstance(units, list) and all(isinstance(unit, str) for unit in units)
            for units in given.values()
        )
        return given if is_readable else {}

    @property
    def least_units(self) -> int:
        """Return how many distinct units it needs at least."""
        return max([sum(self.asked.values()), *self.asked_first.values()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPUDevice."""

    name: str
    node: str
    uuid: str
    pool: str
    assigned: str = ""
    """The pool that the operator wants it in."""
    is_faulty: bool = False
    reported: "tuple[int, int, int]" = (0, 0, 0)
    """units.capacity, reserved, allocated of its status."""
    state: str = ""

    @property
    def is_leaving(self) -> bool:
        """Say whether its pool is not the one that it is meant for: nothing is placed on it any more."""
        return bool(self.pool) and self.assigned not in {"", self.pool}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A GPUPool."""

    name: str
    slices: int = 0
    """Of each device; 0 for whole devices."""
    reported: "Mapping[str, int]" = field(default_factory=dict)
    """capacity of its status."""
    most_nodes: int | None = None
    """maxNodesPerHour; None for one that does not scale."""

    def units_of(self, device: Device) -> tuple[str, ...]:
        """Return the units of a device of this pool."""
        if device.pool != self.name or not device.uuid:
            return ()
        if not self.slices:
            return (device.uuid,)
        return tuple(f"{device.uuid}::{number}" for number in range(self.slices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node."""

    name: str
    is_open: bool = True
    """Ready, not cordoned, and not withheld."""
    offers: "Mapping[str, int]" = field(default_factory=dict)
    """pool -> units in status.allocatable, which is what kube-scheduler counts with."""
    upgrade: UpgradeMarks | None = None
    """None: Node Feature Discovery says of no device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A NodeClaim: a node that was bought."""

    name: str
    pool: str
    """Of the GPUPool, which has the name of its NodePool."""
    is_deleted: bool = False


ObservedObject = Pod | Device | Pool | Node | Claim | DriverPod | DriverSet | Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One event of a watch, or one item of a list."""

    at: float
    """Seconds since the run began."""
    version: int
    is_gone: bool
    subject: ObservedObject
    is_exact: bool = True
    """It happened at this version; what a list shows after a gap happened some time before."""


def observed_object(kind: str, item: "Mapping[str, Any]") -> ObservedObject | None:
    """Read an object; None for a pod that asks for no pool."""
    return _READERS[kind](item)


def _pod(item: "Mapping[str, Any]") -> Pod | None:
    spec, metadata = item["spec"], item["metadata"]
    main: dict[str, int] = {}
    first: dict[str, int] = {}
    pools = set()
    for containers, asked in ((spec["containers"], main), (spec.get("initContainers", []), first)):
        for container in containers:
            for key, amount in container.get("resources", {}).get("limits", {}).items():
                if key.startswith(PREFIX):
                    pools.add(key.removeprefix(PREFIX))
                    asked[container["name"]] = int(amount)
    if len(pools) != 1:
        return None
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        pool=pools.pop(),
        asked=main,
        asked_first=first,
        node=spec.get("nodeName", ""),
        phase=item.get("status", {}).get("phase", "Pending"),
        is_gated=any(
            not gate["name"].startswith(PREFIX) for gate in spec.get("schedulingGates") or ()
        ),
        is_deleted="deletionTimestamp" in metadata,
        devices=metadata.get("annotations", {}).get(DEVICES_KEY, ""),
        is_guarded=GUARDED in metadata.get("labels", {}),
        disrupted=_reason(item.get("status", {}), "DisruptionTarget"),
    )


def _device(item: "Mapping[str, Any]") -> Device:
    status = item.get("status", {})
    units = status.get("units", {})
    return Device(
        name=item["metadata"]["name"],
        node=status.get("nodeName", ""),
        uuid=status.get("uuid", ""),
        pool=(status.get("poolRef") or {}).get("name", ""),
        assigned=item["metadata"].get("annotations", {}).get(ASSIGNMENT_KEY, ""),
        is_faulty=_condition(status, "Healthy") == "False",
        reported=(units.get("capacity", 0), units.get("reserved", 0), units.get("allocated", 0)),
        state=status.get("state", ""),
    )


def _pool(item: "Mapping[str, Any]") -> Pool:
    allocation = item["spec"].get("allocation", {})
    is_sliced = allocation.get("mode") == "TimeSlice"
    return Pool(
        name=item["metadata"]["name"],
        slices=allocation["slicesPerDevice"] if is_sliced else 0,
        reported=item.get("status", {}).get("capacity", {}),
        most_nodes=(item["spec"].get("autoscaling") or {}).get("maxNodesPerHour"),
    )


def _claim(item: "Mapping[str, Any]") -> Claim:
    metadata = item["metadata"]
    return Claim(
        name=metadata["name"],
        pool=metadata.get("labels", {}).get("karpenter.sh/nodepool", ""),
        is_deleted="deletionTimestamp" in metadata,
    )


def _node(item: "Mapping[str, Any]") -> Node:
    status, metadata = item.get("status", {}), item["metadata"]
    is_ready = _condition(status, "Ready") == "True"
    marks = marks_of(item, is_ready=is_ready)
    return Node(
        name=metadata["name"],
        is_open=is_ready
        and not marks.is_cordoned
        and not marks.is_withheld
        and "deletionTimestamp" not in metadata
        and not any(entry["key"] in _CLOSING for entry in item["spec"].get("taints") or ()),
        offers={
            key.removeprefix(PREFIX): int(amount)
            for key, amount in status.get("allocatable", {}).items()
            if key.startswith(PREFIX)
        },
        upgrade=marks if DEVICE_LABEL in metadata.get("labels", {}) else None,
    )


def _condition(status: "Mapping[str, Any]", kind: str) -> str:
    return _field_of(status, kind, "status")


def _reason(status: "Mapping[str, Any]", kind: str) -> str:
    return _field_of(status, kind, "reason")


def _field_of(status: "Mapping[str, Any]", kind: str, field_name: str) -> str:
    """Return a field of the condition of that type; empty where there is none."""
    for condition in status.get("conditions", ()):
        if condition["type"] == kind:
            return str(condition.get(field_name, ""))
    return ""


_CLOSING: Final = frozenset({"karpenter.sh/disrupted", f"{PREFIX}agent-not-ready"})
"""Taints of a node that Karpenter is about to remove, and of one whose devices are not in their pool yet."""

_READERS: "Final[Mapping[str, Callable[[Mapping[str, Any]], ObservedObject | None]]]" = {
    "pods": _pod,
    "gpudevices": _device,
    "gpupools": _pool,
    "nodes": _node,
    "nodeclaims": _claim,
    "drivers": driver_pod_of,
    "driversets": driver_set_of,
    "policies": policy_of,
}
