"""What of the control plane is in a cluster: objects by the stage in which they go, nodes, pods.

Objects that the server makes have fixed names or labels; applied ones have the label
`app.kubernetes.io/part-of`. Only metadata is kept, so no Secret's content is decoded.
"""

import datetime as dt
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from api.csi.names import DRIVER_NAME
from api.driver_upgrade import CORDON_MANAGER
from api.foreign.core import Node, NodeMetadata, Pod
from api.meta import Model, ObjectMeta, PartialObjectMetadata
from api.names import OPERAND_LABEL, REPAIR_MANAGER
from api.well_known_labels import PART_OF_LABEL
from cli.uninstall.own_kinds import RemovalOptions, RemovalStage, is_ours, own_kinds
from cli.uninstall.removal_plan import FoundLease, FoundNode, FoundObject, RemovalSurvey
from kube.errors import Forbidden, NotFound
from kube.leader_election import Lease
from kube.resources import (
    CLUSTER_POLICIES,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODES,
    PODS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from manifests import constants
from pool.facts import node_facts, pod_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.uninstall.own_kinds import OwnKind
    from kube.client import KubeClient
    from kube.decoding import Listing
    from kube.resources import Resource
    from pool.model import PodFacts

T = TypeVar("T")

PAGE_SIZE: Final = 500
_HELM_RELEASE: Final = "meta.helm.sh/release-name"


class _Namespace(Model, frozen=True):
    metadata: NodeMetadata = NodeMetadata()


class _DeploymentSpec(Model, frozen=True):
    replicas: int = 1


class _Deployment(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DeploymentSpec = _DeploymentSpec()


def _use(pod: Pod) -> "tuple[PodFacts | None, str] | None":
    """Return the facts of a pod that has units, and its name if it is on a node and has a volume of a kernel cache."""
    drivers = {volume.csi.driver for volume in pod.spec.volumes or () if volume.csi is not None}
    is_mounting = DRIVER_NAME in drivers and bool(pod.spec.node_name) and not pod.is_terminal
    facts = pod_facts(pod)
    if facts is None and not is_mounting:
        return None
    return facts, f"{pod.metadata.namespace}/{pod.metadata.name}" if is_mounting else ""


async def survey(client: "KubeClient", options: RemovalOptions) -> RemovalSurvey:
    """Read everything of the control plane.

    Raises:
        KubeError: something could not be read.
    """
    own, reading = options.own, _Reading(client)
    deployments = await reading.listed(
        DEPLOYMENTS, _Deployment, namespace=own.namespace, labels=constants.PART_OF_US
    )
    with_software = own.runs_node_software and await reading.may_list(CLUSTER_POLICIES)
    objects: defaultdict[RemovalStage, list[FoundObject]] = defaultdict(list)
    for kind in own_kinds():
        if options.reads(kind.stage) and (with_software or not kind.of_node_software):
            objects[kind.stage] += await reading.objects(kind, kind.namespace_in(own))
    namespace = await reading.get(NAMESPACES, _Namespace, own.namespace)
    lease = await reading.get(LEASES, Lease, constants.LEASE_NAME, namespace=own.namespace)
    written = _written_labels(namespace.metadata) if namespace is not None else frozenset()
    if options.with_applied and namespace is not None and await reading.is_ours(namespace):
        objects[RemovalStage.NAMESPACE].append(
            _found(NAMESPACES, namespace.metadata, is_named=True)
        )
    uses = await reading.projected(PODS, Pod, _use)
    kept: list[FoundObject] = []
    if not options.with_crds:
        kept = objects.pop(RemovalStage.DEFINITIONS, []) + objects.pop(RemovalStage.OBJECTS, [])
    return RemovalSurvey(
        objects_by_stage=objects,
        nodes=tuple(await reading.projected(NODES, Node, _found_node)),
        running_deployments=tuple(
            _found(DEPLOYMENTS, item.metadata) for item in deployments if item.spec.replicas
        ),
        lease=None
        if lease is None
        else FoundLease(lease.spec.holder_identity, _valid_until(lease)),
        namespace=None
        if namespace is None
        else _found(NAMESPACES, namespace.metadata, is_named=True),
        namespace_labels=tuple(sorted(written & constants.POD_SECURITY_LABELS.keys())),
        served_from=await reading.namespaces_of_webhooks(),
        pods=tuple(facts for facts, _ in uses if facts is not None),
        cache_pods=tuple(sorted(name for _, name in uses if name)),
        kept=tuple(kept),
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
        labels: str | None = None,
    ) -> list[T]:
        try:
            listing = await self._client.list_(
                resource,
                item_type,
                namespace=namespace,
                label_selector=labels,
                page_size=PAGE_SIZE,
            )
        except NotFound:
            if not await self._client.serves(resource):
                return []
            raise
        self._note_unread(resource, listing)
        return listing.items

    async def get(
        self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
    ) -> T | None:
        """Return an object, or None where there is none: a 404 that names no object does not say so."""
        try:
            return await self._client.get(resource, type_, name, namespace=namespace)
        except NotFound as error:
            if error.names_object or not await self._client.serves(resource):
                return None
            raise

    async def objects(self, kind: "OwnKind", namespace: str | None) -> list[FoundObject]:
        """Return the objects of a row, by name."""
        resource, type_ = kind.resource, PartialObjectMetadata
        items = [await self.get(resource, type_, name, namespace=namespace) for name in kind.names]
        if not kind.names:
            items += await self.listed(resource, type_, namespace=namespace, labels=kind.labels)
        is_named = bool(kind.names or kind.deletable)
        found = (item.metadata for item in items if item is not None and kind.has(item.metadata))
        return [
            _found(resource, meta, is_named=is_named)
            for meta in sorted(found, key=lambda meta: meta.name)
        ]

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
            await self.listed(resource, PartialObjectMetadata)
        except Forbidden:
            return False
        return True

    async def is_ours(self, namespace: _Namespace) -> bool:
        """Say whether a Namespace was applied with the control plane, and has no pods of others."""
        if namespace.metadata.label(PART_OF_LABEL) != constants.NAME:
            return False
        # Pods of a ClusterPolicy's states end later than the agents do.
        others = f"{PART_OF_LABEL}!={constants.NAME},!{OPERAND_LABEL}"
        name = namespace.metadata.name
        return not await self.listed(PODS, PartialObjectMetadata, namespace=name, labels=others)

    async def namespaces_of_webhooks(self) -> frozenset[str]:
        """Return the namespaces of the Services that our webhooks call."""
        found = [
            await self.get(resource, dict[str, Any], name)
            for resource, name in (
                (VALIDATING_WEBHOOK_CONFIGURATIONS, constants.VALIDATING_CONFIGURATION),
                (MUTATING_WEBHOOK_CONFIGURATIONS, constants.MUTATING_CONFIGURATION),
            )
        ]
        return frozenset(
            service["namespace"]
            for configuration in found
            for webhook in (configuration or {}).get("webhooks") or ()
            if (service := webhook["clientConfig"].get("service"))
        )


def _valid_until(lease: Lease) -> dt.datetime | None:
    try:
        renewed = dt.datetime.fromisoformat(lease.spec.renew_time)
    except ValueError:
        return None
    return renewed + dt.timedelta(seconds=lease.spec.lease_duration_seconds)


def _found(resource: "Resource", metadata: ObjectMeta, *, is_named: bool = False) -> FoundObject:
    return FoundObject(
        resource=resource,
        name=metadata.name,
        namespace=metadata.namespace or None,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        is_being_deleted=metadata.deletion_timestamp is not None,
        finalizers=tuple(metadata.finalizers or ()),
        helm_release=metadata.annotation(_HELM_RELEASE) or "",
        is_named=is_named,
    )


def _found_node(node: Node) -> FoundNode | None:
    """Return a Node that has something with our domain, or a cordon of ours."""
    annotations = tuple(node.metadata.annotations or ())
    owns_cordon = any(map(node.metadata.owns_cordon, (CORDON_MANAGER, REPAIR_MANAGER)))
    keys = (*(node.metadata.labels or ()), *annotations)
    if not (owns_cordon or any(map(is_ours, keys))):
        return None
    return FoundNode(
        facts=node_facts(node),
        annotations=annotations,
        written_labels=_written_labels(node.metadata),
        owns_cordon=owns_cordon,
    )


def _written_labels(metadata: NodeMetadata) -> frozenset[str]:
    """Return the labels that a controller wrote: field managers are `gpu-control-plane/<controller>`."""
    return frozenset(
        key.removeprefix("f:")
        for entry in metadata.managed_fields or ()
        if entry.manager.partition("/")[0] == constants.NAME
        if entry.fields and entry.fields.metadata
        for key in entry.fields.metadata.labels or ()
    )
