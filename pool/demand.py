"""How many units a pod asks for, counted as kubelet and kube-scheduler do.

kubelet hands the devices of a plain init container on to the containers after it, and lets a sidecar
(an init container with restartPolicy Always) keep its own. Hence the number of distinct units is
    max(sidecars + containers, max over init containers(its units + sidecars before it)),
which is kube-scheduler's rule for the pod's requests (facts: kubelet's devicemanager, `devicesToReuse`).
"""

import functools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from api.mounted_caches import mounted_caches
from api.names import RESOURCE_PREFIX
from api.quantity import parse_count
from pool.model import ContainerDemand, ContainerRole, Demand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.foreign.core import Container, PodContainers, Volume

    Asked = tuple[str, str, str, str | int]
    """Container, value of its `ContainerRole`, resource, quantity as written. Plain values, since every pod is looked
    up by them: hashing a `ContainerRole` takes as long as all of the rest.
    """

MAX_UNITS: Final = 2**31 - 1
"""Far above any node, and small enough for every field that shows it."""


@dataclass(frozen=True, slots=True)
class ManyPools:
    resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadQuantity:
    """A quantity that is not a whole number, or is beyond `MAX_UNITS`."""

    container: str
    resource: str
    value: str


class Measure(Enum):
    """Bounded figure of a pod."""

    CONTAINERS = "containers"
    LISTED_UNITS = "listed units"
    """Sum of the units of all containers; reused units count for each container that lists them."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The pod is larger than any node could run; the rest of it is not read."""

    measure: Measure
    found: int
    bound: int


Unserved = ManyPools | BadQuantity | TooLarge
"""No pool can serve it."""

MAX_CONTAINERS: Final = 1_000
"""Nodes run a few hundred; reading one takes some microseconds."""
MAX_LISTED_UNITS: Final = 2_048
"""Most units in the list for a pod whose containers reuse units. The largest node has 16 devices of 100 slices,
1,600 units; the
annotations list the units of each container, 47 bytes each (`admission.pods.size_limits`).
"""


def demand_of(spec: "PodContainers", namespace: str = "") -> "Demand | Unserved | None":
    """Return the pod's demand; None when it names no pool or asks for 0 units of each: charts write such numbers.

    Without the pod's namespace the kernel caches of namespaces are left out.
    """
    count = len(spec.containers or ()) + len(spec.init_containers or ())
    if count > MAX_CONTAINERS:
        too_large = TooLarge(Measure.CONTAINERS, count, MAX_CONTAINERS)
        return too_large if names_a_pool(spec) else None
    asked: list[Asked] = []
    length = 0
    for container, role in _in_kubelet_order(spec):
        for resource, value in _pool_resources(container):
            asked.append((container.name, role, resource, value))
            if len(asked) > MAX_CONTAINERS:  # more than containers: one of them names several pools
                return ManyPools(tuple(sorted({name for _, _, name, _ in asked})))
            length += len(container.name) + len(resource) + len(str(value))
    if not asked:
        return None
    # Admission reads pods before they are validated: a huge demand must not stay in the cache.
    parse = _parse_cached if length <= _MOST_CACHED else _parse
    demand = parse(tuple(asked))
    if spec.volumes is not None:
        for volume in spec.volumes:
            if volume.csi is not None:  # few pods
                return _with_caches(demand, spec.volumes, namespace)
    return demand


def _with_caches(
    demand: "Demand | Unserved | None", volumes: "Iterable[Volume]", namespace: str
) -> "Demand | Unserved | None":
    caches = mounted_caches(volumes, namespace) if isinstance(demand, Demand) else ()
    if not caches or not isinstance(demand, Demand):
        return demand
    return msgspec.structs.replace(demand, caches=caches)


def _parse(asked: "tuple[Asked, ...]") -> "Demand | Unserved | None":
    resources: set[str] = set()
    containers: list[ContainerDemand] = []
    for container, role, resource, value in asked:
        try:
            units = parse_count(value)
        except ValueError:
            return BadQuantity(container, resource, str(value))
        if units > MAX_UNITS:
            return BadQuantity(container, resource, str(value))
        if units:
            resources.add(resource)
            containers.append(ContainerDemand(container, ContainerRole(role), units))
    if len(resources) > 1:
        return ManyPools(tuple(sorted(resources)))
    if not containers:
        return None
    distinct = distinct_units(containers)
    listed = sum(container.units for container in containers)
    if listed > max(distinct, MAX_LISTED_UNITS):
        return TooLarge(Measure.LISTED_UNITS, listed, MAX_LISTED_UNITS)
    return Demand(resources.pop(), tuple(containers), distinct)


_MOST_CACHED: Final = 1024
"""Characters: a dozen containers with names of the usual length."""
_parse_cached = functools.lru_cache(maxsize=4096)(_parse)
"""Thousands of pods have equal demands: each is parsed once, and equal demands are one object."""


def names_a_pool(spec: "PodContainers") -> bool:
    """Say whether a container names a resource with the pools' prefix, whatever its quantity."""
    return any(True for container, _ in _in_kubelet_order(spec) for _ in _pool_resources(container))


def named_resources(spec: "PodContainers") -> list[str]:
    """Return the resources with the pools' prefix, whatever their quantities."""
    found = {
        resource
        for container, _ in _in_kubelet_order(spec)
        for resource, _ in _pool_resources(container)
    }
    return sorted(found)


def units_by_resource(spec: "PodContainers") -> dict[str, int]:
    """Return the units of each pool in a spec that admission would have denied.

    A quantity that is not a number of units counts as one: the pod runs on some device.
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
                asked.append(ContainerDemand(container.name, ContainerRole(role), units))
    return {resource: distinct_units(asked) for resource, asked in containers.items()}


def distinct_units(containers: "Iterable[ContainerDemand]") -> int:
    """Return how many distinct units the pod occupies at its peak."""
    counts = [(container.role, container.units) for container in containers]
    return sum(units for _, units in counts) - sum(reused_units(counts))


def reused_units(counts: "Iterable[tuple[ContainerRole, int]]") -> "Iterator[int]":
    """Yield how many units each container takes over from plain init containers before it.

    `counts` are the containers' units in kubelet's order. kubelet gives a container the units of earlier
    init containers first; a sidecar or main container keeps them, an init container passes them on.
    """
    reusable = 0
    for role, units in counts:
        reused = min(reusable, units)
        yield reused
        if role is ContainerRole.INIT:
            reusable = max(reusable, units)
        else:
            reusable -= reused


_INIT, _SIDECAR, _MAIN = (
    ContainerRole.INIT.value,
    ContainerRole.SIDECAR.value,
    ContainerRole.MAIN.value,
)


def _in_kubelet_order(spec: "PodContainers") -> "Iterator[tuple[Container, str]]":
    for container in spec.init_containers or ():
        yield container, _SIDECAR if container.restart_policy == "Always" else _INIT
    for container in spec.containers or ():
        yield container, _MAIN


def _pool_resources(container: "Container") -> "Iterable[tuple[str, str | int]]":
    """Return pool resources; limits win, since an extended resource's request equals its limit."""
    if container.resources is None:
        return ()
    requests, limits = container.resources.requests, container.resources.limits
    found: dict[str, str | int] = {}
    for item in (limits,) if requests == limits else (requests, limits):
        for resource, value in item.items() if item else ():
            if resource.startswith(RESOURCE_PREFIX):
                found[resource] = value if isinstance(value, int) else str(value)
    return found.items()
