"""Checks of what runs the control plane: kinds, server, leader, webhooks, kube-scheduler, node agents, versions."""

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect as types

from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.names import API_VERSION, GROUP, VERSION
from api.status_conditions import find_condition
from api.text import listed
from api.version import VERSION as OWN_VERSION
from kube.resources import (
    GPU_CONTROL_PLANE_CONFIGS,
    GPU_CONTROL_PLANE_TERMS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
)
from kubectl_gpu.check.findings import fault, good, of_object, warning
from manifests import constants
from telemetry.conditions import ConfigCondition
from telemetry.object_faults import is_lease_old, leader_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.foreign.leases import PartialLease
    from api.meta import Model
    from kube.resources import Resource
    from kubectl_gpu.check.checked_cluster import (
        CheckedCluster,
        CheckedDefinition,
        CheckedWebhooks,
        CheckedWorkload,
    )
    from kubectl_gpu.check.findings import CheckFinding


def fields_of_model(kind: "type[Model]") -> set[str]:
    """Return the paths of all fields of a kind but those of its metadata, as its definition has them.

    Definitions are built from sources, which an archive of the plugin does not have.
    """
    found = _paths(types.type_info(kind), "")
    return {path for path in found if not path.startswith("metadata")}


def fields_of_schema(schema: Any, path: str = "") -> set[str]:  # noqa: ANN401  # JSON
    """Return the paths of all fields of an OpenAPI schema; what is no schema has none."""
    if not isinstance(schema, dict):
        return set()
    found: set[str] = set()
    properties = schema.get("properties")
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        found |= {f"{path}{name}"} | fields_of_schema(inner, f"{path}{name}.")
    return found | fields_of_schema(schema.get("items"), path)


def _paths(info: types.Type, path: str) -> set[str]:
    found: set[str] = set()
    match info:
        case types.Metadata(type=inner) | types.ListType(item_type=inner):
            found = _paths(inner, path)
        case types.UnionType(types=several):
            for item in several:
                found |= _paths(item, path)
        case types.StructType(fields=fields):
            for field in fields:
                name = f"{path}{field.encode_name}"
                found |= {name} | _paths(field.type, f"{name}.")
        case _:
            pass
    return found


KUBERNETES: Final = "Kubernetes"
CONTROL_PLANE: Final = "control plane"
KINDS: "Final[tuple[tuple[Resource, type[Model]], ...]]" = (
    (GPU_POOLS, GPUPool),
    (GPU_DEVICES, GPUDevice),
    (GPU_NODE_INVENTORIES, GPUNodeInventory),
    (GPU_CONTROL_PLANE_TERMS, GPUControlPlaneTerm),
    (GPU_CONTROL_PLANE_CONFIGS, GPUControlPlaneConfig),
)
_OLDEST: Final = (1, 30)
"""Oldest version of Kubernetes: the first with ValidatingAdmissionPolicy."""
_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)")
_TAG: Final = re.compile(r":v?(\d+\.\d+\.\d+[^@]*)(@.*)?$")


