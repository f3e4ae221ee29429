"""Rights that an uninstall needs, as roles for the chart's pre-delete hook.

The hook leaves what Helm applied to Helm, so it needs no right on roles, Services or CRDs. An
administrator who runs the command without `--keep-applied` needs these rights too.
"""

from typing import TYPE_CHECKING

from api.names import GKM_GROUP, GROUP
from kube.resources import CLUSTER_POLICIES, NVIDIA_DRIVERS
from manifests import constants
from manifests.install.rbac import PolicyRule
from manifests.install.server_policy import OwnObjects
from reconciler.node_software.software_objects import RESOURCES as SOFTWARE_RESOURCES
from reconciler.operands.live_operands import RESOURCES as OPERAND_RESOURCES
from reconciler.operands.rights import names_by_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

_REGISTRATION = "admissionregistration.k8s.io"
POLICIES = (
    constants.ANNOTATION_POLICY,
    constants.FENCING_POLICY,
    constants.FENCED_POLICY,
    constants.AGENT_POLICY,
    constants.SERVER_POLICY,
    constants.SERVER_OBJECTS_POLICY,
)
"""A policy and its binding have one name."""


def cluster_rules(own: OwnObjects) -> tuple[PolicyRule, ...]:
    """Return the rights in the whole cluster."""
    one = ("delete", "get")
    return (
        PolicyRule(resources=("pods",), verbs=("list",)),
        PolicyRule(resources=("nodes",), verbs=("list", "patch")),
        PolicyRule(resources=("namespaces",), verbs=("get", "patch"), names=(own.namespace,)),
        PolicyRule(group=GROUP, resources=("gpupools",), verbs=("list", "patch")),
        PolicyRule(
            group=GKM_GROUP,
            resources=("clustergkmcachenodes", "clustergkmcaches", "gkmcachenodes", "gkmcaches"),
            verbs=("list", "patch"),
        ),
        PolicyRule(
            group=GROUP,
            resources=("gpucontrolplaneterms",),
            verbs=one,
            names=(constants.LEASE_NAME,),
        ),
        *_operands(namespaced=False),
        *(_node_software(namespaced=False) if own.runs_node_software else ()),
        PolicyRule(
            group=_REGISTRATION,
            resources=("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
            verbs=one,
            names=POLICIES,
        ),
        PolicyRule(
            group=_REGISTRATION,
            resources=("mutatingwebhookconfigurations",),
            verbs=one,
            names=(constants.MUTATING_CONFIGURATION,),
        ),
        PolicyRule(
            group=_REGISTRATION,
            resources=("validatingwebhookconfigurations",),
            verbs=one,
            names=(constants.VALIDATING_CONFIGURATION,),
        ),
    )


def _operands(*, namespaced: bool) -> "Iterator[PolicyRule]":
    """Yield the rights on objects of operands, which the server made."""
    for kind, names in names_by_kind().items():
        resource = OPERAND_RESOURCES[kind]
        if resource.namespaced is namespaced and kind not in {"ConfigMap", "DaemonSet"}:
            target = (resource.plural,)
            yield PolicyRule(group=resource.group, resources=target, verbs=("list",))
            yield PolicyRule(group=resource.group, resources=target, verbs=("delete",), names=names)


def _node_software(*, namespaced: bool) -> "Iterator[PolicyRule]":
    """Yield the rights on objects of ClusterPolicies and NVIDIADrivers, whose names users choose, and on finalizers."""
    for kind, resource in SOFTWARE_RESOURCES.items():
        if resource.namespaced is namespaced and kind not in {"ConfigMap", "DaemonSet"}:
            yield PolicyRule(
                group=resource.group, resources=(resource.plural,), verbs=("delete", "list")
            )
    if not namespaced:
        for resource in (CLUSTER_POLICIES, NVIDIA_DRIVERS):
            yield PolicyRule(
                group=resource.group, resources=(resource.plural,), verbs=("list", "patch")
            )


def namespaced_rules(own: OwnObjects) -> tuple[PolicyRule, ...]:
    """Return the rights in the namespace of the control plane."""
    listed = ("delete", "list")
    return (
        PolicyRule(group="apps", resources=("deployments",), verbs=("list",)),
        # Not `deployments`, which would be a right to run any image in a privileged namespace.
        PolicyRule(group="apps", resources=("deployments/scale",), verbs=("patch",)),
        PolicyRule(group="apps", resources=("daemonsets",), verbs=listed),
        PolicyRule(resources=("configmaps",), verbs=listed),
        PolicyRule(resources=("pods",), verbs=("delete",)),
        *_operands(namespaced=True),
        *(_node_software(namespaced=True) if own.runs_node_software else ()),
        PolicyRule(group="nfd.k8s-sigs.io", resources=("nodefeatures",), verbs=listed),
        PolicyRule(
            group="coordination.k8s.io",
            resources=("leases",),
            verbs=("delete", "get", "update"),
            names=(constants.LEASE_NAME, constants.SCHEDULER_LEASE_NAME),
        ),
        PolicyRule(
            resources=("secrets",),
            verbs=("delete", "get"),
            names=(
                constants.SERVING_SECRET,
                constants.SCHEDULER_SECRET,
                constants.RESERVATION_KEY_SECRET,
                constants.CACHE_KEY_SECRET,
            ),
        ),
    )
