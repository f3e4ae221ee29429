"""Names of objects, ports and paths on which manifests, server and certificates agree."""

from types import MappingProxyType
from typing import Final

from api.names import GROUP
from api.well_known_labels import APP_COMPONENT_LABEL, PART_OF_LABEL

NAME: Final = "gpu-control-plane"
"""Name of the Deployment, Service, service account, roles and policies."""
DEFAULT_NAMESPACE: Final = "gpu-control-plane"
LABELS: Final = MappingProxyType({"app.kubernetes.io/name": NAME, PART_OF_LABEL: NAME})
PART_OF_US: Final = f"{PART_OF_LABEL}={NAME}"
"""Selects our objects."""
SERVER_COMPONENT: Final = "server"
SCHEDULER_COMPONENT: Final = "scheduler"
METRICS_COMPONENT: Final = "metrics"
METRICS_SERVICE: Final = f"{NAME}-metrics"
"""Headless Service of all replicas."""
SERVICE_NAME: Final = NAME
SERVICE_ACCOUNT: Final = NAME
LEASE_NAME: Final = NAME
SERVING_SECRET: Final = f"{NAME}-tls"
"""CA, serving certificate, and kube-scheduler's client certificate for the extender, with all keys."""
SCHEDULER_SECRET: Final = f"{NAME}-scheduler"
"""The part that kube-scheduler mounts: its key pair and the CA's certificate."""
RESERVATION_KEY_SECRET: Final = f"{NAME}-reservations"
"""Key with which all replicas sign and verify the reservations in pods."""
CACHE_KEY_SECRET: Final = f"{NAME}-caches"
"""Keys with which all replicas sign and verify the annotations of caches."""
CACHES: Final = "gpu-kernel-cache"
"""Prefix of the names of roles."""
PULL_SECRETS_ROLE: Final = f"{CACHES}-pull-secrets"
"""ClusterRole that reads Secrets, without a binding: who owns a namespace binds it there, for the pull secrets of its
kernel caches. Role of the same name in our namespace, for those of ClusterGKMCaches."""
REGISTRIES_CA_DIRECTORY: Final = "/etc/gpu-control-plane/registries"
"""Where server and node agents have the ConfigMap with the authorities of kernel caches' registries."""
REGISTRIES_CA_FILE: Final = f"{REGISTRIES_CA_DIRECTORY}/ca.crt"
TRUST_ROOT_DIRECTORY: Final = "/etc/gpu-control-plane/trust-root"
"""Where the server has the ConfigMap with Sigstore's trusted root."""
TRUST_ROOT_FILE: Final = f"{TRUST_ROOT_DIRECTORY}/trusted_root.json"
DASHBOARD_LABELS: Final = MappingProxyType({"grafana_dashboard": "1"})
"""Labels of the dashboards' ConfigMaps: what the sidecar of Grafana's chart looks for by default."""
POOL_VIEWER: Final = f"{NAME}-pool-viewer"
"""ClusterRole that reads GPUPools."""
BALLOON_PRIORITY_CLASS: Final = f"{NAME}-balloon"
"""PriorityClass of the pods that make cluster-autoscaler add a node (backend balloon)."""

POD_SECURITY_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
POD_SECURITY_LABELS: Final = MappingProxyType(
    {
        POD_SECURITY_ENFORCE: "privileged",
        "pod-security.kubernetes.io/audit": "privileged",
        "pod-security.kubernetes.io/warn": "privileged",
    }
)
"""Labels of our namespace, which has to admit the node agents."""

