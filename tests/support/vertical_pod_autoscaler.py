"""Definition of VerticalPodAutoscaler: the fields of the operands, under the names and values of its project.

github.com/kubernetes/autoscaler, vertical-pod-autoscaler/deploy/vpa-v1-crd-gen.yaml. A group below `k8s.io` needs the
annotation. Unlike there, unknown fields are not preserved: strict validation finds them.
"""

from typing import Any

Json = dict[str, Any]
NAME = "verticalpodautoscalers.autoscaling.k8s.io"

_TEXT: Json = {"type": "string"}
_QUANTITIES: Json = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, _TEXT],
        "x-kubernetes-int-or-string": True,
    },
}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    found: Json = {"type": "object", "properties": properties}
    return found | ({"required": list(required)} if required else {})


def _one_of(*values: str) -> Json:
    return _TEXT | {"enum": list(values)}


_SPEC = _object(
    ("targetRef",),
    targetRef=_object(("kind", "name"), apiVersion=_TEXT, kind=_TEXT, name=_TEXT)
    | {"x-kubernetes-map-type": "atomic"},
    updatePolicy=_object(
        updateMode=_one_of("Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto"),
        minReplicas={"type": "integer", "format": "int32"},
    ),
    resourcePolicy=_object(
        containerPolicies={
            "type": "array",
            "items": _object(
                containerName=_TEXT,
                mode=_one_of("Auto", "Off"),
                minAllowed=_QUANTITIES,
                maxAllowed=_QUANTITIES,
                controlledResources={"type": "array", "items": _TEXT},
                controlledValues=_one_of("RequestsAndLimits", "RequestsOnly"),
            ),
        }
    ),
)


def vertical_pod_autoscaler_crd() -> Json:
    status: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = _object(("spec",), apiVersion=_TEXT, kind=_TEXT, spec=_SPEC, status=status)
    plural, _, group = NAME.partition(".")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": NAME,
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"
            },
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": "VerticalPodAutoscaler",
                "listKind": "VerticalPodAutoscalerList",
                "plural": plural,
                "singular": "verticalpodautoscaler",
                "shortNames": ["vpa"],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
