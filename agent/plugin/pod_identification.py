"""Identifies the container that kubelet is allocating for: kubelet sends ids and a count, and no name.

Inside GetPreferredAllocation kubelet's List shows exactly one pod whose containers request the resource and
have no units yet: kubelet adds a pod to its list just before it admits it, and admits one at a time. The order
of bindings and creation times is no evidence, because a kubelet that restarts admits in another order.

Plain init containers are not listed. The request tells them apart: kubelet hands the units of an init
container on to later containers, asks for no preference where these suffice, and names them in `must_include`
where they do not (`devicesToReuse` in kubelet's pkg/kubelet/cm/devicemanager/manager.go).
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.running_timeout import running_timeout
from api.kinds.gpupool import SlicePlacement
from pool.demand import reused_units
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.kubelet.node_pods import ContainerRequest, NodePod, NodePods
    from api.kubelet.podresources import PodUnits
    from api.kubelet.proto.deviceplugin_pb2 import ContainerPreferredAllocationRequest
    from api.names import PodUid

    HasUnits = Callable[[PodUid, str, str], bool]
    """Pod, container, resource: it was seen to have units."""
    Listing = Sequence[PodUnits]

WATCH_WITHIN_S: Final = 0.25
"""kubelet's own watch was up to 23 ms ahead of ours, on a busy machine."""


class IdentifiedBy(Enum):
    """The evidence for an identification."""

    LISTED = "listed"
    """kubelet lists the pod, and the container has no units."""
    ALLOCATED_BEFORE = "allocated before"
    """The same, but the plugin allocated units before: kubelet died before it wrote its checkpoint."""
    ASSIGNED = "assigned"
    """kubelet does not answer List: the first waiting container whose assigned units fit the request."""


@final
@dataclass(frozen=True, slots=True)
class PodQuery:
    """A request for the preferred units of one container."""

    resource: str
    request: "ContainerPreferredAllocationRequest"
    slice_placement: SlicePlacement = SlicePlacement.DISTINCT_DEVICES
    """The pool's."""


@final
@dataclass(frozen=True, slots=True)
class IdentifiedContainer:
    """The container of a query."""

    pod: "NodePod"
    container: "ContainerRequest"
    by: IdentifiedBy


@final
@dataclass(frozen=True, slots=True)
class NotIdentified:
    """The container of a query is not known."""

    why: str
    fallback: IdentifiedContainer | None = None
    """Fallback to be assumed where the watch shows no better one in time."""


async def wait_until_identified(
    pods: "NodePods",
    identify_now: "Callable[[], IdentifiedContainer | NotIdentified]",
    within_s: float = WATCH_WITHIN_S,
) -> IdentifiedContainer | NotIdentified:
    """Identify again at each change of the watch, until a container is found or the time is over."""
    found = identify_now()
    try:
        async with running_timeout(within_s):
            while isinstance(found, NotIdentified):
                await pods.changed.wait()
                found = identify_now()
    except TimeoutError:
        # A change of the same turn of the event loop.
        found = identify_now()
    return found.fallback or found if isinstance(found, NotIdentified) else found


def identify(
    listing: "Listing", pods: "NodePods", query: PodQuery, *, has_units: "HasUnits"
) -> IdentifiedContainer | NotIdentified:
    """Return the container by a List that was taken during the call."""
    found = [
        IdentifiedContainer(pod, container, IdentifiedBy.LISTED)
        for listed in listing
        if (pod := pods.find(listed.namespace, listed.name)) is not None
        and (container := container_to_allocate(pod, listed, query)) is not None
    ]
    resource, request = query.resource, query.request
    fresh = [item for item in found if not has_units(item.pod.uid, item.container.name, resource)]
    if len(fresh) > 1:
        # After a lost checkpoint kubelet lists running pods without units, too.
        fresh = [item for item in fresh if _is_assignment_free(item, request)]
    if len(fresh) == 1:
        return fresh[0]
    names = ", ".join(item.pod.ref for item in found)
    if len(fresh) > 1:
        return NotIdentified(
            f"kubelet lists several pods that wait for {request.allocation_size}: {names}"
        )
    if len(found) == 1:
        allocated = found[0]
        fallback = IdentifiedContainer(
            allocated.pod, allocated.container, IdentifiedBy.ALLOCATED_BEFORE
        )
        return NotIdentified(f"{names} got its units before", fallback)
    return NotIdentified(
        f"kubelet lists no known pod that waits for {request.allocation_size} of {resource}"
        + (f" alone: {names}" if names else "")
    )


def identify_by_assignment(
    pods: "NodePods", query: PodQuery, *, has_units: "HasUnits"
) -> IdentifiedContainer | NotIdentified:
    """Return the first bound container whose assigned units fit the request and are free.

    For a kubelet that does not answer List. Two pods with as many assigned units may be confused; each then
    gets free units, and the agent reports the actual ones.
    """
    resource, request = query.resource, query.request
    for pod in pods.all():
        if pod.is_ended:
            continue
        for container, reused in _in_order(pod, resource):
            identified = IdentifiedContainer(pod, container, IdentifiedBy.ASSIGNED)
            if (
                container.counts[resource] == request.allocation_size
                and reused == len(request.must_include_deviceIDs)
                and not has_units(pod.uid, container.name, resource)
                and _is_assignment_free(identified, request)
            ):
                return identified
    return NotIdentified(
        f"kubelet does not answer List, and no known pod has {request.allocation_size} assigned units that are free"
    )


def container_to_allocate(
    pod: "NodePod", listed: "PodUnits", query: PodQuery
) -> "ContainerRequest | None":
    """Return the container of a listed pod that the query may be for."""
    resource, request = query.resource, query.request
    allocated = {item.name for item in listed.containers if item.units.get(resource)}
    near: ContainerRequest | None = None
    later = [ask.name for ask in pod.asks_for(resource)]
    for container, reused in _in_order(pod, resource):
        later.pop(0)
        is_visible = container.kind is not ContainerRole.INIT
        if is_visible and container.name in allocated:
            continue
        count = container.counts[resource]
        # kubelet asks for no container that init containers cover, nor for one before an allocated one.
        if count == request.allocation_size and count > reused and allocated.isdisjoint(later):
            if reused == len(request.must_include_deviceIDs):
                return container
            # With a topology policy kubelet includes what it has aligned, too.
            near = near or container
        if is_visible and count > reused:
            break
    return near


def _in_order(pod: "NodePod", resource: str) -> "Iterator[tuple[ContainerRequest, int]]":
    """Return containers as kubelet allocates, each with the number of units from init containers."""
    containers = list(pod.asks_for(resource))
    counts = [(container.kind, container.counts[resource]) for container in containers]
    return zip(containers, reused_units(counts), strict=True)


def _is_assignment_free(
    identified: IdentifiedContainer, request: "ContainerPreferredAllocationRequest"
) -> bool:
    units: Iterable[str] = (identified.pod.assigned or {}).get(identified.container.name, ())
    return bool(units) and set(units) <= set(request.available_deviceIDs)
