"""Pod mutation: find the pool, deny what cannot run, reserve units, and constrain the pod to the pool's nodes."""

from typing import TYPE_CHECKING, Any

import msgspec

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.pods import patch as pod_patch
from admission.pods.access import may_use, refusal_text
from admission.pods.baseline import baseline_denial
from admission.pods.capacity_denial import exceeds
from admission.pods.constraints import constraints_of, excludes_pool_nodes
from admission.pods.request import PoolPod, node_preset_denial
from admission.pods.reserve import reserve
from admission.pods.size_limits import size_denial
from api.foreign.core import DEFAULT_SCHEDULER
from api.kinds.gpupool import Strategy
from api.names import POOL_LABEL, PoolName, pool_node_label
from api.text import MAX_WARNING_LENGTH, listed, truncate, units
from inventory.pools.maintenance import maintenance_text
from pool.model import Demand
from pool.node_affinity import MAX_COMPARISONS, required_terms
from pool.pods.selection import spread_constraint
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.context import AdmissionContext
    from admission.decision import PatchOperation
    from admission.pods.request import PodRequest
    from api.foreign.core import PodSpec, Toleration
    from api.kinds.gpupool import GPUPool
    from pool.model import PoolFacts


def mutate(request: "PodRequest", context: "AdmissionContext") -> Decision:
    """Admit the pod with the fields that its pool requires, or deny it.

    A pod without a pool only loses annotations that this control plane owns. A pod that was mutated before comes out
    unchanged.
    """
    demand = request.demand()
    match demand:
        case None:
            return Admitted(patch=tuple(pod_patch.strip_annotations(request.pod.metadata)))
        case Denied():
            return demand
        case Demand():  # pragma: no branch  # mypy proves that no case is missing
            decision = _admit(request, demand, context)
            if isinstance(decision, Denied):
                return Denied(decision.reason, decision.text, _about(request, demand))
            return decision


def _admit(request: "PodRequest", demand: Demand, context: "AdmissionContext") -> Decision:
    if not context.is_ready():
        return NOT_READY
    served = context.served_pool(demand.resource)
    if served is None:
        return _pool_not_found(request, demand, context)
    facts, pool = served
    refusal = _refusal(request, facts, pool, context=context)
    if refusal is not None:
        return refusal
    too_large = size_denial(request.pod, demand)
    if too_large is not None:
        return exceeds(facts, demand, context) or too_large
    spec = request.pod.spec
    tolerations = pod_patch.missing_tolerations(spec, pool.taints)
    pod = PoolPod(
        request=request,
        pool=facts,
        demand=demand,
        constraints=constraints_of(
            pod_patch.without_own_spread(request.pod),
            pool.name,
            tolerations,
            namespace=request.namespace,
        ),
    )
    decision = reserve(pod, context)
    if pod.constraints.required is not None and pod.constraints.required.is_exhausted:
        decision = _unplanned(decision, facts)
    if isinstance(decision, Denied):
        return decision
    return msgspec.structs.replace(
        decision,
        patch=(*decision.patch, *_patch(pod, pool, tolerations=tolerations, context=context)),
        warnings=(
            *decision.warnings,
            *(_spread_warning(pool, context) if facts.strategy is Strategy.SPREAD else ()),
            *_scheduler_warning(spec, context),
        ),
        facts={**_about(request, demand), **decision.facts},
    )


def _unplanned(decision: Decision, pool: "PoolFacts") -> Decision:
    """Correct the decision on a pod that was not compared with every node.

    A reservation is optional, so the pod is admitted without one; a pool that rejects waiting pods denies it.
    """
    if isinstance(decision, Admitted):
        text = f"GPU pool {pool.name} reserves no units for the pod: its node affinity is too long to plan"
        return msgspec.structs.replace(decision, warnings=(text,))
    if decision.reason is not RefusalReason.INSUFFICIENT_CAPACITY:
        return decision
    text = (
        f"pool {pool.name} refuses pods that would have to wait, and the required nodeAffinity of this one has"
        f" too many expressions to find out: comparing it with all nodes takes more than {MAX_COMPARISONS}"
        " comparisons; select nodes by a label that they share"
    )
    return Denied(RefusalReason.TOO_LARGE, text)


def _about(request: "PodRequest", demand: Demand) -> dict[str, object]:
    return {
        "object": request.ref,
        "resource": truncate(demand.resource),
        "units": demand.units,
    }


def _patch(
    pod: PoolPod,
    pool: "GPUPool",
    *,
    tolerations: "list[Toleration]",
    context: "AdmissionContext",
) -> "tuple[PatchOperation, ...]":
    meta, spec = pod.request.pod.metadata, pod.request.pod.spec
    return (
        *pod_patch.label(meta, pool.name),
        *pod_patch.tolerate(spec, tolerations),
        *pod_patch.require_pool_nodes(spec, pool.name),
        *pod_patch.spread(
            pod.request.pod,
            _spread(pool, context) if pod.pool.strategy is Strategy.SPREAD else None,
        ),
        *pod_patch.choose_scheduler(spec, context.scheduler_name),
    )


