"""What of the control plane is in a cluster: objects by the stage in which they go, nodes, pods.

Objects that the server makes have fixed names or labels; applied ones have the label
`app.kubernetes.io/part-of`. Only metadata is kept, so no Secret's content is decoded.
"""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from api.csi.names import DRIVER_NAME
from api.driver_upgrade import CORDON_MANAGER
from api.foreign.core import ManagedFieldsEntry, Node, NodeMetadata, Pod
from api.meta import Model, ObjectMeta
from api.names import (
    COMPONENT_LABEL,
    OPERAND_LABEL,
    POLICY_STATE_LABEL,
    POOL_LABEL,
    SCALE_SIGNAL,
)
from kube.errors import Forbidden, NotFound
from kube.leader_election import Lease
from kube.resources import (
    CERTIFICATES,
    CLUSTER_GKM_CACHE_NODES,
    CLUSTER_GKM_CACHES,
    CLUSTER_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CSI_DRIVERS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    GKM_CACHE_NODES,
    GKM_CACHES,
    GPU_CONTROL_PLANE_TERMS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    ISSUERS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODE_FEATURES,
    NODES,
    NVIDIA_DRIVERS,
    POD_DISRUPTION_BUDGETS,
    POD_MONITORS,
    PODS,
    PROMETHEUS_RULES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from manifests import constants
from manifests.install.uninstall_hook import NAME as UNINSTALL_HOOK
from pool.facts import node_facts, pod_facts
from reconciler.node_software.software_objects import RESOURCES as SOFTWARE_RESOURCES
from reconciler.operands.live_operands import LABEL_SELECTOR as OPERANDS
from reconciler.operands.live_operands import RESOURCES as OPERAND_RESOURCES
from reconciler.uninstall.removal_plan import (
    Found,
    FoundLease,
    FoundNamespace,
    FoundNode,
    FoundObject,
    Stage,
    is_our_finalizer,
    is_ours,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kube.client import KubeClient
    from kube.decoding import Listing
    from kube.resources import Resource
    from manifests.install.server_policy import OwnObjects

T = TypeVar("T")

PART_OF_US: Final = f"app.kubernetes.io/part-of={constants.NAME}"
PAGE_SIZE: Final = 500
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
_ISSUED: Final = "cert-manager.io/certificate-name"
"""On Secrets that cert-manager makes again as long as their Certificate is there."""
_OF_CACHES: Final = (GKM_CACHES, CLUSTER_GKM_CACHES, GKM_CACHE_NODES, CLUSTER_GKM_CACHE_NODES)
_WITH_FINALIZERS: Final = (GPU_POOLS, *_OF_CACHES)
_OF_GPU_OPERATOR: Final = (CLUSTER_POLICIES, NVIDIA_DRIVERS)
"""They are not ours: definitions and objects stay, also with `with_crds`."""
_DEFINED: Final = (
    GPU_POOLS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_CONTROL_PLANE_TERMS,
    *_OF_CACHES,
)
_APPLIED_IN_NAMESPACE: Final = (
    DEPLOYMENTS,
    SERVICES,
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    SERVICE_MONITORS,
    POD_MONITORS,
    PROMETHEUS_RULES,
    CERTIFICATES,
    ISSUERS,
    SERVICE_ACCOUNTS,
    ROLE_BINDINGS,
    ROLES,
)
_APPLIED_IN_CLUSTER: Final = (CSI_DRIVERS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES)
_SYSTEM_NAMESPACE: Final = "kube-system"
"""kube-scheduler's account has a RoleBinding there."""
_POLICIES_OF_OTHERS: Final = (
    constants.FENCING_POLICY,
    constants.FENCED_POLICY,
    constants.AGENT_POLICY,
    constants.SERVER_POLICY,
    constants.SERVER_OBJECTS_POLICY,
)


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


class _Object(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _Service(Model, frozen=True):
    namespace: str = ""


class _ClientConfig(Model, frozen=True):
    service: _Service | None = None


class _Webhook(Model, frozen=True):
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[_Webhook] | None = None


class _Namespace(Model, frozen=True):
    metadata: NodeMetadata = NodeMetadata()


class _DeploymentSpec(Model, frozen=True):
    replicas: int = 1


class _Deployment(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DeploymentSpec = _DeploymentSpec()


class _CSIVolume(Model, frozen=True):
    driver: str = ""


class _Volume(Model, frozen=True):
    csi: _CSIVolume | None = None


class _PodSpec(Model, frozen=True):
    node_name: str = ""
    volumes: list[_Volume] | None = None


class _PodStatus(Model, frozen=True):
    phase: str = ""


class _PodWithVolumes(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


def _mounting_pod(pod: _PodWithVolumes) -> str | None:
    """Return a pod that is on a node and has a volume of a kernel cache, as namespace/name."""
    drivers = {volume.csi.driver for volume in pod.spec.volumes or () if volume.csi is not None}
    is_over = not pod.spec.node_name or pod.status.phase in {"Failed", "Succeeded"}
    if is_over or DRIVER_NAME not in drivers:
        return None
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


async def survey(client: "KubeClient", scope: RemovalScope) -> Found:
    """Read everything of the control plane.

    Raises:
        KubeError: something could not be read.
    """
    own, reading = scope.own, _Reading(client)
    deployments = await reading.listed(
        DEPLOYMENTS, _Deployment, namespace=own.namespace, label_selector=PART_OF_US
    )
    secrets, issued = await _secrets(reading, own)
    validating = await reading.webhooks(
        VALIDATING_WEBHOOK_CONFIGURATIONS, constants.VALIDATING_CONFIGURATION
    )
    mutating = await reading.webhooks(
        MUTATING_WEBHOOK_CONFIGURATIONS, constants.MUTATING_CONFIGURATION
    )
    with_software = own.runs_node_software and await reading.may_list(CLUSTER_POLICIES)
    with_finalizers = (*_WITH_FINALIZERS, *(_OF_GPU_OPERATOR if with_software else ()))
    software = await _node_software(reading, own.namespace) if with_software else []
    objects = {
        Stage.VALIDATION: [
            *await reading.policies(constants.ANNOTATION_POLICY),
            *(found for found, _ in validating),
        ],
        Stage.MUTATION: [found for found, _ in mutating],
        Stage.SIGNALS: await reading.all_of(
            PODS, namespace=own.namespace, label_selector=f"{COMPONENT_LABEL}={SCALE_SIGNAL}"
        ),
        Stage.AGENTS: [*await _agents(reading, own.namespace), *software],
        Stage.NODE_FEATURES: [
            item
            for item in await reading.all_of(NODE_FEATURES, namespace=own.namespace)
            if item.name.startswith(
                (constants.AGENT_FEATURE_PREFIX, constants.DETECTOR_FEATURE_PREFIX)
            )
        ],
        Stage.FINALIZERS: [
            item
            for kind in with_finalizers
            for item in await reading.all_of(kind)
            if any(is_our_finalizer(name) for name in item.finalizers)
        ],
        Stage.POLICIES: await reading.policies(*_POLICIES_OF_OTHERS),
        Stage.STATE: [*await _state(reading, own), *secrets],
    }
    knows_kinds = scope.with_applied or scope.with_crds
    definitions, defined = await _kinds(reading) if knows_kinds else ([], [])
    if scope.with_applied:
        left_by_hook = await reading.policies(UNINSTALL_HOOK)
        objects[Stage.APPLIED] = [
            *await _applied(reading, own.namespace),
            *issued,
            *left_by_hook,
        ]
        objects[Stage.NAMESPACE] = await _namespace(reading, own.namespace)
    if scope.with_crds:
        objects[Stage.OBJECTS], objects[Stage.DEFINITIONS] = defined, definitions
    return Found(
        objects_by_stage={stage: tuple(found) for stage, found in objects.items()},
        nodes=tuple(await reading.projected(NODES, Node, _found_node)),
        running_deployments=tuple(
            _found(DEPLOYMENTS, deployment.metadata)
            for deployment in deployments
            if deployment.spec.replicas
        ),
        lease=await reading.lease(own),
        namespace=await reading.labelled_namespace(own.namespace),
        served_from=frozenset(
            name for _, namespaces in (*validating, *mutating) for name in namespaces
        ),
        pods=tuple(await reading.projected(PODS, Pod, pod_facts)),
        cache_pods=tuple(sorted(await reading.projected(PODS, _PodWithVolumes, _mounting_pod))),
        kept=() if scope.with_crds else (*definitions, *defined),
        unread=tuple(dict.fromkeys(reading.unread)),
    )


@final
class _Reading:
    """Reads of the API server; a kind that is not served has no objects."""

    def __init__(self, client: "KubeClient") -> None:
        self._client = client
        self.unread: list[str] = []
        """Kind and name of each object that this version cannot read."""

    async def projected(
        self, resource: "Resource", item_type: type[Any], project: "Callable[[Any], T | None]"
    ) -> list[T]:
        listing = await self._client.list_as(resource, item_type, project, page_size=PAGE_SIZE)
        self._note_unread(resource, listing)
        return listing.items

    async def listed(
        self,
        resource: "Resource",
        item_type: type[T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> list[T]:
        try:
            listing = await self._client.list_(
                resource,
                item_type,
                namespace=namespace,
                label_selector=label_selector,
                page_size=PAGE_SIZE,
            )
        except NotFound:
            if await self._client.is_not_served(resource):
                return []
            raise
        self._note_unread(resource, listing)
        return listing.items

    def _note_unread(self, resource: "Resource", listing: "Listing[Any]") -> None:
        self.unread += (
            f"{resource.kind} {item.namespace}/{item.name}"
            if item.namespace
            else f"{resource.kind} {item.name}"
            for item in listing.unread
        )

    async def may_list(self, resource: "Resource") -> bool:
        """Say whether this account has the right; an installation without the feature gives it to nobody."""
        try:
            await self.listed(resource, _Object)
        except Forbidden:
            return False
        return True

    async def all_of(
        self,
        resource: "Resource",
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
    ) -> list[FoundObject]:
        objects = await self.listed(
            resource, _Object, namespace=namespace, label_selector=label_selector
        )
        return [_found(resource, object_.metadata) for object_ in objects]

    async def named(
        self, resource: "Resource", *names: str, namespace: str | None = None
    ) -> list[FoundObject]:
        found: list[FoundObject] = []
        for name in names:
            try:
                one = await self._client.get(resource, _Object, name, namespace=namespace)
            except NotFound:
                continue
            found.append(_found(resource, one.metadata))
        return found

    async def webhooks(
        self, resource: "Resource", name: str
    ) -> list[tuple[FoundObject, frozenset[str]]]:
        """Return a configuration, and the namespaces of the Services that it calls."""
        try:
            one = await self._client.get(resource, _Configuration, name)
        except NotFound:
            return []
        services = (webhook.client_config.service for webhook in one.webhooks or ())
        namespaces = frozenset(service.namespace for service in services if service is not None)
        return [(_found(resource, one.metadata), namespaces)]

    async def policies(self, *names: str) -> list[FoundObject]:
        return [
            *await self.named(VALIDATING_ADMISSION_POLICY_BINDINGS, *names),
            *await self.named(VALIDATING_ADMISSION_POLICIES, *names),
        ]

    async def labelled_namespace(self, name: str) -> FoundNamespace | None:
        """Return our Namespace, if the server labelled it."""
        try:
            one = await self._client.get(NAMESPACES, _Namespace, name)
        except NotFound:
            return None
        written = set(_written_labels(one.metadata.managed_fields or ()))
        labels = tuple(sorted(written & constants.POD_SECURITY_LABELS.keys()))
        if not labels:
            return None
        return FoundNamespace(target=_found(NAMESPACES, one.metadata), labels=labels)

    async def lease(self, own: "OwnObjects") -> FoundLease | None:
        try:
            lease = await self._client.get(
                LEASES, Lease, constants.LEASE_NAME, namespace=own.namespace
            )
        except NotFound:
            return None
        return FoundLease(holder=lease.spec.holder_identity, valid_until=_valid_until(lease))


def _valid_until(lease: Lease) -> dt.datetime | None:
    try:
        renewed = dt.datetime.fromisoformat(lease.spec.renew_time)
    except ValueError:
        return None
    return renewed + dt.timedelta(seconds=lease.spec.lease_duration_seconds)


async def _agents(reading: _Reading, namespace: str) -> list[FoundObject]:
    """Return the DaemonSets of the control plane, the ConfigMaps of pools, and all objects of operands."""
    operands: list[FoundObject] = []
    for resource in OPERAND_RESOURCES.values():
        if resource != DAEMON_SETS:
            operands += await reading.all_of(
                resource,
                namespace=namespace if resource.namespaced else None,
                label_selector=OPERANDS,
            )
    return [
        *operands,
        *await reading.all_of(DAEMON_SETS, namespace=namespace, label_selector=PART_OF_US),
        *await reading.all_of(
            CONFIG_MAPS, namespace=namespace, label_selector=f"{PART_OF_US},{POOL_LABEL}"
        ),
    ]


async def _node_software(reading: _Reading, namespace: str) -> list[FoundObject]:
    """Return the objects of ClusterPolicies and NVIDIADrivers."""
    return [
        item
        for resource in SOFTWARE_RESOURCES.values()
        for item in await reading.all_of(
            resource,
            namespace=namespace if resource.namespaced else None,
            label_selector=POLICY_STATE_LABEL,
        )
    ]


async def _secrets(reading: _Reading, own: "OwnObjects") -> tuple[list[FoundObject], ...]:
    """Return the Secrets of the server, and those that cert-manager issued in their place."""
    found = await reading.named(
        SECRETS,
        constants.SERVING_SECRET,
        constants.SCHEDULER_SECRET,
        constants.RESERVATION_KEY_SECRET,
        constants.CACHE_KEY_SECRET,
        namespace=own.namespace,
    )
    return (
        [item for item in found if not item.is_issued],
        [item for item in found if item.is_issued],
    )


async def _state(reading: _Reading, own: "OwnObjects") -> list[FoundObject]:
    """Return the term and the Leases, which the server and kube-scheduler write."""
    return [
        *await reading.named(GPU_CONTROL_PLANE_TERMS, constants.LEASE_NAME),
        *await reading.named(
            LEASES, constants.LEASE_NAME, constants.SCHEDULER_LEASE_NAME, namespace=own.namespace
        ),
    ]


async def _kinds(reading: _Reading) -> tuple[list[FoundObject], list[FoundObject]]:
    """Return the definitions of our kinds, and the objects; the term is the server's state."""
    definitions = await reading.named(
        CUSTOM_RESOURCE_DEFINITIONS, *(f"{item.plural}.{item.group}" for item in _DEFINED)
    )
    objects: list[FoundObject] = []
    for resource in _DEFINED:
        if resource != GPU_CONTROL_PLANE_TERMS:
            objects += await reading.all_of(resource)
    return definitions, objects


_ISSUED_SECRETS: Final = (f"{constants.NAME}-ca", constants.CONSOLE_SECRET)
"""Of the chart's Issuer and of the console; the operator may have made the latter instead."""


async def _applied(reading: _Reading, namespace: str) -> list[FoundObject]:
    found: list[FoundObject] = []
    for resource in _APPLIED_IN_NAMESPACE:
        selector = f"{PART_OF_US},!{POOL_LABEL},!{OPERAND_LABEL}"
        found += await reading.all_of(resource, namespace=namespace, label_selector=selector)
    secrets = await reading.named(SECRETS, *_ISSUED_SECRETS, namespace=namespace)
    found += [secret for secret in secrets if secret.is_issued]
    found += await reading.all_of(
        ROLE_BINDINGS, namespace=_SYSTEM_NAMESPACE, label_selector=PART_OF_US
    )
    for resource in _APPLIED_IN_CLUSTER:
        selector = f"{PART_OF_US},!{OPERAND_LABEL}"
        found += await reading.all_of(resource, label_selector=selector)
    return found


async def _namespace(reading: _Reading, namespace: str) -> list[FoundObject]:
    """Return our Namespace if it was applied with the control plane and has no pods of others."""
    rendered = await reading.all_of(NAMESPACES, label_selector=PART_OF_US)
    ours = [item for item in rendered if item.name == namespace]
    if not ours:
        return []
    others = await reading.all_of(
        PODS, namespace=namespace, label_selector=f"app.kubernetes.io/part-of!={constants.NAME}"
    )
    return [] if others else ours


def _found(resource: "Resource", metadata: ObjectMeta) -> FoundObject:
    return FoundObject(
        resource=resource,
        name=metadata.name,
        namespace=metadata.namespace or None,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        is_being_deleted=metadata.deletion_timestamp is not None,
        finalizers=tuple(metadata.finalizers or ()),
        helm_release=metadata.annotation(_HELM_RELEASE) or "",
        is_issued=metadata.annotation(_ISSUED) is not None,
    )


def _found_node(node: Node) -> FoundNode | None:
    """Return a Node that has something with our domain, or a cordon of ours."""
    annotations = tuple(node.metadata.annotations or ())
    owns_cordon = node.metadata.owns_cordon(CORDON_MANAGER)
    keys = (*(node.metadata.labels or ()), *annotations)
    if not (owns_cordon or any(map(is_ours, keys))):
        return None
    return FoundNode(
        facts=node_facts(node),
        annotations=annotations,
        written_labels=frozenset(_written_labels(node.metadata.managed_fields or ())),
        owns_cordon=owns_cordon,
    )


def _written_labels(entries: "Iterable[ManagedFieldsEntry]") -> "Iterable[str]":
    for entry in entries:
        # Field managers of controllers are `gpu-control-plane/<controller>`.
        if entry.manager.partition("/")[0] != constants.NAME:
            continue
        if entry.fields and entry.fields.metadata:
            yield from (key.removeprefix("f:") for key in entry.fields.metadata.labels or ())
