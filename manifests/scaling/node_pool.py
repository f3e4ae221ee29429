"""Karpenter's NodePools that a GPUPool with spec.autoscaling needs (karpenter.sh/v1).

A NodePool without the requirement on the request's label serves no signal, and one without the startup taint
gives units away before the pods that a node came for have theirs: docs/autoscaling.md.
"""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api import names
from api.kinds.autoscaling import Autoscaling, ShapeRequirement
from api.meta import SelectorOperator, SelectorRequirement
from api.well_known_labels import OS_LABEL
from autoscaling.parameters import scaling_parameters
from pool.facts import pool_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.kinds.gpupool import GPUPool
    from autoscaling.scaling_model import ShapeParameters

_KARPENTER_DOMAINS: Final = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s")
"""Karpenter or its provider sets labels of these, so that a NodePool may require them, not set them."""
_DISRUPTION_BUDGETS: Final = (
    {"nodes": "100%", "reasons": ["Empty"]},
    {"nodes": "10%", "reasons": ["Drifted", "Underutilized"]},
)
"""Empty nodes go all at once; Karpenter's default is a tenth of them at a time."""


@dataclass(frozen=True, slots=True)
class NodeClassRef:
    """The provider's object that says how a machine is made: image, network, disks."""

    group: str
    kind: str
    name: str


def build_node_pools(pool: "GPUPool", node_class: NodeClassRef) -> list[dict[str, Any]]:
    """Return a NodePool for each name that the shapes have; none for a pool that does not scale."""
    parameters = scaling_parameters(pool, pool_facts(pool))
    by_name: dict[str, list[ShapeParameters]] = {}
    for shape in parameters.shapes if parameters is not None else ():
        by_name.setdefault(shape.node_pool, []).append(shape)
    return [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": name},
            "spec": {
                **_limits_and_disruption(pool.spec.autoscaling or Autoscaling(), shapes),
                "template": _template(pool, shapes, node_class),
            },
        }
        for name, shapes in by_name.items()
    ]


def _limits_and_disruption(
    scaling: "Autoscaling", shapes: "Sequence[ShapeParameters]"
) -> dict[str, Any]:
    spec: dict[str, Any] = {"disruption": _disruption(scaling)}
    if scaling.max_units is not None:
        smallest = min(shape.units for shape in shapes)
        spec["limits"] = {"nodes": str(-(-scaling.max_units // smallest))}
    return spec


def _template(
    pool: "GPUPool", shapes: "Sequence[ShapeParameters]", node_class: NodeClassRef
) -> dict[str, Any]:
    labels, required = _of_selector(pool)
    requirements = [*_common([shape.requirements for shape in shapes]), *required]
    if all(requirement.key != OS_LABEL for requirement in requirements):
        requirements.append(_is_in(OS_LABEL, "linux"))
    # Karpenter copies the value that a signal's node selector has to the NodeClaim and the Node.
    asked = SelectorRequirement(key=names.SCALE_REQUEST_LABEL, operator=SelectorOperator.EXISTS)
    requirements.insert(0, asked)
    spec: dict[str, Any] = {
        "nodeClassRef": dataclasses.asdict(node_class),
        # Karpenter's default drains a node after 30 days, whatever its pods do.
        "expireAfter": "Never",
        "requirements": msgspec.to_builtins(requirements),
    }
    if pool.taints:
        spec["taints"] = msgspec.to_builtins(list(pool.taints))
    spec["startupTaints"] = [{"key": names.AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}]
    # By the label Karpenter sees that the agents' DaemonSets run there, and adds what they request.
    labels = {names.PRESENT_LABEL: "true", **labels}
    return {"metadata": {"labels": labels}, "spec": spec}


def _disruption(scaling: "Autoscaling") -> dict[str, Any]:
    return {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": scaling.idle_after,
        "budgets": [dict(item) for item in _DISRUPTION_BUDGETS],
    }


def _common(shapes: "Sequence[Sequence[ShapeRequirement]]") -> list[SelectorRequirement]:
    """Return what nodes of all shapes satisfy: values of In are united, other requirements stay if all shapes have them.

    A signal requires its own shape, so that what is left out here makes the NodePool wider and no node another one.
    Of values that are united Karpenter must find as many as the shape with the lowest minValues has.
    """
    first, *others = shapes
    merged: list[SelectorRequirement] = []
    for requirement in first:
        if all(requirement in other for other in others):
            merged.append(requirement)
            continue
        same_key = [
            found
            for other in (first, *others)
            if (found := _only(requirement.key, other)) is not None
        ]
        if len(same_key) == len(shapes):
            values = list(dict.fromkeys(value for item in same_key for value in item.values or ()))
            least = min(item.min_values or 0 for item in same_key) or None
            merged.append(
                ShapeRequirement(requirement.key, SelectorOperator.IN, values, min_values=least)
            )
    return merged


def _only(key: str, requirements: "Sequence[ShapeRequirement]") -> ShapeRequirement | None:
    """Return the only requirement on the key, if it is In."""
    found = [requirement for requirement in requirements if requirement.key == key]
    return found[0] if len(found) == 1 and found[0].operator is SelectorOperator.IN else None


def _of_selector(pool: "GPUPool") -> tuple[dict[str, str], list[SelectorRequirement]]:
    """Return labels and requirements with which the pool's nodeSelector selects the nodes."""
    selector = pool.spec.node_selector
    if selector is None:
        return {}, []
    requirements = [_is_in(key, value) for key, value in (selector.match_labels or {}).items()]
    requirements += selector.match_expressions or []
    labels: dict[str, str] = {}
    required: list[SelectorRequirement] = []
    for item in requirements:
        if _is_karpenters(item.key):
            required.append(item)
        elif item.operator is SelectorOperator.IN and item.values:
            labels.setdefault(item.key, item.values[0])
        elif item.operator is SelectorOperator.EXISTS:
            labels.setdefault(item.key, "true")
    return labels, required


def _is_karpenters(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(
        domain == item or domain.endswith(f".{item}") or domain.startswith(item)
        for item in _KARPENTER_DOMAINS
    )


def _is_in(key: str, *values: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator=SelectorOperator.IN, values=list(values))
