"""Backend `capacity-buffer`: warm units are kept by CapacityBuffers, and waiting pods get nodes by signals.

A buffer's replicas are its nodes that pods use or that minUnits and warmUnits need, and those that are missing. The
number is the same whether a missing node is on its way or not, so that no state is kept. The condition `Provisioning`
of a buffer says nothing about nodes that are ready.

Karpenter remembers which nodes have room for a buffer until it plans the next time, and keeps them. It plans when
replicas change, and does not when a buffer is deleted. So the replicas become 0 first, and the buffer is deleted once
Karpenter has seen that.

While Karpenter does not answer for a buffer, signals ask for the warm units, and the replicas are no more than the
nodes of the buffer that are there: no unit is asked for twice. The buffer stays, since its first condition ends this.
"""

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from api.foreign.karpenter import PROVISIONING, CapacityBuffer
from api.names import CONFIG_HASH_ANNOTATION, SCALE_REQUEST_LABEL, SCALING_POOL_LABEL
from api.status_conditions import parse_time
from api.text import listed
from autoscaling.scaling_model import Purpose
from autoscaling.unserved_objects import BufferFacts, unanswered_buffers
from autoscaling.warm_nodes import keep_nodes
from kube.errors import Conflict, NotFound, Undecodable
from kube.resources import CAPACITY_BUFFERS, POD_TEMPLATES
from manifests.install.rbac import PolicyRule
from manifests.scaling.capacity_buffer import buffer_label, buffer_name, build_capacity_buffer
from reconciler.scaling.backends.node_autoscaler import Unserved
from telemetry.conditions import BackendReady

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.meta import Condition
    from api.names import PoolName
    from autoscaling.scaling_model import (
        NodeRequest,
        ObservedRequest,
        ScalingPlan,
        ScalingTerms,
        ShapeTerms,
    )
    from autoscaling.unserved_objects import UnansweredBuffer
    from kube.client import KubeClient
    from pool.model import Instant
    from reconciler.caches import Caches
    from reconciler.scaling.backends.karpenter_signal import KarpenterSignal

FIELD_MANAGER: Final = "gpu-control-plane/capacity-buffer"
BUFFER_EMPTY: Final = "BufferEmpty"
"""Reason of the condition Provisioning once Karpenter has planned with no replicas."""
_WRITTEN: Final = ("create", "delete", "patch")
RBAC: Final = (
    # Its kind is looked for in the whole cluster.
    PolicyRule(group=CAPACITY_BUFFERS.group, resources=("capacitybuffers",), verbs=("list",)),
)
NAMESPACED_RBAC: Final = (
    PolicyRule(group=CAPACITY_BUFFERS.group, resources=("capacitybuffers",), verbs=_WRITTEN),
    PolicyRule(resources=("podtemplates",), verbs=_WRITTEN),
)