def check_kubernetes(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield what is to be said of the API server's version."""
    release = _RELEASE.match(cluster.kubernetes)
    if release is None:
        yield warning(
            (KUBERNETES, "API server"), "its version is unknown", cure="kubectl get --raw /version"
        )
    elif (int(release[1]), int(release[2])) < _OLDEST:
        yield fault(
            (KUBERNETES, "API server"),
            f"{cluster.kubernetes} is older than 1.30 and has no ValidatingAdmissionPolicy",
            cure="upgrade the cluster",
        )
    else:
        yield good((KUBERNETES, "API server"), f"{cluster.kubernetes} is supported")


def check_installation(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield what is to be said of the control plane's own objects."""
    yield from _kinds(cluster)
    yield from _settings(cluster)
    yield from _workloads(cluster)
    yield from _leader(cluster)
    yield from _webhooks(cluster)
    yield from _agents(cluster)


def unread(cluster: "CheckedCluster", section: str, resource: str) -> "CheckFinding":
    """Return the row of a list that could not be read."""
    why = cluster.unread.get(resource, f"{resource} were not read")
    if resource in cluster.not_served:
        return fault((section, resource), why, cure="install the control plane: docs/install.md")
    return warning(
        (section, resource), f"not checked: {why}", cure=f"kubectl auth can-i list {resource}"
    )


def _kinds(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    if cluster.definitions is None:
        yield unread(cluster, CONTROL_PLANE, "customresourcedefinitions")
        return
    by_name = {definition.metadata.name: definition for definition in cluster.definitions}
    are_whole = True
    for resource, model in KINDS:
        name = f"{resource.plural}.{resource.group}"
        found = by_name.get(name)
        text = "the kind is not installed" if found is None else _fault_of_kind(found, model)
        if text is not None:
            are_whole = False
            cure = "gpu-control-plane render crds | kubectl apply --server-side -f -"
            yield fault((CONTROL_PLANE, f"kind {name}"), text, cure=cure)
    if are_whole:
        yield good((CONTROL_PLANE, f"kinds of {GROUP}"), f"all are installed, as {API_VERSION}")


def _settings(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    """Yield what is to be said of settings that are not in force; a server with a file of settings has no object."""
    for config in cluster.configs or ():
        place = (CONTROL_PLANE, f"GPUControlPlaneConfig {config.metadata.name}")
        conditions = () if config.status is None else config.status.conditions
        for type_, cure in (
            (ConfigCondition.REFUSED, "kubectl edit gconfig"),
            (ConfigCondition.RESTART_NEEDED, "restart the servers, as the condition says"),
        ):
            found = find_condition(conditions, type_)
            if found is not None and found.status == "True":
                yield fault(place, f"{type_.value}: {found.message}", cure=cure)


def _fault_of_kind(found: "CheckedDefinition", model: "type[Model]") -> str | None:
    version = next((item for item in found.spec.versions or () if item.name == VERSION), None)
    if version is None or not version.served:
        return f"version {VERSION} is not served"
    if not any(
        condition.type == "Established" and condition.status == "True"
        for condition in found.status.conditions or ()
    ):
        return "the API server has not established it"
    if version.schema is None:
        return None
    missing = fields_of_model(model) - fields_of_schema(version.schema.get("openAPIV3Schema"))
    if missing:
        return (
            f"it is older than version {OWN_VERSION}: the API server drops the fields"
            f" {listed(missing, 3)}"
        )
    return None


def _workloads(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    if cluster.deployments is None:
        yield unread(cluster, CONTROL_PLANE, "deployments")
        return
    by_name = {deployment.metadata.name: deployment for deployment in cluster.deployments}
    server = by_name.get(constants.NAME)
    if server is None:
        yield warning(
            (CONTROL_PLANE, f"Deployment {constants.NAME}"),
            f"there is none in namespace {cluster.namespace}",
            cure="name the namespace with --install-namespace, or install the chart",
        )
    else:
        yield _readiness(cluster, server)
        yield _skew(server)
    scheduler = by_name.get(constants.SCHEDULER_DEPLOYMENT)
    if scheduler is None:
        yield warning(
            (CONTROL_PLANE, f"Deployment {constants.SCHEDULER_DEPLOYMENT}"),
            "there is none: pods of pools need another kube-scheduler with the extender",
            cure="docs/operations.md#kube-scheduler",
        )
    else:
        yield _readiness(cluster, scheduler)
    console = by_name.get(constants.CONSOLE)
    if console is not None:  # pods get their units without it
        yield _readiness(cluster, console, without_one=warning)


def _readiness(
    cluster: "CheckedCluster",
    workload: "CheckedWorkload",
    *,
    without_one: "Callable[..., CheckFinding]" = fault,
) -> "CheckFinding":
    name, ready, desired = (
        workload.metadata.name,
        workload.status.ready_replicas,
        workload.spec.replicas,
    )
    subject = f"Deployment {name}"
    cure = (
        f"kubectl -n {cluster.namespace} describe pods -l app.kubernetes.io/name={constants.NAME}"
    )
    if not ready:
        text = f"0 of {desired} replicas are ready"
        return without_one((CONTROL_PLANE, subject), text, cure=cure)
    if ready < desired:
        text = f"{ready} of {desired} replicas are ready"
        return warning((CONTROL_PLANE, subject), text, cure=cure)
    return good((CONTROL_PLANE, subject), f"{ready} of {desired} replicas are ready")


def _skew(server: "CheckedWorkload") -> "CheckFinding":
    subject = "version of the server"
    tag = _TAG.search(server.image)
    if tag is None:
        return good((CONTROL_PLANE, subject), f"its image {server.image} does not say which")
    if tag[1] != OWN_VERSION:
        return warning(
            (CONTROL_PLANE, subject),
            f"{tag[1]}, and that of kubectl gpu is {OWN_VERSION}: answers may differ from its decisions",
            cure=f"install kubectl gpu {tag[1]}",
        )
    return good((CONTROL_PLANE, subject), f"{tag[1]}, as that of kubectl gpu")


def _leader(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    if cluster.leases is None:
        yield unread(cluster, CONTROL_PLANE, "leases")
        return
    by_name = {item.metadata.name: item for item in cluster.leases}
    lease = by_name.get(constants.LEASE_NAME)
    subject = f"Lease {constants.LEASE_NAME}"
    found = leader_fault(lease, cluster.now, deployment=constants.NAME, namespace=cluster.namespace)
    if found is not None:
        yield of_object((CONTROL_PLANE, subject), found)
    elif lease is not None:
        yield good((CONTROL_PLANE, subject), f"{lease.spec.holder_identity} leads")
        yield from _term(cluster, lease)
    scheduler = by_name.get(constants.SCHEDULER_LEASE_NAME)
    if scheduler is not None and is_lease_old(scheduler, cluster.now):
        yield fault(
            (CONTROL_PLANE, f"Lease {constants.SCHEDULER_LEASE_NAME}"),
            f"no kube-scheduler has renewed it since {scheduler.spec.renew_time}",
            cure=f"kubectl -n {cluster.namespace} logs deployment/{constants.SCHEDULER_DEPLOYMENT}",
        )


def _term(cluster: "CheckedCluster", lease: "PartialLease") -> "Iterator[CheckFinding]":
    if cluster.terms is None:
        return
    holders = {term.metadata.name: term.spec.holder for term in cluster.terms}
    holder = holders.get(constants.LEASE_NAME)
    if holder is not None and holder != lease.spec.holder_identity:
        yield warning(
            (CONTROL_PLANE, f"GPUControlPlaneTerm {constants.LEASE_NAME}"),
            f"it names {holder}, and {lease.spec.holder_identity} leads: bindings are refused until that"
            " replica takes over",
            cure="kubectl get gterm",
        )


def _webhooks(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    kinds: tuple[tuple[str, str, list[CheckedWebhooks] | None], ...] = (
        (
            "mutatingwebhookconfigurations",
            constants.MUTATING_CONFIGURATION,
            cluster.mutating,
        ),
        (
            "validatingwebhookconfigurations",
            constants.VALIDATING_CONFIGURATION,
            cluster.validating,
        ),
    )
    for resource, name, found in kinds:
        if found is None:
            yield unread(cluster, CONTROL_PLANE, resource)
            continue
        configuration = next((item for item in found if item.metadata.name == name), None)
        yield _webhook(cluster, f"{resource}/{name}", configuration)


def _webhook(
    cluster: "CheckedCluster", subject: str, configuration: "CheckedWebhooks | None"
) -> "CheckFinding":
    if configuration is None:
        return fault(
            (CONTROL_PLANE, subject),
            "it is not there: pods get no reservation, and no check",
            cure="gpu-control-plane render webhooks | kubectl apply --server-side -f -",
        )
    without = [
        webhook.name
        for webhook in configuration.webhooks or ()
        if not webhook.client_config.ca_bundle
    ]
    if without or not configuration.webhooks:
        return fault(
            (CONTROL_PLANE, subject),
            f"{listed(without) or 'it'} has no caBundle: the API server refuses pods that name a pool",
            cure=f"kubectl -n {cluster.namespace} logs deployment/{constants.NAME}",
        )
    return good((CONTROL_PLANE, subject), f"{len(configuration.webhooks)} webhooks have a caBundle")


def _agents(cluster: "CheckedCluster") -> "Iterator[CheckFinding]":
    if cluster.daemon_sets is None:
        yield unread(cluster, CONTROL_PLANE, "daemonsets")
        return
    if cluster.node_daemons is None:
        yield unread(cluster, CONTROL_PLANE, "daemonsets")
    for item in sorted(cluster.daemon_sets, key=lambda set_: set_.metadata.name):
        ready, desired = item.status.number_ready, item.status.desired_number_scheduled
        subject = f"DaemonSet {item.metadata.name}"
        if ready < desired:
            yield warning(
                (CONTROL_PLANE, subject),
                f"{ready} of {desired} pods are ready",
                cure=f"kubectl -n {cluster.namespace} get pods -o wide | grep {item.metadata.name}",
            )
        else:
            yield good((CONTROL_PLANE, subject), f"{ready} of {desired} pods are ready")