def _spread(pool: "GPUPool", context: "AdmissionContext") -> dict[str, Any]:
    """Spread strictly where pods can go to every value of the key, and as a preference elsewhere.

    A strict constraint excludes nodes without the key, and lets no value have two pods more than another: one node that
    lost its label, or one zone whose nodes are away, would leave devices idle without a message. A preference excludes
    nothing, but other scores may outvote it, so "Spread" would promise more than it does.
    """
    key = pool.spec.scheduling.topology_key
    is_strict = context.index.can_spread(pool.name, key)
    return spread_constraint(pool.name, key, is_strict=is_strict)


def _spread_warning(pool: "GPUPool", context: "AdmissionContext") -> "Iterator[str]":
    """Warn where there is nothing to spread over: the pool has nodes, none of which has the key."""
    index, key = context.index, pool.spec.scheduling.topology_key
    if index.is_any_labelled(pool.name, key):
        return
    if index.state(pool.name).nodes():
        yield truncate(
            f"no node of GPU pool {pool.name} has the label {key}: its pods spread over nodes only",
            MAX_WARNING_LENGTH,
        )


def _scheduler_warning(spec: "PodSpec", context: "AdmissionContext") -> "Iterator[str]":
    """Warn where another scheduler than ours is to bind the pod."""
    ours = context.scheduler_name or DEFAULT_SCHEDULER
    if spec.scheduler_name in {"", DEFAULT_SCHEDULER, ours}:
        return
    yield truncate(
        f"schedulerName {spec.scheduler_name} stays: unless it calls our extender, the pod's devices are unknown and its"
        " node is closed",
        MAX_WARNING_LENGTH,
    )


def _refusal(
    request: "PodRequest", facts: "PoolFacts", pool: "GPUPool", *, context: "AdmissionContext"
) -> Denied | None:
    if pool.metadata.deletion_timestamp is not None:
        text = f"pool {pool.name} is being deleted; use another pool"
        return Denied(RefusalReason.POOL_TERMINATING, text)
    if not may_use(pool, request, context):
        return Denied(RefusalReason.ACCESS_DENIED, refusal_text(pool, request, context))
    if facts.is_in_maintenance:
        return Denied(RefusalReason.POOL_IN_MAINTENANCE, _maintenance_text(pool, context))
    return (
        node_preset_denial(request.pod)
        or _conflict(request, pool)
        or baseline_denial(request, pool)
    )


def _maintenance_text(pool: "GPUPool", context: "AdmissionContext") -> str:
    capacity, why = context.index.state(pool.name).capacity(), maintenance_text(pool)
    if pool.is_changing:
        why = f"it {why} ({units(capacity.used + capacity.reserved)} are now)"
    return (
        f"pool {pool.name} is in maintenance and takes no new pods: {why}; try again when the pool's"
        " condition Maintenance is False, or use another pool"
    )


def _pool_not_found(request: "PodRequest", demand: Demand, context: "AdmissionContext") -> Denied:
    text = f"no GPU pool serves {truncate(demand.resource)}; {_open_pools_text(request, context)}"
    return Denied(RefusalReason.POOL_NOT_FOUND, text)


def _open_pools_text(request: "PodRequest", context: "AdmissionContext") -> str:
    """Name the pools that are open to this pod; other pools are not disclosed.

    An unauthenticated caller learns none.
    """
    if not context.callers_are_known:
        return "`kubectl get gpupools` lists those there are, their operator says which are open to you"
    usable = [
        resource
        for pool in context.catalog.pools.values()
        if may_use(pool, request, context)
        for resource in pool.resources
    ]
    return f"the pod may use {listed(usable)}" if usable else "there is no pool that it may use"


def _conflict(request: "PodRequest", pool: "GPUPool") -> Denied | None:
    """Deny a pod that contradicts its own pool and could never run."""
    meta, spec = request.pod.metadata, request.pod.spec
    label, key = meta.label(POOL_LABEL), pool_node_label(pool.name)
    text: str | None = None
    if label is not None and label != pool.name:
        theirs = pool_node_label(PoolName(label))
        terms = required_terms(spec.affinity)
        is_required = any(
            item.key == theirs for term in terms for item in term.match_expressions or ()
        )
        more = f" and {truncate(theirs)} in the required nodeAffinity" if is_required else ""
        text = (
            f'label {POOL_LABEL} says "{truncate(label)}", but the pod asks for pool {pool.name};'
            f" remove the label{more}, admission sets what the pool needs"
        )
    elif (selected := (spec.node_selector or {}).get(key, "")) != "":
        text = (
            f'nodeSelector wants {key} to be "{truncate(selected)}", but nodes of pool {pool.name} carry'
            " it with an empty value; remove it, admission sends the pod to nodes of the pool"
        )
    elif excludes_pool_nodes(spec.affinity, key):
        text = (
            f"the required nodeAffinity excludes nodes with the label {key}, which are the nodes of"
            f" pool {pool.name}; remove the expression"
        )
    return None if text is None else Denied(RefusalReason.CONFLICTING_SPEC, text)
