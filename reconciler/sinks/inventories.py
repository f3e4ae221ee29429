"""`node.allocations`: what nodes report of their pods' units, into the books; and what is said of it.

It comes in the status of GPUNodeInventories, which this feed hands on to their store as well. A pod that
starts changes one entry of one of them; whoever follows inventories for another reason is not told of that.
Decisions are `pool.pods.reported`'s (docs/design/0007-actual-allocations.md).
"""

from typing import TYPE_CHECKING, Protocol, final

import msgspec
import structlog

from api.names import NodeName
from pool.facts import reports_of
from reconciler.runtime.batches import steps
from reconciler.runtime.store import Store
from reconciler.sinks.pods import BoundPodWarnings, check_alone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.kinds.gpunodeinventory import GPUNodeInventory
    from pool.allocation_state import AllocationState
    from pool.pods.reported import AllocationMismatch

_log = structlog.get_logger()


class MismatchWarnings(Protocol):
    """Writes an Event about a bound pod in the background, and counts it."""

    def warn_mismatch(self, found: "AllocationMismatch") -> None:
        """Say of a bound pod that it has units which it was not bound with. Never blocks, never raises."""


@final
class Mismatches:
    """Told by the books, in the middle of a transition, so it only records."""

    def __init__(self, warnings: MismatchWarnings) -> None:
        self._warnings = warnings

    def __call__(self, found: "AllocationMismatch") -> None:
        """Record what was found of a pod."""
        pod = found.pod
        if found.foreign:
            _log.warning(
                "report ignored: no card of the node has these units",
                pod=pod.ref,
                uid=pod.uid,
                node=pod.node,
                units=found.foreign,
            )
        if found.unassigned:
            _log.warning(
                "pod has other units than it was bound with",
                pod=pod.ref,
                uid=pod.uid,
                node=pod.node,
                units=found.unassigned,
                promised=pod.devices,
            )
            self._warnings.warn_mismatch(found)


@final
class InventorySink:
    """Keeps a store of GPUNodeInventories and the books' reports equal to the API server's."""

    def __init__(
        self, allocation_state: "AllocationState", warnings: BoundPodWarnings | None = None
    ) -> None:
        """Take the books, and who is told of pods that were given one unit."""
        self.store: Store[GPUNodeInventory] = Store()
        """The whole objects; told of a change after the books, and not of one of reports alone."""
        self._allocation_state = allocation_state
        self._warnings = warnings

    def replace_all(self, items: "Sequence[GPUNodeInventory]") -> None:
        """Take over a full list: inventories that are not in it are gone, and so is what they reported."""
        for _ in self.replacing(items):
            pass

    def replacing(self, items: "Sequence[GPUNodeInventory]") -> "Iterator[None]":
        """Take over a full list in steps, what is gone first."""
        names = {item.metadata.name for item in items}
        for gone in steps(sorted(self.store.by_name.keys() - names)):
            for name in gone:
                self.discard(self.store.by_name[name])
            yield
        for some in steps(items):
            for item in some:
                self.upsert(item)
            yield

    def upsert(self, item: "GPUNodeInventory") -> None:
        """Take over an inventory that is new or changed."""
        name = item.metadata.name
        before = self.store.by_name.get(name)
        said = before.status.allocations if before is not None else None
        if (said or []) == (item.status.allocations or []):
            self.store.upsert(item)
            return
        self._observe(NodeName(name), item)
        if before is not None and _differ_in_reports_alone(before, item):
            self.store.by_name[name] = item
        else:
            self.store.upsert(item)

    def discard(self, item: "GPUNodeInventory") -> None:
        """Forget an inventory, and what it reported."""
        self._allocation_state.observe_reports(NodeName(item.metadata.name), {})
        self.store.discard(item)

    def _observe(self, node: NodeName, item: "GPUNodeInventory") -> None:
        reports = reports_of(item)
        for pod in self._allocation_state.observe_reports(node, reports):
            if pod.node == node:
                check_alone(self._allocation_state.reader, pod, self._warnings)
            elif pod.uid in reports:
                _log.warning(
                    "report ignored: the pod runs on another node",
                    pod=pod.ref,
                    uid=pod.uid,
                    node=pod.node,
                    reported_by=node,
                )


def _differ_in_reports_alone(before: "GPUNodeInventory", item: "GPUNodeInventory") -> bool:
    """Say whether nothing differs but what is reported, and the version with it."""
    version, said = before.metadata.resource_version, before.status.allocations
    replace = msgspec.structs.replace
    return before == replace(
        item,
        metadata=replace(item.metadata, resource_version=version),
        status=replace(item.status, allocations=said),
    )
