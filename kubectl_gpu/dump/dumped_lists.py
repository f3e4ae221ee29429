"""Which lists a dump has, and how they are read: the pools' objects, and what runs the control plane.

Nodes without a device and pods without a pool are none of them. A list that may not be read is named, and stops no
other one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.names import (
    GROUP,
    POOL_LABEL,
    POOL_NODE_LABEL_PREFIX,
    PRESENT_LABEL,
    RESOURCE_PREFIX,
)
from api.text import truncate
from kube import resources
from kubectl_gpu.cluster_lists import read_list
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.dump.dump_fields import reduced
from kubectl_gpu.dumped.dump_archive import DumpedCluster, answer_file, list_file
from kubectl_gpu.errors import UnreadableError
from manifests import constants
from telemetry.reasons import REPORTING_CONTROLLER

if TYPE_CHECKING:
    from kubectl_gpu.cluster_source import AnsweringSource

Json = dict[str, Any]
VERSION_PATH: Final = "/version"
_REPORTERS: Final = (REPORTING_CONTROLLER, f"{GROUP}/agent")
"""Reporters of the control plane's Events, and of the node agents' (`agent.context`)."""


@final
@dataclass(frozen=True, slots=True)
class DumpedList:
    """The objects of one resource; what the selectors of the API cannot say, `is_selected` does."""

    queries: tuple[ListQuery, ...]
    is_selected: Callable[[Json], bool] = lambda _: True

    @property
    def resource(self) -> "resources.Resource":
        return self.queries[0].resource

    def kept(self, item: Json) -> Json | None:
        """Return the fields that a dump has of an object; None for one that is left out."""
        return reduced(self.resource, item) if self.is_selected(item) else None


def dumped_lists(namespace: str) -> "tuple[DumpedList, ...]":
    """Return the lists, behind those of GPUDevices and inventories the nodes, which are chosen by them.

    Args:
        namespace: of the control plane.
    """
    whole = (
        resources.GPU_POOLS,
        resources.GPU_DEVICES,
        resources.GPU_NODE_INVENTORIES,
        resources.GPU_CONTROL_PLANE_TERMS,
        resources.GPU_CONTROL_PLANE_CONFIGS,
        resources.GKM_CACHES,
        resources.CLUSTER_GKM_CACHES,
        resources.GKM_CACHE_NODES,
        resources.CLUSTER_GKM_CACHE_NODES,
        resources.NAMESPACES,
        resources.RESOURCE_QUOTAS,
        resources.LIMIT_RANGES,
    )
    return (
        *(DumpedList((ListQuery(resource),)) for resource in whole),
        DumpedList((ListQuery(resources.PODS),), _has_pool),
        DumpedList(
            tuple(
                ListQuery(resources.EVENTS, fields=f"reportingController={item}")
                for item in _REPORTERS
            ),
            lambda event: event.get("reportingController") in _REPORTERS,
        ),
        DumpedList((ListQuery(resources.LEASES, namespace),)),
        DumpedList((ListQuery(resources.DEPLOYMENTS, namespace),)),
        DumpedList((ListQuery(resources.DAEMON_SETS, namespace),)),
        DumpedList((ListQuery(resources.CUSTOM_RESOURCE_DEFINITIONS),), _is_our_definition),
        DumpedList(
            (ListQuery(resources.MUTATING_WEBHOOK_CONFIGURATIONS, labels=constants.PART_OF_US),)
        ),
        DumpedList(
            (ListQuery(resources.VALIDATING_WEBHOOK_CONFIGURATIONS, labels=constants.PART_OF_US),)
        ),
        DumpedList((ListQuery(resources.NODES),)),
    )


def collect(source: "AnsweringSource", *, namespace: str) -> DumpedCluster:
    """Read a cluster; lists that cannot be read are named in the result.

    Raises:
        UnreadableError: not even the pools can be read.
    """
    files: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    nodes: set[str] = set()
    for list_ in dumped_lists(namespace):
        resource, name = list_.resource, list_file(list_.resource)
        try:
            items = [
                item
                for query in list_.queries
                for item in read_list(source, query, Json, keep=list_.kept).items
            ]
        except UnreadableError as error:
            if resource is resources.GPU_POOLS:
                raise
            missing[name] = truncate(str(error), 512)
            continue
        if resource is resources.NODES:
            items = [item for item in items if _has_device(item, nodes)]
        nodes |= _nodes_of(resource, items)
        files[name] = msgspec.json.encode(items)
    for path in (VERSION_PATH, metrics_path(namespace)):
        try:
            files[answer_file(path)] = source.get(path)
        except UnreadableError as error:
            missing[answer_file(path)] = truncate(str(error), 512)
    return DumpedCluster(source.now(), source.namespace(), files, missing)


def metrics_path(namespace: str) -> str:
    """Return the path of the server's metrics through the API server's proxy of Services."""
    service = f"https:{constants.SERVICE_NAME}:{constants.HTTPS_PORT_NAME}"
    return f"/api/v1/namespaces/{namespace}/services/{service}/proxy{constants.METRICS_PATH}"


def _nodes_of(resource: "resources.Resource", items: "Iterable[Json]") -> set[str]:
    """Return the nodes that have devices."""
    if resource is resources.GPU_DEVICES:
        return {str((item.get("status") or {}).get("nodeName")) for item in items}
    if resource is resources.GPU_NODE_INVENTORIES:
        return {str(item["metadata"].get("name")) for item in items}
    return set()


def _has_device(node: Json, names: set[str]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return (
        node["metadata"].get("name") in names
        or labels.get(PRESENT_LABEL) == "true"
        or any(label.startswith(POOL_NODE_LABEL_PREFIX) for label in labels)
    )


def _has_pool(pod: Json) -> bool:
    """Say whether a pod has the label of a pool, or names its resource: one that bypassed admission has no label."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    lists = [container.get("resources") or {} for container in containers]
    named = [name for of in lists for part in ("requests", "limits") for name in of.get(part) or ()]
    return POOL_LABEL in ((pod.get("metadata") or {}).get("labels") or {}) or any(
        name.startswith(RESOURCE_PREFIX) for name in named
    )


def _is_our_definition(definition: Json) -> bool:
    group = (definition.get("spec") or {}).get("group")
    return group in {resource.group for resource in (resources.GPU_POOLS, resources.GKM_CACHES)}
