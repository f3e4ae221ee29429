"""The definition of Deckhouse's ModuleConfigs, as far as it is used."""

from typing import Any

MODULE_CONFIG_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "moduleconfigs.deckhouse.io"},
    "spec": {
        "group": "deckhouse.io",
        "scope": "Cluster",
        "names": {
            "plural": "moduleconfigs",
            "singular": "moduleconfig",
            "kind": "ModuleConfig",
            "listKind": "ModuleConfigList",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "version": {"type": "integer"},
                                    "enabled": {"type": "boolean"},
                                    "settings": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
