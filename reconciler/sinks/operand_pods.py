"""`operand.index`: operand pods by node."""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from inventory.readiness.software import Operand, OperandFacts
from manifests.install.rbac import PolicyRule
from reconciler.runtime.batches import steps
from reconciler.runtime.event_source import EventSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.names import NodeName
    from reconciler.sinks.operand_pod import OperandPod

RBAC: Final = (PolicyRule(resources=("pods",), verbs=("list", "watch")),)


@final
class OperandPodSink:
    """Operands' pods by node; the sink of an informer."""

    def __init__(self) -> None:
        self._by_ref: dict[str, OperandPod] = {}
        self._by_node: dict[NodeName, dict[str, OperandPod]] = {}
        self._count: Counter[Operand] = Counter()
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes whose operands changed."""
        self.presence: EventSource[Operand] = EventSource()
        """Operands of which the first pod came, or the last one went."""

    def sights(self, node: "NodeName") -> dict[Operand, OperandFacts]:
        """Return the facts of every operand on a node."""
        return {operand: self._sight(operand, node) for operand in Operand}

    def exporter(self, node: "NodeName") -> "OperandPod | None":
        """Return the node's DCGM exporter, if one is ready and has an address."""
        pod = self._best(Operand.DCGM_EXPORTER, node)
        return pod if pod is not None and pod.is_ready and pod.ip else None

    def replace_all(self, items: "Sequence[OperandPod]") -> None:
        """Take over a full list; pods that are not in it are removed."""
        for _ in self.replacing(items):
            pass

    def replacing(self, items: "Sequence[OperandPod]") -> "Iterator[None]":
        """Take over a full list in steps; removals come last, since an operand may only have moved."""
        for some in steps(items):
            for item in some:
                self.upsert(item)
            yield
        refs = {item.ref for item in items}
        for gone in steps(sorted(self._by_ref.keys() - refs)):
            for ref in gone:
                self.discard(self._by_ref[ref])
            yield

    def upsert(self, item: "OperandPod") -> None:
        before = self._by_ref.get(item.ref)
        if before == item:
            return
        self._by_ref[item.ref] = item
        self._by_node.setdefault(item.node, {})[item.ref] = item
        self._recount(item.operand, +1)
        if before is not None:
            self._recount(before.operand, -1)
            if before.node != item.node:
                self._take_off(before)
        self._tell(item.node)

    def discard(self, item: "OperandPod") -> None:
        before = self._by_ref.pop(item.ref, None)
        if before is None:
            return
        self._recount(before.operand, -1)
        self._take_off(before)

    def _take_off(self, pod: "OperandPod") -> None:
        siblings = self._by_node[pod.node]
        del siblings[pod.ref]
        if not siblings:
            del self._by_node[pod.node]
        self._tell(pod.node)

    def _tell(self, node: "NodeName") -> None:
        if node:
            self.changes.publish(node)

    def _recount(self, operand: Operand, change: int) -> None:
        before = self._count[operand]
        self._count[operand] = before + change
        if (before == 0) is not (before + change == 0):
            self.presence.publish(operand)

    def _best(self, operand: Operand, node: "NodeName") -> "OperandPod | None":
        """Return the node's pod of an operand: a ready one first, since a rollout may have two."""
        pods = [one for one in self._by_node.get(node, {}).values() if one.operand is operand]
        return min(pods, key=lambda one: (not one.is_ready, one.ref), default=None)

    def _sight(self, operand: Operand, node: "NodeName") -> OperandFacts:
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
