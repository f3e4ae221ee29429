"""Claims of bound pods on the index: by the report of their node, or else by the devices that they were bound with.

A pod that was deleted before it ended keeps the units that its node reports, for as long as the node reports them.
`pool.allocation_state` says when; `pool.pods.reported` says which units.
"""

from typing import TYPE_CHECKING, final

from pool.model import PodPhase
from pool.pods.reported import AllocationMismatches, NodeReports, from_annotation, from_report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from api.names import NodeName, PodUid, UnitId
    from pool.index.device_index import DeviceIndex
    from pool.model import PodFacts
    from pool.pods.observed import ObservedPods
    from pool.pods.reported import AllocationMismatch, PodReport


@final
class PodClaims:
    """The only writer of the observed and unaccounted units of pods."""

    def __init__(
        self,
        index: "DeviceIndex",
        pods: "ObservedPods",
        on_mismatch: "Callable[[AllocationMismatch], None] | None",
    ) -> None:
        self.reports = NodeReports()
        self.mismatches = AllocationMismatches(on_mismatch)
        self.deleted: dict[PodUid, PodFacts] = {}
        """Pods that were deleted before they ended, and that their node still reports."""
        self._index = index
        self._pods = pods
        index.subscribe(self._reconsider_nodes)

    def is_reported(self, pod: "PodFacts") -> bool:
        """Say whether the node of a bound pod reports the pod's allocation."""
        return pod.node is not None and self.reports.of(pod.node, pod.uid) is not None

    def replace_reports(
        self, node: "NodeName", reports: "Mapping[PodUid, PodReport]"
    ) -> "list[PodFacts]":
        """Replace a node's report; return the bound pods whose report has changed."""
        changed = self.reports.replace(node, reports)
        for uid in changed:
            self._account_on(node, uid)
        return [facts for uid in changed if (facts := self._bound(uid)) is not None]

    def account(self, facts: "PodFacts", node: "NodeName") -> None:
        """Set a bound pod's claims to its node's report, or to the devices it was bound with."""
        report = self.reports.of(node, facts.uid)
        if report is None:
            actual = from_annotation(facts, node)
        else:
            actual = from_report(
                facts, node, report, is_here=lambda unit: self._index.devices.is_on(unit, node)
            )
        self._index.set_observed(facts.uid, actual.units)
        self._index.set_unaccounted(facts.uid, actual.missing)
        self._index.set_requests(facts.uid, node, facts.requests)
        self._index.peers.replace(facts.uid, node, facts.peer)
        self.mismatches.check(facts, actual, self._index)

    def end(self, uid: "PodUid") -> None:
        """End the claims of a pod."""
        self.mismatches.forget(uid)
        self._index.set_observed(uid, ())
        self._index.set_unaccounted(uid, {})
        self._index.set_requests(uid, None)
        self._index.peers.replace(uid, None, None)

    def keep_reported(self, facts: "PodFacts") -> None:
        """Let a pod that is gone keep what its node reports of it, if it was bound."""
        if facts.phase is PodPhase.BOUND and self.is_reported(facts):
            self.deleted[facts.uid] = facts
            self._account_deleted(facts)

    def forget_deleted(self, uid: "PodUid") -> None:
        """End what a deleted pod kept."""
        if self.deleted.pop(uid, None) is not None:
            self._index.set_observed(uid, ())

    def _reconsider_nodes(self, nodes: "Collection[NodeName]") -> None:
        """Recompute the claims of reported pods on nodes whose devices have changed."""
        if len(self._pods) == 0 and not self.deleted:
            return
        for node in nodes:
            for uid in self.reports.on(node):
                self._account_on(node, uid)

    def _account_on(self, node: "NodeName", uid: "PodUid") -> None:
        """Recompute the claims of a pod that the node reports, unless the pod is bound elsewhere."""
        deleted, facts = self.deleted.get(uid), self._bound(uid)
        if deleted is not None and deleted.node == node:
            self._account_deleted(deleted)
        if facts is not None and facts.node == node:
            self.account(facts, node)

    def _bound(self, uid: "PodUid") -> "PodFacts | None":
        facts = self._pods.get(uid)
        return facts if facts is not None and facts.phase is PodPhase.BOUND else None

    def _account_deleted(self, facts: "PodFacts") -> None:
        """Set a deleted pod's claims by its node's report, as a bound pod's, and drop it with the report."""
        node = facts.node
        report = self.reports.of(node, facts.uid) if node is not None else None
        if node is None or report is None:
            self.forget_deleted(facts.uid)
            return

        def is_here(unit: "UnitId") -> bool:
            return self._index.devices.is_on(unit, node)

        units = from_report(facts, node, report, is_here=is_here).units
        self._index.set_observed(facts.uid, tuple(filter(is_here, units)))
