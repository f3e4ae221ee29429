"""The CRD of Node Feature Discovery: NodeFeature.

Source: github.com/kubernetes-sigs/node-feature-discovery,
deployment/base/nfd-crds/nfd-api-crds.yaml.
"""

from typing import Any, Final

Json = dict[str, Any]

NAMESPACE: Final = "node-feature-discovery"
"""Namespace of the NodeFeatures of NFD and of other sources."""


def _map_of(schema: Json) -> Json:
    return {"type": "object", "additionalProperties": schema}


def _elements(schema: Json) -> Json:
    return {"type": "object", "required": ["elements"], "properties": {"elements": schema}}


def node_feature_crd() -> Json:
    """Return the definition of NodeFeature, as NFD installs it, without descriptions."""
    text: Json = {"type": "string"}
    instance = {
        "type": "object",
        "required": ["attributes"],
        "properties": {"attributes": _map_of(text)},
    }
    features = {
        "type": "object",
        "properties": {
            "attributes": _map_of(_elements(_map_of(text))),
            "flags": _map_of(_elements(_map_of({"type": "object"}))),
            "instances": _map_of(_elements({"type": "array", "items": instance})),
        },
    }
    spec = {"type": "object", "properties": {"features": features, "labels": _map_of(text)}}
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": {"type": "object"},
            "spec": spec,
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "nodefeatures.nfd.k8s-sigs.io",
            # The API server wants it of every group under k8s.io.
            "annotations": {
                "api-approved.kubernetes.io": "unapproved, a third-party definition",
                "controller-gen.kubebuilder.io/version": "v0.16.3",
            },
        },
        "spec": {
            "group": "nfd.k8s-sigs.io",
            "names": {
                "kind": "NodeFeature",
                "listKind": "NodeFeatureList",
                "plural": "nodefeatures",
                "singular": "nodefeature",
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1alpha1",
                    "schema": {"openAPIV3Schema": schema},
                    "served": True,
                    "storage": True,
                }
            ],
        },
    }
