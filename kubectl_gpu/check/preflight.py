"""Checks before an installation: rights, what the control plane needs, and what else serves the devices."""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from api.names import GROUP, NVIDIA_PRESENT_LABEL, RESOURCE_PREFIX
from api.quantity import parse_count
from api.text import listed
from api.vendor import NFD_PRESENT_LABELS, NVIDIA_PREFIX
from inventory.discovery.labels import COUNT_LABEL
from kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODE_FEATURES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from kubectl_gpu.check.findings import fault, good, warning
from kubectl_gpu.check.installation import unread
from kubectl_gpu.check.pools import check_vendors
from manifests.constants import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.foreign.core import Node
    from kube.resources import Resource
    from kubectl_gpu.check.checked_cluster import CheckedCluster
    from kubectl_gpu.check.findings import CheckFinding

RIGHTS: Final = "rights"
CLUSTER: Final = "cluster"
INSTALLED: Final = (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    SERVICES,
    DEPLOYMENTS,
)
"""What an installation creates."""
_SHARING_RESOURCES: Final = ("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/vgpu")
"""Resources of plugins that share devices without NVIDIA's own one."""
_DEVICE_LABELS: Final = (NVIDIA_PRESENT_LABEL, *NFD_PRESENT_LABELS)


def check_rights(
    namespace: str, may_create: "Callable[[Resource], bool]"
) -> "Iterator[CheckFinding]":
    """Yield what the user may not create, or one row if all is allowed."""
    missing = [item for item in INSTALLED if not may_create(item)]
    for item in missing:
        kind = f"{item.plural}.{item.group}" if item.group else item.plural
        where = f" -n {namespace}" if item.namespaced else ""
        yield fault(
            (RIGHTS, f"create {kind}"),
            "this user may not",
            cure=f"kubectl auth can-i create {kind}{where}",
        )
    if not missing:
        yield good((RIGHTS, f"{len(INSTALLED)} kinds"), "this user may create all objects")


def check_cluster(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield what of the cluster an installation needs, and what it would meet."""
    yield from _definitions(cluster)
    yield from _other_installation(cluster)
    if cluster.nodes is None:
        yield unread(cluster, CLUSTER, "nodes")
        return
    yield from _owners(cluster, cluster.nodes)
    yield _devices(cluster.nodes)
    yield from check_vendors(cluster.nodes)


def _definitions(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    if cluster.definitions is None:
        yield unread(cluster, CLUSTER, CUSTOM_RESOURCE_DEFINITIONS.plural)
        return
    names = {definition.metadata.name for definition in cluster.definitions}
    features = f"{NODE_FEATURES.plural}.{NODE_FEATURES.group}"
    if features in names:
        yield good((CLUSTER, "NodeFeature"), "its definition is installed")
    else:
        yield fault(
            (CLUSTER, "NodeFeature"),
            "its definition is missing: node agents report devices with it",
            cure="install Node Feature Discovery, or its CRDs: docs/install.md#before-you-begin",
        )
    ours = sorted(item for item in names if item.endswith(f".{GROUP}"))
    if ours:
        yield warning(
            (CLUSTER, f"kinds of {GROUP}"),
            f"{listed(ours)} are there: the control plane is, or was, installed",
            cure="docs/install.md#upgrade",
        )


def _other_installation(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    for deployment in cluster.deployments or ():
        if deployment.metadata.name == NAME and deployment.metadata.namespace != cluster.namespace:
            yield fault(
                (CLUSTER, f"Deployment {deployment.metadata.namespace}/{NAME}"),
                "a cluster has one installation",
                cure=f"install into {deployment.metadata.namespace}, or uninstall that one first",
            )


def _owners(cluster: "CheckedCluster", nodes: "list[Node]") -> "Iterator[CheckFinding]":
    """Yield which other device plugins serve devices: kubelet would give one device twice."""
    nodes_by_owner: defaultdict[str, list[str]] = defaultdict(list)
    resources: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for resource in _offered(node):
            owner = _owner_of(resource)
            if owner is not None:
                nodes_by_owner[owner].append(node.metadata.name)
                resources[owner].add(resource)
    is_installed = any(
        deployment.metadata.name == NAME and deployment.metadata.namespace == cluster.namespace
        for deployment in cluster.deployments or ()
    )
    for owner, names in sorted(nodes_by_owner.items()):
        offer = f"nodes {listed(set(names), 3)} offer {listed(resources[owner], 3)}"
        if owner == GROUP:
            if not is_installed:
                yield fault(
                    (CLUSTER, f"resources of {GROUP}"),
                    f"{offer}, and no control plane is in {cluster.namespace}",
                    cure="kubectl get daemonsets -A",
                )
            continue
        yield warning(
            (CLUSTER, owner),
            f"{offer}: a device of a pool must have one device plugin",
            cure="kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=false, or docs/install.md#compatibility",
        )
    if not nodes_by_owner:
        yield good((CLUSTER, "device plugins"), "no other one serves NVIDIA's devices")


def _offered(node: "Node") -> "Iterator[str]":
    for name, quantity in (node.status.allocatable or {}).items():
        try:
            if parse_count(str(quantity)):
                yield name
        except ValueError:
            continue


def _owner_of(resource: str) -> str | None:
    if resource.startswith(RESOURCE_PREFIX):
        return GROUP
    if resource in _SHARING_RESOURCES:
        return "a device plugin that shares devices"
    return "NVIDIA's device plugin" if resource.startswith(NVIDIA_PREFIX) else None


def _devices(nodes: "list[Node]") -> "CheckFinding":
    found = [node.metadata.name for node in nodes if _shows_device(node)]
    if found:
        return good((CLUSTER, "devices"), f"nodes {listed(found, 3)} report NVIDIA's devices")
    return warning(
        (CLUSTER, "devices"),
        "no label of a node says that it has one; the node detector finds them after the installation",
        cure="docs/operations.md#which-nodes-have-the-node-agent",
    )


def _shows_device(node: "Node") -> bool:
    labels = node.metadata.labels or {}
    return COUNT_LABEL in labels or any(labels.get(item) == "true" for item in _DEVICE_LABELS)
