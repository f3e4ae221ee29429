"""Whether a NodePool of Karpenter can serve a pool, and what to change if not."""

import itertools
from typing import TYPE_CHECKING, Final

from api.kinds.autoscaling import ScalingBackend
from api.meta import SelectorOperator, SelectorRequirement
from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from api.quantity import parse_duration_s
from autoscaling.node_daemons import taint_text
from autoscaling.node_selections import is_well_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.foreign.core import Taint
    from autoscaling.scaling_model import NodePoolFacts, ScalingParameters

_WHEN_EMPTY: Final = "WhenEmpty"
_NEVER: Final = "Never"
_LONGEST_TEXT: Final = 256
"""Characters of a foreign message."""


def node_pool_fault(
    parameters: "ScalingParameters", name: str, facts: "NodePoolFacts | None"
) -> tuple[str, str]:
    """Return why a NodePool cannot serve the pool, and what else is unwise; each empty or with its cure.

    Args:
        parameters: the pool's parameters.
        name: of the NodePool that a shape names.
        facts: the NodePool; None where there is none.
    """
    if parameters.backend is not ScalingBackend.KARPENTER_SIGNAL:
        return "", ""
    if facts is None:
        return (
            f'there is no NodePool "{name}": create it (`kubectl get gpupool {parameters.pool.name} -o yaml | '
            "gpu-control-plane render nodepool` prints it), or name another one in spec.autoscaling.shapes",
            "",
        )
    return next(_faults(parameters, facts), ""), "; ".join(_warnings(parameters, facts))


def _faults(parameters: "ScalingParameters", facts: "NodePoolFacts") -> "Iterator[str]":
    name, pool = facts.name, parameters.pool.name
    if facts.replicas is not None:
        yield (
            f"NodePool {name} is static (spec.replicas), so Karpenter adds no node for a pod: delete it, and create it "
            "without replicas"
        )
    if facts.ready.status == "False":
        yield (
            f"NodePool {name} is not ready ({facts.ready.reason}: {facts.ready.message[:_LONGEST_TEXT]}): "
            "look at its conditions and those of its node class"
        )
    if not _has_request_label(facts):
        yield (
            f"NodePool {name} has no requirement {SCALE_REQUEST_LABEL} with operator Exists, without which Karpenter "
            "adds no node for a request: add it to spec.template.spec.requirements"
        )
    if not _has_startup_taint(facts):
        yield (
            f"NodePool {name} has no startup taint {AGENT_NOT_READY_TAINT} with effect NoSchedule, so that other pods "
            "would take the units of a new node first: add it to spec.template.spec.startupTaints"
        )
    for taint in facts.taints:
        if taint.effect != "PreferNoSchedule" and not any(
            _is_same(taint, item) for item in parameters.taints
        ):
            yield (
                f"NodePool {name} taints its nodes with {taint_text(taint)}, which pods of pool {pool} do not tolerate: "
                "add the taint to spec.scheduling.taints of the pool, or remove it from the NodePool"
            )
    for demanded in _demanded_labels(parameters):
        key = demanded.key
        values = _values(facts, key)
        if values is not None and not any(map(demanded.test(), values)):
            yield (
                f"nodes of NodePool {name} have {key} {' or '.join(sorted(values))[:_LONGEST_TEXT]}, which "
                f"spec.nodeSelector of pool {pool} excludes: change one of them"
            )

    yield from _min_values_faults(parameters, facts)


def _min_values_faults(parameters: "ScalingParameters", facts: "NodePoolFacts") -> "Iterator[str]":
    """Yield the requirements by which Karpenter adds no node for a shape, of which too few values are left."""
    for requirement, shape in itertools.product(facts.requirements, parameters.shapes):
        key, least = requirement.key, requirement.min_values or 0
        listed = [
            set(item.values or ())
            for item in shape.requirements
            if item.key == key and item.operator is SelectorOperator.IN
        ]
        if shape.node_pool != facts.name or not listed:
            continue
        left = set.intersection(*listed, _values(facts, key) or listed[0])
        if len(left) < least:
            yield (
                f"NodePool {facts.name} demands minValues {least} of {key}, and shape {shape.name} leaves {len(left)}, for"
                " which Karpenter adds no node: name more values in the requirements of the shape, or lower minValues"
            )


