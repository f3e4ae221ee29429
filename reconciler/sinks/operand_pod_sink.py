"""`operand.index`: operand pods by node."""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from api.names import NodeName
from inventory.readiness.software import Operand, OperandFacts
from kube.batches import steps
from kube.event_source import EventSource
from kube.store import IndexedStore
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kube.unread_objects import UnreadObject
    from reconciler.sinks.operand_pod import OperandPod

RBAC: Final = (PolicyRule(resources=("pods",), verbs=("list", "watch")),)


@final
class OperandPodSink:
    """Operands' pods by node; the sink of an informer."""

    def __init__(self) -> None:
        self._store: IndexedStore[str, NodeName, OperandPod] = IndexedStore(
            lambda pod: pod.ref, lambda pod: pod.node
        )
        self._count: Counter[Operand] = Counter()
        self._store.changes.subscribe(self._publish)
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes whose operands changed."""
        self.presence: EventSource[Operand] = EventSource()
        """Operands of which the first pod came, or the last one went."""

    def facts(self, node: "NodeName") -> dict[Operand, OperandFacts]:
        """Return the facts of every operand on a node."""
        return {operand: self._facts_of(operand, node) for operand in Operand}

    def exporter(self, node: "NodeName") -> "OperandPod | None":
        """Return the node's DCGM exporter, if one is ready and has an address."""
        pod = self._best(Operand.DCGM_EXPORTER, node)
        return pod if pod is not None and pod.is_ready and pod.ip else None

    def replace_all(self, items: "Sequence[OperandPod]") -> None:
        """Take over a full list; pods that are not in it are removed."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[OperandPod]") -> "Iterator[None]":
        """Take over a full list in steps; removals come last, since an operand may only have moved."""
        for entry in steps(items):
            for item in entry:
                self.upsert(item)
            yield
        refs = {item.ref for item in items}
        for gone in steps(sorted(self._store.keys() - refs)):
            for ref in gone:
                self._remove(ref)
            yield

    def last_read(self, unread: "UnreadObject") -> "OperandPod | None":
        return self._store.get(f"{unread.namespace}/{unread.name}")

    def upsert(self, item: "OperandPod") -> None:
        before = self._store.get(item.ref)
        if before == item:
            return
        self._store.upsert(item)
        self._recount(item.operand, +1)
        if before is not None:
            self._recount(before.operand, -1)

    def discard(self, item: "OperandPod") -> None:
        self._remove(item.ref)

    def _remove(self, ref: str) -> None:
        before = self._store.get(ref)
        if before is not None:
            self._store.remove(ref)
            self._recount(before.operand, -1)

    def _publish(self, node: NodeName) -> None:
        if node:  # a pod that waits is on none
            self.changes.publish(node)

    def _recount(self, operand: Operand, change: int) -> None:
        before = self._count[operand]
        self._count[operand] = before + change
        if (before == 0) is not (before + change == 0):
            self.presence.publish(operand)

    def _best(self, operand: Operand, node: "NodeName") -> "OperandPod | None":
        """Return the node's pod of an operand: a ready one first, since a rollout may have two."""
        pods = [item for item in self._store.of(node).values() if item.operand is operand]
        return min(pods, key=lambda pod: (not pod.is_ready, pod.ref), default=None)

    def _facts_of(self, operand: Operand, node: "NodeName") -> OperandFacts:
        pod = self._best(operand, node)
        if pod is None:
            return OperandFacts(is_anywhere=self._count[operand] > 0)
        return OperandFacts(
            is_anywhere=True,
            is_on_node=True,
            is_ready=pod.is_ready,
            message=pod.message,
            passed=pod.passed,
        )
