"""CRDs of Karpenter's kinds, with as much of their schema as structure needs: what they accept is not checked.

Sources: sigs.k8s.io/karpenter, pkg/apis/crds; k8s.io/autoscaler, cluster-autoscaler/apis/config/crd.
"""

from typing import TYPE_CHECKING, Any, Final

from kube.resources import CAPACITY_BUFFERS, NODE_CLAIMS, NODE_POOLS

if TYPE_CHECKING:
    from kube.resources import Resource

Json = dict[str, Any]

_OPEN: Final[Json] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_KINDS: Final = (NODE_CLAIMS, NODE_POOLS, CAPACITY_BUFFERS)


def karpenter_crds() -> list[Json]:
    """Return the definitions of NodeClaim, NodePool and CapacityBuffer."""
    return [_definition(resource) for resource in _KINDS]


def _definition(resource: "Resource") -> Json:
    group, _, version = resource.api_version.partition("/")
    metadata: Json = {"name": f"{resource.plural}.{group}"}
    if group.endswith(".x-k8s.io"):
        metadata["annotations"] = {"api-approved.kubernetes.io": "https://example.invalid/not-ours"}
    schema = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _OPEN,
            "status": _OPEN,
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "schema": {"openAPIV3Schema": schema},
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                }
            ],
        },
    }
