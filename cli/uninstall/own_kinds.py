"""Everything of the control plane that a cluster may have: a table of kinds, in the order in which their objects go.

A survey reads its rows, the plan goes by its stages, and the rights of the chart's hook are those of its rows. The order
keeps three promises.

* No creation of a pod fails. What validates goes first, the policy of pods and the validating
  webhooks: without the mutating webhook either would refuse every pod that requests a pool, for as
  long as a run that is killed between them is not repeated. Webhooks go while the server still
  answers them.
* Nothing comes back. The Lease is held by the uninstall and the Deployments are scaled to 0, so no
  replica, inside or outside the cluster, reconciles any more. Pods that ask an autoscaler for nodes
  go next, which would get one after the other. The agents go before the objects that
  they publish, and policies of the server and the agents stay until both are gone. Within a stage
  the binding of a policy goes before the policy, a Secret after the Certificate of which
  cert-manager would make it again, and rights last.
* It can be repeated. A step depends on what is there and on nothing that an earlier run remembers.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.names import (
    COMPONENT_LABEL,
    GKM_GROUP,
    GROUP,
    OPERAND_LABEL,
    POOL_LABEL,
    SCALE_SIGNAL,
)
from kube import resources as kinds
from manifests import constants
from manifests.install.uninstall_hook import NAME as UNINSTALL_HOOK
from reconciler.node_software.built_in_operands import OF_CLUSTER_POLICIES
from reconciler.node_software.built_in_rights import deleted_names
from reconciler.node_software.objects import BUILT_IN_RESOURCES, RESOURCES
from reconciler.node_software.rights import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.meta import ObjectMeta
    from kube.resources import Resource
    from manifests.install.server_policy import OwnObjects

_STATES: Final = ",".join(sorted(OF_CLUSTER_POLICIES))
_BUILT_IN: Final = f"{OPERAND_LABEL},{OPERAND_LABEL} notin ({_STATES})"
"""Objects of states that the built-in policy has, whether it or a ClusterPolicy asks for them."""
_OF_POLICIES: Final = f"{OPERAND_LABEL} in ({_STATES})"
_ISSUED: Final = "cert-manager.io/certificate-name"
"""On Secrets that cert-manager makes again as long as their Certificate is there."""
_OF_CACHES: Final = (
    kinds.CLUSTER_GKM_CACHES,
    kinds.CLUSTER_GKM_CACHE_NODES,
    kinds.GKM_CACHES,
    kinds.GKM_CACHE_NODES,
)
_DEFINED: Final = (
    *_OF_CACHES,
    *(kinds.GPU_DEVICES, kinds.GPU_NODE_INVENTORIES, kinds.GPU_POOLS),
)
_OF_SERVER: Final = {
    kinds.GPU_CONTROL_PLANE_TERMS: constants.LEASE_NAME,
    kinds.GPU_CONTROL_PLANE_CONFIGS: constants.NAME,
}
"""Kinds with one object, which the server makes, and its name."""
_RIGHTS: Final = (
    kinds.SERVICE_ACCOUNTS,
    kinds.ROLE_BINDINGS,
    kinds.CLUSTER_ROLE_BINDINGS,
    kinds.ROLES,
    kinds.CLUSTER_ROLES,
)
_MADE_BY_SERVER: Final = (
    *sorted(
        {*RESOURCES.values()} - {*_RIGHTS},
        key=lambda resource: resource.kind,
    ),
    *_RIGHTS,
)
_APPLIED: Final = (
    kinds.DEPLOYMENTS,
    kinds.CERTIFICATES,
    kinds.CONFIG_MAPS,
    kinds.CSI_DRIVERS,
    kinds.ISSUERS,
    kinds.NETWORK_POLICIES,
    kinds.POD_DISRUPTION_BUDGETS,
    kinds.POD_MONITORS,
    kinds.PROMETHEUS_RULES,
    kinds.SERVICES,
    kinds.SERVICE_MONITORS,
)
_POLICIES: Final = (
    constants.FENCING_POLICY,
    constants.FENCED_POLICY,
    constants.AGENT_POLICY,
    constants.SERVER_POLICY,
    constants.SERVER_OBJECTS_POLICY,
    constants.CACHE_CLAIMS_POLICY,
    constants.CLUSTER_CACHE_CLAIMS_POLICY,
)


_SECRETS: Final = (
    constants.SCHEDULER_SECRET,
    constants.RESERVATION_KEY_SECRET,
    constants.CACHE_KEY_SECRET,
)


class RemovalStage(Enum):
    """One part of the removal; in order."""

    VALIDATION = "validation"
    MUTATION = "mutation"
    SERVER = "server"
    SIGNALS = "requests for nodes"
    AGENTS = "agents and device plugins"
    NODE_FEATURES = "reports of the agents"
    NODES = "labels, annotations and taints of nodes"
    FINALIZERS = "finalizers of pools and kernel caches"
    POLICIES = "policies of server and agents"
    STATE = "state of the server"
    NAMESPACE_LABELS = "labels of the namespace"
    APPLIED = "applied objects"
    OBJECTS = "objects of our kinds"
    DEFINITIONS = "definitions of our kinds"
    NAMESPACE = "namespace"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOptions:
    """What is to be removed, and how to go about it."""

    own: "OwnObjects"
    with_applied: bool = True
    """Also Deployments, Services, roles and the Namespace; otherwise the tool that applied them
    deletes them."""
    with_crds: bool = False
    """Also the definitions of our kinds, and their objects."""
    is_forced: bool = False
    """Remove the control plane under pods that use its units."""
    is_dry_run: bool = False
    timeout_s: float = 120.0

    def reads(self, stage: RemovalStage) -> bool:
        """Say whether the objects of a stage are read at all; objects of our kinds at least to be counted."""
        if stage in {RemovalStage.OBJECTS, RemovalStage.DEFINITIONS}:
            return self.with_applied or self.with_crds
        return self.with_applied or stage is not RemovalStage.APPLIED


@final
@dataclass(frozen=True, slots=True)
class OwnKind:
    """A row of the table: objects of a kind that go in a stage."""

    stage: RemovalStage
    resource: "Resource"
    names: tuple[str, ...] = ()
    """Names of objects that are read one by one; empty: a list is read."""
    labels: str | None = None
    """Selector of a list."""
    namespace: str | None = None
    """Another one than ours."""
    prefixes: tuple[str, ...] = ("",)
    """Beginnings of names."""
    is_issued: bool | None = None
    """Whether they are Secrets of Certificates; None: either."""
    of_node_software: bool = False
    """There only where ClusterPolicies are served."""
    deletable: tuple[str, ...] = ()
    """Names that objects of a list may have: the hook may delete no others."""

    def namespace_in(self, own: "OwnObjects") -> str | None:
        """Return where its objects are; None: in the whole cluster, as those of users."""
        is_of_users = self.stage in {RemovalStage.FINALIZERS, RemovalStage.OBJECTS}
        here = own.namespace if self.resource.namespaced and not is_of_users else None
        return self.namespace or here

    def has(self, meta: "ObjectMeta") -> bool:
        """Say whether an object of the kind, the labels and the namespace belongs to the row."""
        return (
            meta.name.startswith(self.prefixes)
            and self.is_issued in {None, meta.annotation(_ISSUED) is not None}
            and (
                self.stage is not RemovalStage.FINALIZERS
                or any(map(is_our_finalizer, meta.finalizers or ()))
            )
        )


def own_kinds() -> "Iterator[OwnKind]":
    """Yield the table, which is the same for every installation."""
    stage = RemovalStage
    secrets = (constants.SERVING_SECRET, *_SECRETS)
    leases = (constants.LEASE_NAME, constants.SCHEDULER_LEASE_NAME)
    features = (constants.AGENT_FEATURE_PREFIX, constants.DETECTOR_FEATURE_PREFIX)
    validating = (constants.VALIDATING_CONFIGURATION,)
    mutating = (constants.MUTATING_CONFIGURATION,)
    definitions = tuple(f"{item.plural}.{item.group}" for item in (*_DEFINED, *_OF_SERVER))
    yield from _policies(stage.VALIDATION, constants.ANNOTATION_POLICY, constants.MANAGED_POLICY)
    yield OwnKind(stage.VALIDATION, kinds.VALIDATING_WEBHOOK_CONFIGURATIONS, validating)
    yield OwnKind(stage.MUTATION, kinds.MUTATING_WEBHOOK_CONFIGURATIONS, mutating)
    yield OwnKind(stage.SIGNALS, kinds.PODS, labels=f"{COMPONENT_LABEL}={SCALE_SIGNAL}")
    yield from _of_agents()
    yield OwnKind(stage.NODE_FEATURES, kinds.NODE_FEATURES, prefixes=features)
    for resource in (*_OF_CACHES, kinds.GPU_POOLS):
        yield OwnKind(stage.FINALIZERS, resource)
    # They are not ours: definitions and objects stay, also with `with_crds`.
    for resource in (kinds.CLUSTER_POLICIES, kinds.NVIDIA_DRIVERS):
        yield OwnKind(stage.FINALIZERS, resource, of_node_software=True)
    yield from _policies(stage.POLICIES, *_POLICIES)
    for resource, name in _OF_SERVER.items():
        yield OwnKind(stage.STATE, resource, (name,))
    yield OwnKind(stage.STATE, kinds.LEASES, leases)
    yield OwnKind(stage.STATE, kinds.SECRETS, secrets, is_issued=False)
    yield from _applied(secrets)
    for resource in _DEFINED:
        yield OwnKind(stage.OBJECTS, resource)
    yield OwnKind(stage.DEFINITIONS, kinds.CUSTOM_RESOURCE_DEFINITIONS, definitions)


def _policies(stage: RemovalStage, *names: str) -> "Iterator[OwnKind]":
    yield OwnKind(stage, kinds.VALIDATING_ADMISSION_POLICY_BINDINGS, names)
    yield OwnKind(stage, kinds.VALIDATING_ADMISSION_POLICIES, names)


def _of_agents() -> "Iterator[OwnKind]":
    """Yield DaemonSets of the control plane, ConfigMaps of pools, and the objects of operands and ClusterPolicies."""
    agents = RemovalStage.AGENTS
    selectors = {
        kinds.DAEMON_SETS: f"{constants.PART_OF_US},!{OPERAND_LABEL}",
        kinds.CONFIG_MAPS: f"{constants.PART_OF_US},{POOL_LABEL}",
    }
    for resource in _MADE_BY_SERVER:
        if resource in selectors:
            yield OwnKind(agents, resource, labels=selectors[resource])
        if resource in BUILT_IN_RESOURCES.values():
            deletable = () if resource in selectors else deleted_names(resource.kind)
            yield OwnKind(agents, resource, labels=_BUILT_IN, deletable=deletable)
        if resource in (*KINDS, *selectors):
            yield OwnKind(agents, resource, labels=_OF_POLICIES, of_node_software=True)


def _applied(secrets: tuple[str, ...]) -> "Iterator[OwnKind]":
    """Yield what was applied, and not made by the server since."""
    applied, labels = RemovalStage.APPLIED, f"{constants.PART_OF_US},!{POOL_LABEL},!{OPERAND_LABEL}"
    # Of the chart's Issuer and of the console; the operator may have made the latter instead.
    issued = (*secrets, f"{constants.NAME}-ca", constants.CONSOLE_SECRET)
    for resource in _APPLIED:
        yield OwnKind(applied, resource, labels=labels)
    yield from _policies(applied, UNINSTALL_HOOK)
    yield OwnKind(applied, kinds.SECRETS, issued, is_issued=True)
    # kube-scheduler's account has one there.
    yield OwnKind(
        applied, kinds.ROLE_BINDINGS, labels=constants.PART_OF_US, namespace="kube-system"
    )
    for resource in _RIGHTS:
        yield OwnKind(applied, resource, labels=labels)


def is_ours(key: str) -> bool:
    """Return whether a label, annotation or finalizer has our domain."""
    domain = key.partition("/")[0]
    return domain == GROUP or domain.endswith(f".{GROUP}")


def is_our_finalizer(key: str) -> bool:
    """Return whether it is of a pool, of a kernel cache, or of a node object of kernel caches."""
    return is_ours(key) or (key.startswith(f"{GKM_GROUP}.") and key.endswith("/finalizer"))
