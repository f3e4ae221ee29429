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
    POLICY_STATE_LABEL,
    POOL_LABEL,
    SCALE_SIGNAL,
)
from kube import resources as kinds
from manifests import constants
from manifests.install.uninstall_hook import NAME as UNINSTALL_HOOK
from reconciler.node_software.software_objects import RESOURCES as SOFTWARE_RESOURCES
from reconciler.operands.live_operands import LABEL_SELECTOR as OPERANDS
from reconciler.operands.live_operands import RESOURCES as OPERAND_RESOURCES
from reconciler.operands.rights import deleted_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.meta import ObjectMeta
    from kube.resources import Resource
    from manifests.install.server_policy import OwnObjects

PART_OF_US: Final = f"app.kubernetes.io/part-of={constants.NAME}"
_SYSTEM_NAMESPACE: Final = "kube-system"
"""kube-scheduler's account has a RoleBinding there."""
_ISSUED: Final = "cert-manager.io/certificate-name"
"""On Secrets that cert-manager makes again as long as their Certificate is there."""
_OF_CACHES: Final = (
    kinds.CLUSTER_GKM_CACHES,
    kinds.CLUSTER_GKM_CACHE_NODES,
    kinds.GKM_CACHES,
    kinds.GKM_CACHE_NODES,
)
_OF_GPU_OPERATOR: Final = (kinds.CLUSTER_POLICIES, kinds.NVIDIA_DRIVERS)
"""They are not ours: definitions and objects stay, also with `with_crds`."""
_DEFINED: Final = (
    *_OF_CACHES,
    kinds.GPU_DEVICES,
    kinds.GPU_NODE_INVENTORIES,
    kinds.GPU_POOLS,
)
_RIGHTS: Final = (
    kinds.SERVICE_ACCOUNTS,
    kinds.ROLE_BINDINGS,
    kinds.CLUSTER_ROLE_BINDINGS,
    kinds.ROLES,
    kinds.CLUSTER_ROLES,
)
MADE_BY_SERVER: Final = (
    kinds.CONFIG_MAPS,
    kinds.DAEMON_SETS,
    kinds.PROMETHEUS_RULES,
    kinds.RUNTIME_CLASSES,
    kinds.SERVICES,
    kinds.SERVICE_MONITORS,
    kinds.VERTICAL_POD_AUTOSCALERS,
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
class RemovalScope:
    """What is to be removed."""

    own: "OwnObjects"
    with_applied: bool = True
    """Also Deployments, Services, roles and the Namespace; otherwise the tool that applied them
    deletes them."""
    with_crds: bool = False
    """Also the definitions of our kinds, and their objects."""

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
    """Of objects that are read one by one; empty: a list is read."""
    labels: str | None = None
    """Selector of a list."""
    namespace: str | None = None
    """None: of the whole cluster."""
    prefixes: tuple[str, ...] = ("",)
    """Beginnings of names."""
    is_issued: bool | None = None
    """Whether they are Secrets of Certificates; None: either."""
    of_node_software: bool = False
    """There only where ClusterPolicies are served."""
    deletable: tuple[str, ...] = ()
    """Names that objects of a list may have: the hook may delete no others."""

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


def own_kinds(own: "OwnObjects") -> "Iterator[OwnKind]":
    """Yield the table for an installation with these names."""
    here = own.namespace
    secrets = (
        constants.SERVING_SECRET,
        constants.SCHEDULER_SECRET,
        constants.RESERVATION_KEY_SECRET,
        constants.CACHE_KEY_SECRET,
    )
    leases = (constants.LEASE_NAME, constants.SCHEDULER_LEASE_NAME)
    features = (constants.AGENT_FEATURE_PREFIX, constants.DETECTOR_FEATURE_PREFIX)
    validating = (constants.VALIDATING_CONFIGURATION,)
    mutating = (constants.MUTATING_CONFIGURATION,)
    signals = f"{COMPONENT_LABEL}={SCALE_SIGNAL}"
    yield from _policies(RemovalStage.VALIDATION, constants.ANNOTATION_POLICY)
    yield OwnKind(RemovalStage.VALIDATION, kinds.VALIDATING_WEBHOOK_CONFIGURATIONS, validating)
    yield OwnKind(RemovalStage.MUTATION, kinds.MUTATING_WEBHOOK_CONFIGURATIONS, mutating)
    yield OwnKind(RemovalStage.SIGNALS, kinds.PODS, labels=signals, namespace=here)
    yield from _of_agents(here)
    yield OwnKind(
        RemovalStage.NODE_FEATURES, kinds.NODE_FEATURES, namespace=here, prefixes=features
    )
    for resource in (*_OF_CACHES, kinds.GPU_POOLS, *_OF_GPU_OPERATOR):
        is_theirs = resource in _OF_GPU_OPERATOR
        yield OwnKind(RemovalStage.FINALIZERS, resource, of_node_software=is_theirs)
    yield from _policies(RemovalStage.POLICIES, *_POLICIES)
    yield OwnKind(RemovalStage.STATE, kinds.GPU_CONTROL_PLANE_TERMS, (constants.LEASE_NAME,))
    yield OwnKind(RemovalStage.STATE, kinds.LEASES, leases, namespace=here)
    yield OwnKind(RemovalStage.STATE, kinds.SECRETS, secrets, namespace=here, is_issued=False)
    yield from _applied(here, secrets)
    for resource in _DEFINED:
        yield OwnKind(RemovalStage.OBJECTS, resource)
    defined = (*_DEFINED, kinds.GPU_CONTROL_PLANE_TERMS)
    names = tuple(f"{resource.plural}.{resource.group}" for resource in defined)
    yield OwnKind(RemovalStage.DEFINITIONS, kinds.CUSTOM_RESOURCE_DEFINITIONS, names)


def _policies(stage: RemovalStage, *names: str) -> "Iterator[OwnKind]":
    yield OwnKind(stage, kinds.VALIDATING_ADMISSION_POLICY_BINDINGS, names)
    yield OwnKind(stage, kinds.VALIDATING_ADMISSION_POLICIES, names)


def _of_agents(here: str) -> "Iterator[OwnKind]":
    """Yield DaemonSets of the control plane, ConfigMaps of pools, and the objects of operands and ClusterPolicies."""
    selectors = {
        kinds.DAEMON_SETS: f"{PART_OF_US},!{OPERAND_LABEL}",
        kinds.CONFIG_MAPS: f"{PART_OF_US},{POOL_LABEL}",
    }
    for resource in MADE_BY_SERVER:
        namespace = here if resource.namespaced else None
        if resource in selectors:
            yield OwnKind(
                RemovalStage.AGENTS, resource, labels=selectors[resource], namespace=namespace
            )
        if resource in OPERAND_RESOURCES.values():
            yield OwnKind(
                RemovalStage.AGENTS,
                resource,
                labels=OPERANDS,
                namespace=namespace,
                deletable=() if resource in selectors else deleted_names(resource.kind),
            )
        if resource in SOFTWARE_RESOURCES.values():
            yield OwnKind(
                RemovalStage.AGENTS,
                resource,
                labels=POLICY_STATE_LABEL,
                namespace=namespace,
                of_node_software=True,
            )


def _applied(here: str, secrets: tuple[str, ...]) -> "Iterator[OwnKind]":
    # Of the chart's Issuer and of the console; the operator may have made the latter instead.
    issued = (*secrets, f"{constants.NAME}-ca", constants.CONSOLE_SECRET)
    for resource in _APPLIED:
        yield _labelled(resource, here)
    yield from _policies(RemovalStage.APPLIED, UNINSTALL_HOOK)
    yield OwnKind(RemovalStage.APPLIED, kinds.SECRETS, issued, namespace=here, is_issued=True)
    for resource in _RIGHTS:
        yield _labelled(resource, here)
        if resource == kinds.ROLE_BINDINGS:
            system = _SYSTEM_NAMESPACE
            yield OwnKind(RemovalStage.APPLIED, resource, labels=PART_OF_US, namespace=system)


def _labelled(resource: "Resource", here: str) -> OwnKind:
    """Return the row of what was applied, and not made by the server since."""
    labels = f"{PART_OF_US},!{POOL_LABEL},!{OPERAND_LABEL}"
    namespace = here if resource.namespaced else None
    return OwnKind(RemovalStage.APPLIED, resource, labels=labels, namespace=namespace)


def is_ours(key: str) -> bool:
    """Return whether a label, annotation or finalizer has our domain."""
    domain = key.partition("/")[0]
    return domain == GROUP or domain.endswith(f".{GROUP}")


def is_our_finalizer(key: str) -> bool:
    """Return whether it is of a pool, of a kernel cache, or of a node object of kernel caches."""
    return is_ours(key) or (key.startswith(f"{GKM_GROUP}.") and key.endswith("/finalizer"))
