"""The entries of `status.allocations`: expected ones, those in kubelet's response, and the object's size limit.

Pure functions; `agent.allocations.reporter` calls kubelet and the API server. kubelet lists main containers and
sidecars and no plain init container, and keeps the units of these for the pod's life. Those of them that no other
container has are entries of the init containers, by the annotation (`pool.pods.reported`): they are in use, also
after the pod was deleted by force.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from api.kinds.gpunodeinventory import MAX_ALLOCATIONS, ContainerDevices
from api.names import API_VERSION
from kube.resources import GPU_NODE_INVENTORIES
from pool.demand import distinct_units
from pool.model import ContainerDemand, ContainerRole
from pool.pods.reported import unlisted_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.kubelet.node_pods import NodePod
    from api.kubelet.podresources import PodUnits

    Entries = tuple[ContainerDevices, ...]
    """Entries of one pod, in the order in which they are written."""

MAX_BYTES: Final = 900_000
"""Most bytes of the list as JSON: etcd accepts 1.5 MB for an object, and this one has other fields."""


def awaited(pod: "NodePod", is_reported: "Callable[[str], bool]") -> frozenset[tuple[str, str]]:
    """Return each (container, resource) that kubelet will list for the pod."""
    return frozenset(
        (container.name, resource)
        for container in pod.containers
        if container.kind is not ContainerRole.INIT
        for resource, count in container.counts.items()
        if count and is_reported(resource)
    )


def entries_of(
    pod: "NodePod", answer: "PodUnits", recorded: "Entries", *, is_reported: "Callable[[str], bool]"
) -> "Entries":
    """Merge kubelet's response into the known entries of a pod; once it is complete, with those of init containers.

    Entries that the response lacks stay: a container has its devices as long as its pod runs, and a kubelet
    that lost its checkpoint does not list them.
    """
    expected_keys = awaited(pod, is_reported)
    found = {(item.container, item.resource): item for item in recorded}
    for container in answer.containers:
        for resource, units in container.units.items():
            if units and (container.name, resource) in expected_keys:
                found[container.name, resource] = ContainerDevices(
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    resource=resource,
                    units=sorted(units),
                    uid=pod.uid,
                )
    listed = [item for key, item in found.items() if key in expected_keys]
    if len(listed) < len(expected_keys):
        return in_order(found.values())
    return in_order((*listed, *_of_init_containers(pod, listed, is_reported)))


def _of_init_containers(
    pod: "NodePod", listed: "Sequence[ContainerDevices]", is_reported: "Callable[[str], bool]"
) -> "Iterator[ContainerDevices]":
    """Yield the entries of init containers: the assigned units that the pod lacks in those that kubelet listed."""
    assigned = pod.assigned or {}
    for resource in sorted({count for container in pod.containers for count in container.counts}):
        asking = pod.asks_for(resource) if is_reported(resource) else ()
        entries = [item for item in listed if item.resource == resource]
        units = {unit for entry in entries for unit in entry.units}
        asked = distinct_units(
            ContainerDemand(item.name, item.kind, item.counts[resource]) for item in asking
        )
        left = unlisted_units(
            {item.name: assigned.get(item.name, ()) for item in asking},
            units,
            reported={entry.container for entry in entries},
            shortfall=asked - len(units),
        )
        for container in asking:
            own = set(left) & set(assigned.get(container.name, ()))
            if container.kind is ContainerRole.INIT and own:
                left = tuple(unit for unit in left if unit not in own)
                yield ContainerDevices(
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    resource=resource,
                    units=sorted(own),
                    uid=pod.uid,
                )


def is_complete(
    pod: "NodePod", entries: "Entries", *, is_reported: "Callable[[str], bool]"
) -> bool:
    """Return whether there is an entry for each `awaited` container and resource."""
    return awaited(pod, is_reported) <= {(entry.container, entry.resource) for entry in entries}


def in_order(entries: "Iterable[ContainerDevices]") -> "Entries":
    """Return the entries in the order of `status.allocations`."""
    return tuple(sorted(entries, key=_place))


def fitting(entries: "Entries") -> "Entries":
    """Return the first entries, as many as one object holds."""
    size, count = 0, 0
    for entry in entries[:MAX_ALLOCATIONS]:
        size += len(msgspec.json.encode(entry)) + 1
        if size > MAX_BYTES:
            break
        count += 1
    return entries[:count]


def body_of(node: str, entries: "Entries") -> dict[str, object]:
    """Return the body to apply to the status of the node's inventory."""
    return {
        "apiVersion": API_VERSION,
        "kind": GPU_NODE_INVENTORIES.kind,
        "metadata": {"name": node},
        "status": {"allocations": entries},
    }


def _place(entry: ContainerDevices) -> tuple[str, str, str, str, str]:
    return (entry.namespace, entry.pod, entry.uid, entry.container, entry.resource)
