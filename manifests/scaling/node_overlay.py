"""Karpenter's NodeOverlays with a pool's units (karpenter.sh/v1alpha1), for the backend karpenter-native.

Karpenter knows no resource that its provider does not: a pod with one never gets a node. An overlay adds the units
of a node to its instance types. It is one number a node: how units lie on devices, Karpenter does not know.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.foreign.karpenter import NODE_POOL_LABEL
from autoscaling.terms import scaling_terms
from pool.facts import pool_facts

if TYPE_CHECKING:
    from api.kinds.gpupool import GPUPool

_HIGHEST_WEIGHT: Final = 100
"""The first shape's: two overlays of one weight that match one instance type are a conflict, and neither counts."""


def build_node_overlays(pool: "GPUPool") -> list[dict[str, Any]]:
    """Return a NodeOverlay for each shape; of two that match an instance type, the earlier shape's counts."""
    terms = scaling_terms(pool, pool_facts(pool))
    return [
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": f"{pool.name}-{shape.name}"},
            "spec": {
                "weight": _HIGHEST_WEIGHT - number,
                "requirements": [
                    {
                        "key": NODE_POOL_LABEL,
                        "operator": "In",
                        "values": [shape.node_pool],
                    },
                    *msgspec.to_builtins(list(shape.requirements)),
                ],
                "capacity": {pool.resource_name: str(shape.units)},
            },
        }
        for number, shape in enumerate(terms.shapes if terms is not None else ())
    ]
