"""How far the drivers' upgrades are, by owner: for the status of ClusterPolicies and NVIDIADrivers, of which `status` is the writer."""

from typing import TYPE_CHECKING, Final, final

from kube.event_source import EventSource
from operands.nvidia.driver_owners import owner_value
from operands.upgrade.cluster import CLUSTER_POLICY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.nvidia.operator_status import NodeUpgradeStatus
    from operands.upgrade.cluster import UpgradeCounts
    from reconciler.controller_spec import ControllerContext

MOST_ENTRIES: Final = 5_000
"""Most entries: as many as the schema of the status admits."""


@final
class UpgradeReports:
    """Entries of `status.upgrade`, and counts, as of the last pass."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[NodeUpgradeStatus, ...]] = {}
        # owner -> entries by node
        self.counts: Mapping[str, UpgradeCounts] = {}
        """Counts by owner; one without autoUpgrade has none but zeros."""
        self.is_known = False
        """Whether a pass has ended: before, a status stays as it is."""
        self.changes: EventSource[str] = EventSource()
        """Owners whose entries changed; `CLUSTER_POLICY` is the ClusterPolicy."""

    def entries(self, driver: str = CLUSTER_POLICY) -> "tuple[NodeUpgradeStatus, ...]":
        """Return `status.upgrade` of the ClusterPolicy, or of the NVIDIADriver of a name."""
        return self._entries.get(owner_value(driver) if driver else CLUSTER_POLICY, ())

    def by_node(self) -> "dict[str, NodeUpgradeStatus]":
        return {entry.node: entry for entries in self._entries.values() for entry in entries}

    def replace_all(
        self,
        entries: "Mapping[str, tuple[NodeUpgradeStatus, ...]]",
        counts: "Mapping[str, UpgradeCounts]",
    ) -> None:
        """Take over the outcome of a pass."""
        before, was_recorded = self._entries, self.is_known
        self._entries = {owner: item[:MOST_ENTRIES] for owner, item in entries.items() if item}
        self.counts = dict(counts)
        self.is_known = True
        for owner in sorted(before.keys() | self._entries.keys() | counts.keys()):
            if not was_recorded or before.get(owner) != self._entries.get(owner):
                self.changes.publish(owner)

    def seed(self, entries: "Mapping[str, tuple[NodeUpgradeStatus, ...]]") -> None:
        """Take over what an earlier leader wrote, so that no reason is reported twice."""
        self._entries = {owner: item for owner, item in entries.items() if item}


def upgrade_reports(_context: "ControllerContext") -> UpgradeReports:
    """Return the term's only store, by `ControllerContext.shared`."""
    return UpgradeReports()