@final
class WarmBuffers:
    """Keeps a buffer for each shape that warm units need."""

    def __init__(
        self,
        signals: "KarpenterSignal",
        client: "KubeClient",
        caches: "Caches",
        *,
        namespace: str,
        image: str,
        now: "Callable[[], Instant]",
    ) -> None:
        self._signals = signals
        self._client = client
        self._index = caches.index
        self._claims = caches.node_claims
        self._namespace = namespace
        self._image = image
        self._now = now
        self._present: dict[PoolName, Counter[str]] = {}
        # pool -> label of a buffer -> nodes of it that stay, as of the look that the plan is made from
        self._unanswered: dict[PoolName, dict[str, UnansweredBuffer]] = {}
        # pool -> its buffers without an answer, as of the last look
        self._unserved: dict[PoolName, tuple[str, ...]] = {}
        # pool -> buffers that Karpenter does not serve, none of which asks for a node: signals do

    def observe(
        self, terms: "ScalingTerms", *, now: "dt.datetime", known: "Sequence[ScaleRequestStatus]"
    ) -> "tuple[ObservedRequest, ...]":
        self._present[terms.pool.name] = self._staying(terms)
        return self._signals.observe(terms, now=now, known=known)

    def is_caught_up(self, pool: "PoolName") -> bool:
        return self._signals.is_caught_up(pool)

    def taken(self, plan: "ScalingPlan") -> "tuple[NodeRequest, ...]":
        return tuple(
            one
            for one in plan.requests
            if one.purpose is Purpose.DEMAND or one.pool in self._unserved
        )

    async def ensure(self, request: "NodeRequest", terms: "ScalingTerms") -> None:
        await self._signals.ensure(request, terms)

    async def cancel(self, observed: "ObservedRequest") -> None:
        await self._signals.cancel(observed)

    async def settle(self, terms: "ScalingTerms", plan: "ScalingPlan") -> None:
        await self._signals.settle(terms, plan)
        if terms.pool.closed is not None:
            return
        name = terms.pool.name
        buffers = await self._shown(name)
        unserved = self._overdue(terms, buffers)
        if unserved:
            if await self._lower(terms, buffers):
                self._unserved[name] = unserved
            return
        if self._unserved.pop(name, None) is not None:
            return  # signals have the warm units of this plan
        shown = {one.metadata.name: one for one in buffers}
        for shape, replicas in self._wanted(terms, plan):
            if replicas:
                found = shown.pop(buffer_name(terms, shape), None)
                await self._write(terms, shape, replicas, found=found)
        for one in shown.values():
            await self._drop(one)

    def unserved(
        self, terms: "ScalingTerms", observed: "Sequence[ObservedRequest]", *, now: "dt.datetime"
    ) -> Unserved | None:
        """Return the buffers that Karpenter has not answered within a minute."""
        names = self._unserved.get(terms.pool.name)
        if names is None:
            return None
        return Unserved(
            BackendReady.BUFFERS_NOT_SERVED,
            f"Karpenter does not answer for CapacityBuffer {listed(names)} in namespace {self._namespace}: set its"
            " feature gate CapacityBuffer, or choose backend karpenter-signal; signals ask for warm units meanwhile",
        )

    async def withdraw(self, pool: "PoolName") -> bool:
        for known in (self._present, self._unanswered, self._unserved):
            known.pop(pool, None)
        dropped = [await self._drop(one) for one in await self._shown(pool)]
        return all(dropped)

    def _overdue(self, terms: "ScalingTerms", buffers: "list[CapacityBuffer]") -> tuple[str, ...]:
        """Return the buffers that Karpenter does not serve; none as long as it needs none, or a node of one comes."""
        name, now = terms.pool.name, self._now().utc
        found = unanswered_buffers(
            [one for each in buffers if (one := _buffer_facts(each)) is not None],
            self._unanswered.get(name, {}),
            now=now,
        )
        self._unanswered[name] = found
        labels = {buffer_label(terms, one) for one in terms.shapes}
        is_coming = any(
            one.request in labels and not one.initialized.is_true and not one.is_terminating
            for one in self._claims
        )
        if is_coming or not (terms.min_units or terms.warm_units):
            return ()
        return tuple(sorted(one for one, state in found.items() if state.is_overdue(now)))

    async def _lower(self, terms: "ScalingTerms", buffers: "list[CapacityBuffer]") -> bool:
        """Reduce the replicas of buffers to their nodes that are there; False: Karpenter wrote to one meanwhile.

        Karpenter makes nodes for a buffer after it has written to its status. The resourceVersion shows that it has
        not: once the replicas are lowered, no node comes for those that signals are about to ask for.
        """
        present = self._present.get(terms.pool.name, Counter())
        nodes = {buffer_name(terms, one): present[buffer_label(terms, one)] for one in terms.shapes}
        for one in buffers:
            name, replicas = one.metadata.name, nodes.get(one.metadata.name, 0)
            if one.spec.get("replicas", 0) <= replicas:
                continue
            patch = {
                "metadata": {"resourceVersion": one.metadata.resource_version},
                "spec": {"replicas": replicas},
            }
            try:
                await self._client.merge_patch(
                    CAPACITY_BUFFERS, patch, name=name, namespace=self._namespace
                )
            except Conflict:
                return False
            except NotFound:
                continue
        return True

    def _wanted(self, terms: "ScalingTerms", plan: "ScalingPlan") -> "list[tuple[ShapeTerms, int]]":
        """Return the replicas of each shape's buffer."""
        present = self._present.get(terms.pool.name, Counter())
        missing = Counter(one.shape.name for one in plan.requests if one.purpose is Purpose.WARM)
        return [
            (shape, present[buffer_label(terms, shape)] + missing[shape.name])
            for shape in terms.shapes
        ]

    def _staying(self, terms: "ScalingTerms") -> "Counter[str]":
        """Return how many nodes of each buffer pods use, or minUnits and warmUnits need."""
        nodes = self._index.state(terms.pool.name).nodes()
        kept = keep_nodes(terms, nodes)
        found: Counter[str] = Counter()
        for name, node in nodes.items():
            facts = self._index.nodes.get(name)
            has_pods = node.used or node.reserved or node.unconfirmed or node.unaccounted
            if facts is not None and (name in kept or has_pods):
                found[facts.labels.get(SCALE_REQUEST_LABEL, "")] += 1
        return found

    async def _shown(self, pool: "PoolName") -> "list[CapacityBuffer]":
        found = await self._client.list_(
            CAPACITY_BUFFERS,
            CapacityBuffer,
            namespace=self._namespace,
            label_selector=f"{SCALING_POOL_LABEL}={pool}",
        )
        if found.unread:
            raise Undecodable(f"a {CAPACITY_BUFFERS.kind} of pool {pool} cannot be read")
        return found.items

    async def _write(
        self,
        terms: "ScalingTerms",
        shape: "ShapeTerms",
        replicas: int,
        *,
        found: "CapacityBuffer | None",
    ) -> None:
        template, buffer = build_capacity_buffer(
            terms, shape, replicas=replicas, namespace=self._namespace, image=self._image
        )
        digest = buffer["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]
        is_same = found is not None and found.metadata.annotation(CONFIG_HASH_ANNOTATION) == digest
        if is_same and found is not None and found.spec.get("replicas") == replicas:
            return
        if not is_same:
            await self._client.apply(POD_TEMPLATES, template, field_manager=FIELD_MANAGER)
        await self._client.apply(CAPACITY_BUFFERS, buffer, field_manager=FIELD_MANAGER)

    async def _drop(self, buffer: "CapacityBuffer") -> bool:
        """Delete a buffer and its template, or set its replicas to 0 first; return whether it is deleted."""
        name, planned = buffer.metadata.name, _planned(buffer)
        if buffer.spec.get("replicas") and planned is not None:
            body = {"spec": {"replicas": 0}}
            with contextlib.suppress(NotFound):
                await self._client.merge_patch(
                    CAPACITY_BUFFERS, body, name=name, namespace=self._namespace
                )
            return False
        if planned is not None and planned.reason != BUFFER_EMPTY:
            return False
        for resource in (CAPACITY_BUFFERS, POD_TEMPLATES):
            try:
                await self._client.delete(resource, name, namespace=self._namespace)
            except NotFound:
                continue
        return True


def _buffer_facts(buffer: "CapacityBuffer") -> BufferFacts | None:
    meta = buffer.metadata
    created = parse_time(meta.creation_timestamp or "")
    if created is None:
        return None
    conditions = buffer.status.conditions or ()
    told = max((one.observed_generation for one in conditions), default=0)
    return BufferFacts(
        name=meta.name,
        created=created,
        generation=meta.generation,
        # Conditions that name no generation are an answer all the same.
        answered=told or (meta.generation if conditions else 0),
    )


def _planned(buffer: "CapacityBuffer") -> "Condition | None":
    """Return what Karpenter said of the buffer when it last planned; None where it never did."""
    conditions = buffer.status.conditions or ()
    return next((one for one in conditions if one.type == PROVISIONING), None)
