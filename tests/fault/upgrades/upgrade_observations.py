"""What the API server showed of upgrades, read from JSON: driver pods, the policy, and marks on nodes."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_LABEL: Final = "nvidia.com/gpu-driver-upgrade-state"
WITHHELD: Final = "gpu.deckhouse.io/units-withheld-by"
ADMIN: Final = "example.test/admin"
"""Annotation of a node that a user cordoned or uncordoned himself: the run writes it with the cordon."""
CORDONED, UNCORDONED = "cordoned", "uncordoned"
GUARDED: Final = "example.test/guarded"
"""Label of pods that a disruption budget guards, and that no step deletes."""
GUARDED_PODS: Final = "guarded"
"""Their names begin with it."""
DEVICE_LABEL: Final = "feature.node.kubernetes.io/pci-10de.present"
"""Of nodes with a device, as Node Feature Discovery says."""
DRIVERS: Final = "app.kubernetes.io/component=nvidia-driver"
"""Selects driver pods."""

REQUIRED, DONE, FAILED = "upgrade-required", "upgrade-done", "upgrade-failed"
IN_PROGRESS: Final = frozenset(
    {
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeMarks:
    """The part of a Node that is about its upgrade."""

    state: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    is_withheld: bool = False
    admin: str = ""
    """What a user did to the node himself, last."""

    @property
    def is_in_progress(self) -> bool:
        return self.state in IN_PROGRESS

    @property
    def is_closed_by_others(self) -> bool:
        return not self.is_ready or (self.is_cordoned and self.admin == CORDONED)

    @property
    def is_away_by_upgrade(self) -> bool:
        is_cordoned = self.is_cordoned and self.admin != CORDONED
        return self.is_in_progress or self.is_withheld or is_cordoned

    @property
    def is_away(self) -> bool:
        return self.is_closed_by_others or self.is_away_by_upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """A pod of the driver's DaemonSet."""

    name: str
    uid: str
    node: str = ""
    version: str = ""
    is_deleted: bool = False
    is_ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSet:
    """A DaemonSet of drivers."""

    name: str
    owner: str = ""
    """The ClusterPolicy."""
    is_deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The ClusterPolicy."""

    name: str
    version: str = ""
    """Of the driver."""
    max_parallel: int = 1
    max_unavailable: int | str = "25%"
    upgrades: "Mapping[str, str]" = field(default_factory=dict)
    """Node -> its state, of status.upgrade."""

    @property
    def most_parallel(self) -> float:
        return self.max_parallel or math.inf

    def most_away(self, total: int) -> int:
        """Return how many of so many nodes may be away: a share is rounded up."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return math.ceil(int(self.max_unavailable.removesuffix("%")) * total / 100)


def marks_of(item: "Mapping[str, Any]", *, is_ready: bool) -> UpgradeMarks:
    metadata = item["metadata"]
    annotations = metadata.get("annotations", {})
    return UpgradeMarks(
        state=metadata.get("labels", {}).get(STATE_LABEL, ""),
        is_ready=is_ready,
        is_cordoned=item["spec"].get("unschedulable", False),
        is_withheld=WITHHELD in annotations,
        admin=annotations.get(ADMIN, ""),
    )


def driver_pod_of(item: "Mapping[str, Any]") -> DriverPod:
    metadata, spec = item["metadata"], item["spec"]
    tag = spec["containers"][0]["image"].rpartition(":")[2]
    return DriverPod(
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName", ""),
        version=tag.partition("-")[0],
        is_deleted="deletionTimestamp" in metadata,
        is_ready=any(
            (condition["type"], condition["status"]) == ("Ready", "True")
            for condition in item.get("status", {}).get("conditions") or ()
        ),
    )


def driver_set_of(item: "Mapping[str, Any]") -> DriverSet:
    metadata = item["metadata"]
    owners = [owner["name"] for owner in metadata.get("ownerReferences") or ()]
    return DriverSet(
        name=metadata["name"],
        owner=owners[0] if owners else "",
        is_deleted="deletionTimestamp" in metadata,
    )


def policy_of(item: "Mapping[str, Any]") -> Policy:
    driver = item["spec"]["driver"]
    terms = driver["upgradePolicy"]
    entries = item.get("status", {}).get("upgrade") or ()
    return Policy(
        name=item["metadata"]["name"],
        version=driver["version"],
        max_parallel=terms["maxParallelUpgrades"],
        max_unavailable=terms["maxUnavailable"],
        upgrades={entry["node"]: entry["state"] for entry in entries},
    )