DEVICE_PLUGIN: Final = "gpu-device-plugin"
"""Prefix of the names of a pool's node workloads; name of their service account."""
NODE_AGENT: Final = "gpu-node-agent"
"""Name of the node agent's DaemonSet and service account."""
NODE_DETECTOR: Final = "gpu-node-detector"
"""Name of the node detector's DaemonSet and service account."""
MIG_CONFIG: Final = "gpu-mig"
"""Prefix of the names of ConfigMaps of earlier versions for mig-parted: the server deletes them."""
NODE_AGENT_METRICS: Final = f"{NODE_AGENT}-metrics"
"""Service of the node agents, where they serve the metrics of devices."""
FEATURE_DISCOVERY: Final = "gpu-feature-discovery"
"""Name of the DaemonSet of NVIDIA's gpu-feature-discovery, and in earlier versions of its service account."""
FEATURE_DISCOVERY_ACCOUNT: Final = f"nvidia-{FEATURE_DISCOVERY}"
"""Name of its service account."""
OPERANDS: Final = (
    "gpu-node-validator",
    FEATURE_DISCOVERY,
    FEATURE_DISCOVERY_ACCOUNT,
    "nvidia-dcgm",
    "nvidia-dcgm-exporter",
)
"""DaemonSets and service accounts of the operands, with the objects of the same names."""
FORMER_OPERANDS: Final = ("gpu-dcgm", "gpu-dcgm-exporter")
"""Names of earlier versions, whose objects the server deletes."""
OPERAND_OBJECTS: Final = (*OPERANDS, *FORMER_OPERANDS, NODE_AGENT_METRICS)
"""Names of all objects of the operands (`operands/assets`)."""
AGENT_FEATURE_PREFIX: Final = f"{NAME}-agent-"
"""Prefix of the name of an agent's NodeFeature; the node's name follows."""
DETECTOR_FEATURE_PREFIX: Final = f"{NAME}-detector-"
"""Prefix of the name of a detector's NodeFeature; the node's name follows."""
DISCOVERY_FEATURE_PREFIX: Final = "nvidia-features-for-"
"""Prefix of the name of a gpu-feature-discovery's NodeFeature; the node's name follows."""
AGENT_PORT: Final = 8081
"""Ports for probes and metrics of both, in plain HTTP."""

SCHEDULER_SERVICE_ACCOUNT: Final = "gpu-scheduler"
SCHEDULER_DEPLOYMENT: Final = SCHEDULER_SERVICE_ACCOUNT
"""Our kube-scheduler, its ConfigMap and its PodDisruptionBudget; the leader restarts it when the CA was replaced."""
SCHEDULER_LEASE_NAME: Final = "gpu-scheduler"

CONSOLE: Final = "gpu-console"
"""The console's Deployment, Service, service account, roles and NetworkPolicy."""
CONSOLE_COMPONENT: Final = "console"
CONSOLE_SECRET: Final = f"{CONSOLE}-tls"
"""Secret of the console's Certificate, where cert-manager issues it."""
CONSOLE_VIEWER: Final = f"{CONSOLE}-viewer"
"""ClusterRole of people who read all of the console but for pods, without a binding."""

DEFAULT_EXCLUDED_NAMESPACES: Final = (DEFAULT_NAMESPACE, "kube-system")
"""Namespaces in which no pod depends on the webhooks, and none can request a pool."""

SERVICE_PORT: Final = 443
CONTAINER_PORT: Final = 8443
"""One TLS port for webhooks, extender, probes and metrics."""
HTTPS_PORT_NAME: Final = "https"
HTTP_PORT_NAME: Final = "http"
"""Name of the HTTP port of a console behind something that ends TLS."""
PLAIN_SERVICE_PORT: Final = 80
EXPORTER_PORT_NAME: Final = "metrics"
PROBES_PORT_NAME: Final = "probes"
"""Name of the port for probes of the agents' pods."""

MUTATING_CONFIGURATION: Final = f"zz-{NAME}"
"""Configurations are called in the order of their names: ours is last, so that it sees the
resources that other mutators add. One that adds a pool resource after ours would go unseen."""
VALIDATING_CONFIGURATION: Final = NAME
ANNOTATION_POLICY: Final = f"{NAME}-annotations"
MANAGED_POLICY: Final = f"{NAME}-managed-fields"
FENCING_POLICY: Final = f"{NAME}-leadership"
FENCED_POLICY: Final = f"{NAME}-fenced-bindings"
AGENT_POLICY: Final = f"{NAME}-agents"
CACHE_CLAIMS_POLICY: Final = f"{NAME}-cache-claims"
CLUSTER_CACHE_CLAIMS_POLICY: Final = f"{NAME}-cluster-cache-claims"
SERVER_POLICY: Final = f"{NAME}-server"
BREAK_GLASS_GROUP: Final = f"{NAME}:break-glass"
"""Group whose members may write what the control plane alone writes."""
NODE_WRITERS: Final = tuple(
    f"system:serviceaccount:{namespace}:karpenter" for namespace in ("kube-system", "karpenter")
)
"""Users that register Nodes with labels and taints of the control plane."""
SERVER_OBJECTS_POLICY: Final = f"{NAME}-server-objects"

