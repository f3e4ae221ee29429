"""CPU and memory that pods request on their nodes, and their number, whether they have units or not."""

from typing import TYPE_CHECKING, Final, final

import msgspec

from pool.compute_resources import NOTHING, ComputeResources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.names import NodeName, PodUid


class _NodeTotal(msgspec.Struct, gc=False):
    """Sums over the pods of one node."""

    entries: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = 0

    def add(self, requests: ComputeResources, sign: int) -> None:
        # Exact: the numbers are integers, and only requests that were added are subtracted.
        self.entries += sign
        self.cpu_milli += sign * requests.cpu_milli
        self.memory_mib += sign * requests.memory_mib
        self.pods += sign * requests.pods


@final
class NodeRequests:
    """Requests by pod, and their sums by node; nodes without devices are among them, since they may get some."""

    def __init__(self, *, is_whole: bool = True) -> None:
        self._by_pod: dict[PodUid, tuple[NodeName, ComputeResources]] = {}
        self._totals: dict[NodeName, _NodeTotal] = {}
        self.is_whole: Final = is_whole
        """Whether all pods of nodes are read; False: more of each node may be taken than is known here."""

    def replace(
        self, pod: "PodUid", node: "NodeName | None", requests: ComputeResources
    ) -> "set[NodeName]":
        """Set the node and requests of a pod, None to end them; return the nodes whose sums changed."""
        before = self._by_pod.get(pod)
        after = (node, requests) if node is not None and requests != NOTHING else None
        if before == after:
            return set()
        changed: set[NodeName] = set()
        if before is not None:
            changed.add(before[0])
            del self._by_pod[pod]
            total = self._totals[before[0]]
            total.add(before[1], -1)
            if not total.entries:
                del self._totals[before[0]]
        if after is not None:
            changed.add(after[0])
            self._by_pod[pod] = after
            self._totals.setdefault(after[0], _NodeTotal()).add(after[1], 1)
        return changed

    def on(self, node: "NodeName", *, without: "PodUid | None" = None) -> ComputeResources:
        """Return what the pods of a node request, one pod left out."""
        total = self._totals.get(node)
        if total is None:
            return NOTHING
        own = self._by_pod.get(without) if without is not None else None
        if own is None or own[0] != node:
            return ComputeResources(total.cpu_milli, total.memory_mib, total.pods)
        return ComputeResources(
            total.cpu_milli - own[1].cpu_milli,
            total.memory_mib - own[1].memory_mib,
            total.pods - own[1].pods,
        )

    def of(self, pod: "PodUid") -> "tuple[NodeName, ComputeResources] | None":
        """Return the node of a pod, and what the pod requests there."""
        return self._by_pod.get(pod)

    def pods(self) -> "Iterable[PodUid]":
        """Return the pods that request anything, to be read and not kept."""
        return self._by_pod.keys()
