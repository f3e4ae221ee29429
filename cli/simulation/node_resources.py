"""CPU, memory and number of pods: kube-scheduler's other limits of a node.

The server only weighs them, and a simulation decides by them: a node without CPU takes no pod, whatever its devices.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from api.quantity import parse_decimal
from pool.compute_resources import allocatable, requested

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.foreign.core import Node, Pod, PodSpec

_DEFAULT_PODS: Final = 110
"""kubelet's default of --max-pods."""


class Resources(msgspec.Struct, frozen=True):
    """An amount of each resource; of a node, of a pod, or left."""

    cpu_milli: int
    memory_mib: int
    pods: int = 1

    def without(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            self.pods - other.pods,
        )

    def with_(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
            self.pods + other.pods,
        )

    def lacks(self, wanted: "Resources") -> str | None:
        """Return which resource does not suffice, with its figures; None when all do."""
        if self.cpu_milli < wanted.cpu_milli:
            return (
                f"insufficient cpu: {wanted.cpu_milli}m requested, {max(self.cpu_milli, 0)}m free"
            )
        if self.memory_mib < wanted.memory_mib:
            return (
                f"insufficient memory: {wanted.memory_mib} MiB requested,"
                f" {max(self.memory_mib, 0)} MiB free"
            )
        return "too many pods" if self.pods < wanted.pods else None


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that occupies resources of its node, whether it names a pool or not."""

    uid: str
    node: str
    requests: Resources


def allocatable_of(node: "Node") -> Resources | None:
    """Return a node's allocatable resources; None where it does not report them."""
    found = node.status.allocatable
    if not found or "cpu" not in found or "memory" not in found:
        return None
    pods = found.get("pods")
    cpu, memory = allocatable(found)
    return Resources(
        cpu or 0,
        memory or 0,
        _DEFAULT_PODS if pods is None else int(parse_decimal(str(pods))),
    )


def requests_of(spec: "PodSpec") -> Resources:
    """Return a pod's requests."""
    found = requested(spec)
    return Resources(found.cpu_milli, found.memory_mib)


def bound_pod(pod: "Pod") -> BoundPod | None:
    """Return the resources that a pod occupies on its node; None for a pod that is not bound, or has ended."""
    if not pod.spec.node_name or pod.is_terminal:
        return None
    return BoundPod(pod.metadata.uid, pod.spec.node_name, requests_of(pod.spec))


def free_by_node(
    allocatable: "Mapping[str, Resources]", pods: "Iterable[BoundPod]"
) -> dict[str, Resources]:
    """Return what is left on each node whose size is known."""
    free = dict(allocatable)
    for pod in pods:
        if pod.node in free:
            free[pod.node] = free[pod.node].without(pod.requests)
    return free