PODS_WEBHOOK: Final = f"pods.{GROUP}"
LABELLED_PODS_WEBHOOK: Final = f"labelled-pods.{GROUP}"
WORKLOADS_WEBHOOK: Final = f"workloads.{GROUP}"
"""Suffix of the names of the webhooks for kinds with pod templates."""
POOLS_WEBHOOK: Final = f"gpupools.{GROUP}"
DEVICES_WEBHOOK: Final = f"gpudevices.{GROUP}"
NODES_WEBHOOK: Final = f"nodes.{GROUP}"
MUTATE_CACHES_WEBHOOK: Final = "z-mgkmcache.kb.io"
"""The names and paths of caches' webhooks are GKM's. A z, so that they sort behind Kyverno's."""
MUTATE_CLUSTER_CACHES_WEBHOOK: Final = "z-mclustergkmcache.kb.io"
VALIDATE_CACHES_WEBHOOK: Final = "z-vgkmcache.kb.io"
VALIDATE_CLUSTER_CACHES_WEBHOOK: Final = "z-vclustergkmcache.kb.io"

MUTATE_PODS_PATH: Final = "/mutate/pods"
VALIDATE_PODS_PATH: Final = "/validate/pods"
MUTATE_WORKLOADS_PATH: Final = "/mutate/workloads"
VALIDATE_POOLS_PATH: Final = "/validate/gpupools"
MUTATE_DEVICES_PATH: Final = "/mutate/gpudevices"
VALIDATE_DEVICES_PATH: Final = "/validate/gpudevices"
VALIDATE_NODES_PATH: Final = "/validate/nodes"
MUTATE_CACHES_PATH: Final = "/mutate-gkm-io-v1alpha1-gkmcache"
MUTATE_CLUSTER_CACHES_PATH: Final = "/mutate-gkm-io-v1alpha1-clustergkmcache"
VALIDATE_CACHES_PATH: Final = "/validate-gkm-io-v1alpha1-gkmcache"
VALIDATE_CLUSTER_CACHES_PATH: Final = "/validate-gkm-io-v1alpha1-clustergkmcache"

EXTENDER_PREFIX: Final = "/scheduler"
FILTER_VERB: Final = "filter"
PRIORITIZE_VERB: Final = "prioritize"
PREEMPT_VERB: Final = "preempt"
BIND_VERB: Final = "bind"
FILTER_PATH: Final = f"{EXTENDER_PREFIX}/{FILTER_VERB}"
PRIORITIZE_PATH: Final = f"{EXTENDER_PREFIX}/{PRIORITIZE_VERB}"
PREEMPT_PATH: Final = f"{EXTENDER_PREFIX}/{PREEMPT_VERB}"
BIND_PATH: Final = f"{EXTENDER_PREFIX}/{BIND_VERB}"

LIVENESS_PATH: Final = "/livez"
READINESS_PATH: Final = "/readyz"
SYNCED_PATH: Final = f"{READINESS_PATH}/synced"
"""Also 200 for a replica that stands by: the readiness of a pod where the leader is found otherwise."""
METRICS_PATH: Final = "/metrics"
USAGE_METRICS_PATH: Final = "/metrics/usage"
"""Metrics that name namespaces and pods: for callers with the right to get this path."""
METRICS_READER: Final = "gpu-metrics-reader"
"""ClusterRole of these callers."""
SCALING_PATH: Final = "/debug/scale"
"""Nodes that are asked for, and why pods wait: for those who may call the scheduler's paths."""
DEVICE_METRICS_PATH: Final = "/metrics/devices"
"""HTTP path of node agents: metrics of their devices."""


def service_account_username(namespace: str, name: str = SERVICE_ACCOUNT) -> str:
    """Return the user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def component_labels(component: str) -> dict[str, str]:
    """Return the labels by which Deployment, Service and policies select the pods of a component."""
    return {"app.kubernetes.io/name": NAME, APP_COMPONENT_LABEL: component}
