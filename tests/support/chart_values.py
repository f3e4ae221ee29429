"""Values for the chart: each changes one thing, and together they change everything."""

from typing import Any, Final

DIGEST: Final = "sha256:" + "0123456789abcdef" * 4

FLIPS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "image": {"image": {"registry": "registry.test:5000", "repository": "team/gpu", "tag": "1.0"}},
    "image-digest": {"image": {"digest": DIGEST}},
    "image-pulling": {"image": {"pullPolicy": "Always", "pullSecrets": ["one", "two"]}},
    "server-replicas": {"server": {"replicas": 3}},
    "server-resources": {
        "server": {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "2Gi"}}}
    },
    "server-no-resources": {
        "server": {
            "resources": {"requests": {"cpu": None, "memory": None}, "limits": {"memory": None}}
        }
    },
    "server-placing": {
        "server": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": None, "nodeAffinity": {}},
            "priorityClassName": "",
            "podAnnotations": {"example.com/note": "yes"},
        }
    },
    "workload-kinds": {
        "settings": {
            "workloads": {
                "kinds": [
                    {
                        "group": "ray.io",
                        "kind": "RayCluster",
                        "resource": "rayclusters",
                        "templates": [
                            "spec.headGroupSpec.template",
                            "spec.workerGroupSpecs.*.template",
                        ],
                    },
                    {
                        "group": "kubeflow.org",
                        "kind": "Notebook",
                        "resource": "notebooks",
                        "templates": ["spec.template"],
                        "copies_annotations": True,
                    },
                ]
            }
        }
    },
    "scheduler-off": {"scheduler": {"enabled": False}},
    "scheduler-image": {
        "scheduler": {
            "image": {
                "registry": "registry.test",
                "repository": "kube-scheduler",
                "tag": "v1.35.0",
                "digest": DIGEST,
                "pullPolicy": "Always",
            }
        }
    },
    "scheduler-pods": {
        "scheduler": {
            "replicas": 1,
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            "affinity": {"podAntiAffinity": None},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "podAnnotations": {"example.com/note": "yes"},
        }
    },
    "no-budgets": {"podDisruptionBudget": {"enabled": False}},
    "no-crds": {"crds": {"enabled": False}},
    "crds-go": {"crds": {"keep": False}},
    "cert-manager": {"tls": {"source": "CertManager"}},
    "cert-manager-issuer": {
        "tls": {
            "source": "CertManager",
            "certManager": {"issuerRef": {"name": "corporate", "kind": "ClusterIssuer"}},
        }
    },
    "network-policies": {"networkPolicy": {"enabled": True}},
    "network-policies-peers": {
        "networkPolicy": {
            "enabled": True,
            "ingressFrom": [{"ipBlock": {"cidr": "10.0.0.0/24"}}, {"podSelector": {}}],
        }
    },
    "monitors": {
        "monitoring": {
            "serviceMonitor": {
                "enabled": True,
                "interval": "15s",
                "labels": {"release": "prom"},
                "usage": True,
            },
            "podMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prom"}},
            "prometheusRule": {
                "enabled": True,
                "labels": {"release": "prom"},
                "runbookPage": "https://docs.example.com/operations/",
            },
            "dashboards": {
                "enabled": True,
                "labels": {"dashboards": "yes"},
                "annotations": {"grafana_folder": "GPU"},
            },
        }
    },
    "no-caches": {"kernelCaches": {"enabled": False}},
    "no-caches-cert-manager": {
        "kernelCaches": {"enabled": False},
        "tls": {"source": "CertManager"},
    },
    "caches": {
        "kernelCaches": {
            "pullSecrets": ["registry-b", "registry-a"],
            "registries": {"caConfigMap": "registries"},
            "verification": {"trustRootConfigMap": "sigstore"},
        },
        "settings": {
            "kernel_caches": {
                "quota": "1Ti",
                "registries": {"plain_http": ["registry.test:5000"]},
                "verification": {"allow_unsigned": True},
            }
        },
    },
    "node-software": {
        "nodeSoftware": {
            "enabled": True,
            "images": {
                "DRIVER_IMAGE": "registry.test/driver:580.95",
                "VALIDATOR_IMAGE": "registry.test/gpu-operator:v26.7.0",
            },
        },
    },
    "node-software-goes": {
        "nodeSoftware": {"enabled": True},
        "crds": {"keep": False},
    },
    "console": {
        "console": {
            "enabled": True,
            "hosts": ["gpu.example.com", "gpu.example.org"],
            "tls": {"secretName": "console-tls"},
            "decisions": True,
        }
    },
    "console-pods": {
        "console": {
            "enabled": True,
            "replicas": 2,
            "plainHttp": True,
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": None},
            "priorityClassName": "system-cluster-critical",
            "podAnnotations": {"example.com/note": "yes"},
        },
        "image": {"pullSecrets": ["one"]},
    },
    "console-cert-manager": {
        "console": {"enabled": True, "hosts": ["gpu.example.com"]},
        "tls": {"source": "CertManager"},
    },
    "console-secret-beside-cert-manager": {
        "console": {"enabled": True, "tls": {"secretName": "console-tls"}},
        "tls": {"source": "CertManager"},
    },
    "console-network-policy": {
        "console": {
            "enabled": True,
            "plainHttp": True,
            "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        },
        "networkPolicy": {"enabled": True},
    },
    "node-feature-rule": {"nodeFeatureRule": {"enabled": True}},
    "managed-fields": {
        "managedFields": {"nodeWriters": ["team:nodes", "infra"], "breakGlassGroup": "team:sre"}
    },
    "no-hook": {"uninstall": {"enabled": False}},
    "forced-hook": {"uninstall": {"force": True}},
    "viewers": {"poolViewers": ["system:authenticated", "team:ml"]},
    "no-viewers": {"poolViewers": []},
    "settings": {
        "settings": {
            "log_level": "debug",
            "drain_s": 6.5,
            "listen": {"port": 9443},
            "leadership": {"enabled": True},
            "inventory": {"managed_by_default": False},
            "pod_security": {"label_namespace": False},
            "health": {"xid_actions": {"94": "GPUReset"}},
            "device_plugin": {"image": "registry.test/plugin:2"},
            "node_agent": {"image_pull_policy": "Never"},
            "bootstrap": {
                "namespaces": ["operands"],
                "gfd": {
                    "enabled": True,
                    "image": "registry.example.com/nvidia/gfd@sha256:" + "0b" * 32,
                },
                "dcgm_exporter": {"image": "registry.example.com/dcgm-exporter:4.2"},
            },
        }
    },
}
"""Name -> values; `null` takes a default away."""
FOREIGN_KINDS = frozenset(
    {
        *("Certificate", "Issuer", "NodeFeatureRule"),
        *("PodMonitor", "PrometheusRule", "ServiceMonitor"),
    }
)
"""Kinds of other projects, which neither Kubernetes nor the API server of a test has."""
