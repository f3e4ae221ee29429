"""Nodes with free units that kube-scheduler passes over for a pod: they do not count for it, and nodes like them are not asked for.

A pod may demand more of its node than this control plane knows: what other pods forbid, or a scheduler's plugin. What it does know is that
kube-scheduler may bind the pod, that units are free, and that it does not bind it. After a while the zones of these nodes are
left out of what is planned for the pod, or their instance types where nodes have no zone. Once all are left out, no further
node is asked for.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from msgspec import structs

from api.foreign.core import NodeSelectorTerm
from api.meta import SelectorOperator, SelectorRequirement
from api.text import listed
from api.well_known_labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from autoscaling.scaling_model import WaitReason
from pool.model import PodSelection
from pool.placement.planner import may_go_to
from pool.pods.selection import constraints_of_selection
from reconciler.scaling.demand.pod_places import with_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from api.names import PodUid
    from autoscaling.scaling_model import ScalingPlan
    from pool.index.reader import IndexReader
    from pool.model import NodeFacts, PodFacts, PoolFacts

PASSED_OVER_S: Final = 120.0
"""Seconds that a pod waits beside free units; kube-scheduler tries a pod again within a minute, so it has tried twice."""


@final
@dataclass(slots=True)
class _PassedOver:
    """What is known of one pod."""

    since: float | None = None
    """Time since when units are free that it does not get."""
    left_out: dict[str, set[str]] = field(default_factory=dict)
    """Label -> values of the nodes that it is not bound to."""


@final
class PassedOverNodes:
    """Nodes that pods of one pool are not bound to, in the memory of one leader."""

    def __init__(self, index: "IndexReader") -> None:
        self._index = index
        self._pods: dict[PodUid, _PassedOver] = {}

    def narrowed(self, waiting: "Iterable[PodFacts]") -> "list[PodFacts]":
        """Return the pods with selections that leave out what they were passed over for."""
        return [self._narrowed(pod) for pod in waiting]

    def update(
        self, pool: "PoolFacts", waiting: "Sequence[PodFacts]", plan: "ScalingPlan", *, now: float
    ) -> None:
        """Take note of the pods that wait although units are free.

        Args:
            pool: the pool.
            waiting: the narrowed pods that the plan is for.
            plan: says why they wait.
            now: Clock.monotonic() seconds.
        """
        for pod in waiting:
            wait, record = plan.waits.get(pod.uid), self._pods.get(pod.uid)
            if wait is None or wait.reason is not WaitReason.NOT_DEVICES:
                if record is not None:
                    record.since = None
                continue
            record = self._pods.setdefault(pod.uid, _PassedOver())
            if record.since is None:
                record.since = now
            elif now - record.since >= PASSED_OVER_S:
                self._leave_out(record, pool, pod)

    def forget(self, pending: "Iterable[PodUid]") -> None:
        """Forget all pods but these."""
        kept = frozenset(pending)
        self._pods = {uid: record for uid, record in self._pods.items() if uid in kept}

    def uids(self) -> "tuple[PodUid, ...]":
        return tuple(self._pods)

    def _leave_out(self, record: _PassedOver, pool: "PoolFacts", pod: "PodFacts") -> None:
        nodes = list(self._with_capacity(pool, pod))
        for key in (ZONE_LABEL, INSTANCE_TYPE_LABEL):
            if nodes and all(key in node.labels for node in nodes):
                record.left_out.setdefault(key, set()).update(node.labels[key] for node in nodes)
                record.since = None
                return

    def _with_capacity(self, pool: "PoolFacts", pod: "PodFacts") -> "Iterator[NodeFacts]":
        constraints = constraints_of_selection(pod.selection or PodSelection())
        for name, figures in self._index.state_for(pool.name, pod.demand).nodes().items():
            node = self._index.nodes.get(name)
            if (
                node is not None
                and figures.is_reservable
                and figures.free >= pod.demand.units
                and may_go_to(node, constraints)
                and self._index.has_capacity(pod, name)
            ):
                yield node

    def _narrowed(self, pod: "PodFacts") -> "PodFacts":
        record = self._pods.get(pod.uid)
        if record is None or not record.left_out:
            return pod
        selection = pod.selection or PodSelection()
        excluded = [
            SelectorRequirement(key=key, operator=SelectorOperator.NOT_IN, values=sorted(values))
            for key, values in sorted(record.left_out.items())
        ]
        texts = tuple(
            f"nodes with {item.key} {listed(item.values or ())}, where units are free and kube-scheduler does not bind the pod"
            for item in excluded
        )
        narrowed = with_terms(selection, [NodeSelectorTerm(match_expressions=excluded)])
        return dataclasses.replace(
            pod, selection=structs.replace(narrowed, omitted=(*selection.omitted, *texts))
        )
