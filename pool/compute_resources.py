"""CPU, memory and number of pods, as kube-scheduler counts them; placement weighs CPU and memory, and kube-scheduler decides by all.

Quantities that are not valid count as none: the API server stores no such pod.
"""

import functools
from typing import TYPE_CHECKING, Final

import msgspec

from api.quantity import parse_milli

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.foreign.core import Container, Pod, PodSpec, ResourceRequirements

    Quantities = Mapping[str, str | int | float]
    Resizes = Mapping[str, list[Quantities]]

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
TOO_MANY_PODS: Final = "too many pods"
"""Why kube-scheduler passes a node over on which kubelet runs no more pods."""
OTHER_PODS: Final = "podAntiAffinity of other pods"
"""What may keep a pod away that its own spec does not say."""
_MILLI_MIB: Final = 1000 * 2**20


class ComputeResources(msgspec.Struct, frozen=True, gc=False):
    """An amount of CPU and memory, and the pods that request it."""

    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = 0


NOTHING: Final = ComputeResources()


def requested(pod: "Pod") -> ComputeResources:
    """Return what one pod requests: of its containers or for the whole pod, and the overhead of its runtime class."""
    resizes = _resizes(pod)
    cpu, memory = (_requested(pod.spec, resource, resizes) for resource in (CPU, MEMORY))
    return _shared(cpu, -(-memory // _MILLI_MIB), 1)


def others_requested(spec: "PodSpec", *, ours: str) -> "tuple[tuple[str, int], ...]":
    """Return the whole amounts that a pod requests of resources beside CPU, memory and those of a prefix; sorted by name."""
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    lists = [container.resources for container in containers] + [spec.resources]
    named = [
        spec.overhead,
        *(part for list_ in lists if list_ for part in (list_.requests, list_.limits)),
    ]
    names = {name for quantities in named for name in quantities or ()} - {CPU, MEMORY}
    amounts = {
        name: -(-_requested(spec, name) // 1000) for name in names if not name.startswith(ours)
    }
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def resources_of(cpu: str, memory: str) -> ComputeResources:
    """Return an amount of CPU and memory that is given as quantities.

    Raises:
        ValueError: one is no quantity, or is negative.
    """
    return _shared(parse_milli(cpu), -(-parse_milli(memory) // _MILLI_MIB))


def allocatable(quantities: "Quantities | None") -> "tuple[int | None, int | None]":
    """Return the CPU milli and memory MiB of a node's list of resources; None where it names none, or no valid quantity."""
    cpu, memory = _milli(quantities, CPU), _milli(quantities, MEMORY)
    return cpu, None if memory is None else memory // _MILLI_MIB


def most_pods(quantities: "Quantities | None") -> int | None:
    """Return how many pods kubelet runs, by a node's list of resources; None where it names no valid number."""
    found = _milli(quantities, PODS)
    return None if found is None else found // 1000


def _resizes(pod: "Pod") -> "Resizes":
    """Return the requests of containers, and of the pod as "", that are resized in place: asked, accepted and actual.

    The largest counts. What is asked does not count once kubelet has said that the node can never give it.
    """
    found: dict[str, list[Quantities]] = {}
    status, spec = pod.status, pod.spec
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    for name, has in (("", status), *((item.name, item) for item in statuses)):
        actual = has.resources.requests if has.resources is not None else None
        current = [part for part in (has.allocated_resources, actual) if part]
        if current:
            found[name] = current
    if not found or any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in status.conditions or ()
    ):
        return found
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    asked = (("", spec.resources), *((item.name, item.resources) for item in containers))
    for name, resources in asked:
        if name in found and resources is not None:
            found[name].append(resources.requests or {})
    return found


def _requested(spec: "PodSpec", resource: str, resizes: "Resizes | None" = None) -> int:
    """Return thousandths of a resource.

    Sidecars and containers run together. Init containers run one after the other, each beside the sidecars that were
    started before it.
    """
    sidecars = starting = 0
    for container in spec.init_containers or ():
        amount = _of_container(container, resource, resizes)
        if container.restart_policy == "Always":
            sidecars += amount
            starting = max(starting, sidecars)
        else:
            starting = max(starting, sidecars + amount)
    running = sidecars + sum(
        _of_container(container, resource, resizes) for container in spec.containers or ()
    )
    amount = max(starting, running)
    if spec.resources is not None:
        whole = _milli(spec.resources.requests, resource)
        # As the API server sets it: a limit of the pod is its request only where no container requests any.
        limit = _milli(spec.resources.limits, resource) or 0
        amount = (amount or limit) if whole is None else _resized("", resource, resizes) or whole
    return amount + (_milli(spec.overhead, resource) or 0)


def _of_container(container: "Container", resource: str, resizes: "Resizes | None") -> int:
    found = _resized(container.name, resource, resizes)
    return (_request_of(container.resources, resource) or 0) if found is None else found


def _resized(name: str, resource: str, resizes: "Resizes | None") -> int | None:
    current = resizes.get(name) if resizes else None
    return None if current is None else max(_milli(part, resource) or 0 for part in current)


def _request_of(resources: "ResourceRequirements | None", resource: str) -> int | None:
    """Return a request; a limit without a request is the request."""
    if resources is None:
        return None
    found = _milli(resources.requests, resource)
    return found if found is not None else _milli(resources.limits, resource)


def _milli(quantities: "Quantities | None", resource: str) -> int | None:
    value = quantities.get(resource) if quantities else None
    if value is None:
        return None
    try:
        return parse_milli(str(value))
    except ValueError:
        return None


@functools.lru_cache(maxsize=1024)
def _shared(*amounts: int) -> ComputeResources:
    """Return one object for equal requests, which thousands of pods have."""
    return ComputeResources(*amounts)
