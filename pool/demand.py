"""How many units a pod asks for, counted as kubelet and kube-scheduler do.

kubelet hands the devices of a plain init container on to the containers after it, and lets a sidecar
(an init container with restartPolicy Always) keep its own. Hence the number of distinct units is
    max(sidecars + containers, max over init containers(its units + sidecars before it)),
which is kube-scheduler's rule for the pod's requests (facts: kubelet's devicemanager, `devicesToReuse`).
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.names import RESOURCE_PREFIX
from api.quantity import parse_count
from pool.model import ContainerDemand, Demand, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.core import Container, PodSpec

MAX_UNITS: Final = 2**31 - 1
"""Far above any node, and small enough to be shown and to fit every field that carries it."""


@dataclass(frozen=True, slots=True)
class ManyPools:
    """The pod names more than one pool."""

    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadQuantity:
    """A quantity is not a whole number, or beyond `MAX_UNITS`."""

    container: str
    resource: str
    value: str


def demand_of(spec: "PodSpec") -> "Demand | ManyPools | BadQuantity | None":
    """Return what the pod asks for; None when it names no pool or asks for 0 of one."""
    resources: set[str] = set()
    containers: list[ContainerDemand] = []
    for container, role in _in_kubelet_order(spec):
        for resource, value in _pool_resources(container):
            resources.add(resource)
            try:
                units = parse_count(value)
            except ValueError:
                return BadQuantity(container.name, resource, str(value))
            if units > MAX_UNITS:
                return BadQuantity(container.name, resource, str(value))
            if units:
                containers.append(_container_demand(container.name, role, units))
    if len(resources) > 1:
        return ManyPools(tuple(sorted(resources)))
    if not containers:
        return None
    return _shared(resources.pop(), tuple(containers))


@functools.lru_cache(maxsize=4096)
def _shared(resource: str, containers: tuple[ContainerDemand, ...]) -> Demand:
    """Return one object for equal demands: thousands of pods ask for the same."""
    return Demand(resource, containers, distinct_units(containers))


_container_demand = functools.lru_cache(maxsize=4096)(ContainerDemand)
"""One object for equal ones, which makes them quick to find in the cache above."""


def names_a_pool(spec: "PodSpec") -> bool:
    """Say whether any container names a resource with our prefix, whatever its quantity."""
    return any(True for container, _ in _in_kubelet_order(spec) for _ in _pool_resources(container))


def units_by_resource(spec: "PodSpec") -> dict[str, int]:
    """Return how many units a pod asks of each pool, of a spec that admission would have refused.

    A quantity that is no number of units counts as one: the pod runs on something.
    """
    containers: dict[str, list[ContainerDemand]] = {}
    for container, role in _in_kubelet_order(spec):
        for resource, value in _pool_resources(container):
            try:
                units = min(parse_count(value), MAX_UNITS)
            except ValueError:
                units = 1
            if units:
                asked = containers.setdefault(resource, [])
                asked.append(ContainerDemand(container.name, role, units))
    return {resource: distinct_units(asked) for resource, asked in containers.items()}


def distinct_units(containers: "Iterable[ContainerDemand]") -> int:
    """Return how many distinct units the pod occupies at its peak."""
    peak = running = 0
    for container in containers:
        if container.role is Role.INIT:
            peak = max(peak, running + container.units)
        else:
            running += container.units
    return max(peak, running)


def _in_kubelet_order(spec: "PodSpec") -> "Iterator[tuple[Container, Role]]":
    for container in spec.init_containers or ():
        yield container, Role.SIDECAR if container.restart_policy == "Always" else Role.INIT
    for container in spec.containers or ():
        yield container, Role.MAIN


def _pool_resources(container: "Container") -> "Iterator[tuple[str, str | int]]":
    """Yield pool resources; limits win, since an extended resource's request equals its limit."""
    if container.resources is None:
        return
    merged = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    for resource, value in merged.items():
        if resource.startswith(RESOURCE_PREFIX):
            yield resource, value if isinstance(value, int) else str(value)