def _warnings(parameters: "ScalingParameters", facts: "NodePoolFacts") -> "Iterator[str]":
    name = facts.name
    for demanded in _demanded_labels(parameters):
        key = demanded.key
        is_unknown = _values(facts, key) is None and not is_well_known(key)
        if is_unknown and not demanded.matches({}):
            yield (
                f"spec.nodeSelector of pool {parameters.pool.name} demands {key}, which NodePool {name} does not set: unless "
                "something else labels its nodes, add the label to spec.template.metadata.labels"
            )
    least = {requirement.key: requirement.min_values or 0 for requirement in facts.requirements}
    for shape in parameters.shapes:
        for item in shape.requirements if shape.node_pool == name else ():
            if (item.min_values or 0) > least.get(item.key, 0):
                yield (
                    f"minValues {item.min_values} of {item.key} in shape {shape.name} is above that of NodePool {name}, which is"
                    " kept, since a pod cannot demand it: set minValues in spec.template.spec.requirements"
                )
    if facts.consolidation_policy not in {"", _WHEN_EMPTY}:
        yield (
            f"NodePool {facts.name} has consolidationPolicy {facts.consolidation_policy}, by which Karpenter ends running "
            f"pods to move them: set spec.disruption.consolidationPolicy to {_WHEN_EMPTY}"
        )
    after = facts.consolidate_after
    if after and _seconds(after) != parameters.idle_after_s:
        yield (
            f"NodePool {facts.name} has consolidateAfter {after}, and spec.autoscaling.idleAfter is "
            f"{parameters.idle_after_s}s: empty nodes go by the NodePool, so give both one value"
        )
    if facts.expire_after not in {"", _NEVER}:
        yield (
            f"NodePool {facts.name} has expireAfter {facts.expire_after}, by which Karpenter drains each node of that age, "
            f"whatever runs there: set spec.template.spec.expireAfter to {_NEVER} (v1 has no spec.disruption.expireAfter)"
        )


def _has_request_label(facts: "NodePoolFacts") -> bool:
    return any(
        requirement.key == SCALE_REQUEST_LABEL
        and requirement.operator == SelectorOperator.EXISTS.value
        for requirement in facts.requirements
    )


def _has_startup_taint(facts: "NodePoolFacts") -> bool:
    return any(
        taint.key == AGENT_NOT_READY_TAINT and taint.effect == "NoSchedule"
        for taint in facts.startup_taints
    )


def _demanded_labels(parameters: "ScalingParameters") -> "list[SelectorRequirement]":
    """Return what the pool's node selector demands, as expressions."""
    selector = parameters.node_selector
    if selector is None:
        return []
    labels = (selector.match_labels or {}).items()
    return [
        *(SelectorRequirement(key, SelectorOperator.IN, [value]) for key, value in sorted(labels)),
        *(selector.match_expressions or ()),
    ]


def _values(facts: "NodePoolFacts", key: str) -> set[str] | None:
    """Return the values of a label that the NodePool's nodes can have; None where it does not list them."""
    if key in facts.labels:
        return {facts.labels[key]}
    listed = [
        set(requirement.values or ())
        for requirement in facts.requirements
        if requirement.key == key and requirement.operator == SelectorOperator.IN.value
    ]
    return set.intersection(*listed) if listed else None


def _is_same(taint: "Taint", other: "Taint") -> bool:
    return (taint.key, taint.value, taint.effect) == (other.key, other.value, other.effect)


def _seconds(duration: str) -> int | None:
    try:
        return parse_duration_s(duration)
    except ValueError:
        return None
