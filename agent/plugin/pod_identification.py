"""Which pod kubelet is admitting: it says ids and a count, and no name.

Inside GetPreferredAllocation kubelet's List shows exactly one pod whose containers ask for the resource and
have nothing yet: kubelet adds a pod to its list just before it admits it, and admits one at a time. Bindings
and creation times order nothing, because a kubelet that restarts admits in another order.

Plain init containers are not listed. What kubelet asks for tells them apart: it hands the units of an init
container on to those after it, asks for no preference where these suffice, and names them in `must_include`
where they do not (`devicesToReuse` in kubelet's pkg/kubelet/cm/devicemanager/manager.go).
"""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from pool.demand import reused_units
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent.kubelet.pods import ContainerRequest, NodePod, NodePods
    from api.kubelet.podresources import PodUnits
    from api.kubelet.proto.deviceplugin_pb2 import ContainerPreferredAllocationRequest
    from api.names import PodUid

    IsServed = Callable[[PodUid, str, str], bool]
    """Pod, container, resource: it was seen to have units."""
    Listing = Sequence[PodUnits]

WATCH_WITHIN_S: Final = 0.25
"""kubelet's own watch was up to 23 ms ahead of ours, on a busy machine."""


class How(Enum):
    """By what a pod was recognised."""

    LISTED = "listed"
    """kubelet listed it, and it has nothing yet."""
    SERVED_BEFORE = "served before"
    """The same, though we gave it units: kubelet died before it wrote them down."""
    PROMISED = "promised"
    """kubelet did not list; of the pods that wait for what was promised to them, the first that fits."""


@final
@dataclass(frozen=True, slots=True)
class PodQuery:
    """What kubelet asks."""

    resource: str
    request: "ContainerPreferredAllocationRequest"


@final
@dataclass(frozen=True, slots=True)
class PodIdentified:
    """The container that kubelet asks for."""

    pod: "NodePod"
    container: "ContainerRequest"
    how: How


@final
@dataclass(frozen=True, slots=True)
class PodNotIdentified:
    """It is not known who asks."""

    why: str
    at_worst: PodIdentified | None = None
    """Who it is if nobody better turns up."""


async def wait_for_asking(
    pods: "NodePods",
    judge: "Callable[[], PodIdentified | PodNotIdentified]",
    within_s: float = WATCH_WITHIN_S,
) -> PodIdentified | PodNotIdentified:
    """Judge, and again each time our watch moves, until somebody is recognised or the time is over."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        changed = pods.changed
        found = judge()
        if isinstance(found, PodIdentified):
            return found
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            return found.at_worst or found


def recognise(
    listing: "Listing", pods: "NodePods", question: PodQuery, *, is_served: "IsServed"
) -> PodIdentified | PodNotIdentified:
    """Return who asks, by what kubelet lists while it asks."""
    found = [
        PodIdentified(pod, container, How.LISTED)
        for listed in listing
        if (pod := pods.find(listed.namespace, listed.name)) is not None
        and (container := asked_container(pod, listed, question)) is not None
    ]
    resource, request = question.resource, question.request
    fresh = [one for one in found if not is_served(one.pod.uid, one.container.name, resource)]
    if len(fresh) > 1:
        # Pods that run though kubelet lost its checkpoint have nothing by its books, either.
        fresh = [one for one in fresh if _is_promise_free(one, request)]
    if len(fresh) == 1:
        return fresh[0]
    names = ", ".join(one.pod.ref for one in found)
    if len(fresh) > 1:
        return PodNotIdentified(
            f"kubelet lists several that wait for {request.allocation_size}: {names}"
        )
    if len(found) == 1:
        known = found[0]
        worst = PodIdentified(known.pod, known.container, How.SERVED_BEFORE)
        return PodNotIdentified(f"{names} was served before", worst)
    return PodNotIdentified(
        f"kubelet lists no pod of the watch that waits for {request.allocation_size} of {resource}"
        + (f" alone: {names}" if names else "")
    )


def guess(
    pods: "NodePods", question: PodQuery, *, is_served: "IsServed"
) -> PodIdentified | PodNotIdentified:
    """Return who asks where kubelet does not list: the pod bound first whose promise fits and is free.

    Two pods with promises of one size may be taken for each other; each then has units that are free, and
    what it has is reported.
    """
    resource, request = question.resource, question.request
    for pod in pods.all():
        if pod.is_ended:
            continue
        for container, reused in _in_order(pod, resource):
            one = PodIdentified(pod, container, How.PROMISED)
            if (
                container.counts[resource] == request.allocation_size
                and reused == len(request.must_include_deviceIDs)
                and not is_served(pod.uid, container.name, resource)
                and _is_promise_free(one, request)
            ):
                return one
    return PodNotIdentified(
        f"kubelet does not list, and no pod of the watch was promised {request.allocation_size} of what is free"
    )


def asked_container(
    pod: "NodePod", listed: "PodUnits", question: PodQuery
) -> "ContainerRequest | None":
    """Return the container of a listed pod for which kubelet may be asking, None where there is none."""
    resource, request = question.resource, question.request
    served = {one.name for one in listed.containers if one.units.get(resource)}
    near: ContainerRequest | None = None
    later = [one.name for one in pod.asks_for(resource)]
    for container, reused in _in_order(pod, resource):
        later.pop(0)
        is_shown = container.kind is not ContainerRole.INIT
        if is_shown and container.name in served:
            continue
        count = container.counts[resource]
        # Who has all from init containers is never asked for, and who comes before one that is served is.
        if count == request.allocation_size and count > reused and served.isdisjoint(later):
            if reused == len(request.must_include_deviceIDs):
                return container
            # With a topology policy kubelet includes what it has aligned, too.
            near = near or container
        if is_shown and count > reused:
            break
    return near


def _in_order(pod: "NodePod", resource: str) -> "Iterator[tuple[ContainerRequest, int]]":
    """Return containers as kubelet allocates, each with how many units it has from init containers."""
    containers = list(pod.asks_for(resource))
    counts = [(one.kind, one.counts[resource]) for one in containers]
    return zip(containers, reused_units(counts), strict=True)


def _is_promise_free(one: PodIdentified, request: "ContainerPreferredAllocationRequest") -> bool:
    promised: Iterable[str] = (one.pod.promised or {}).get(one.container.name, ())
    return bool(promised) and set(promised) <= set(request.available_deviceIDs)
