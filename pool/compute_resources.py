"""CPU of pods and nodes, as kube-scheduler counts it; placement weighs it, and kube-scheduler decides by it."""

from typing import TYPE_CHECKING, Final

from api.quantity import parse_milli

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.foreign.core import Container, PodContainers

CPU: Final = "cpu"


def requested_cpu_milli(spec: "PodContainers") -> int:
    """Return the CPU that a pod requests: its sidecars and containers, or more while it starts.

    Init containers run one after the other, each beside the sidecars that were started before it.
    """
    sidecars = starting = 0
    for container in spec.init_containers or ():
        cpu = _requested(container)
        if container.restart_policy == "Always":
            sidecars += cpu
            starting = max(starting, sidecars)
        else:
            starting = max(starting, sidecars + cpu)
    running = sidecars + sum(map(_requested, spec.containers or ()))
    return max(starting, running)


def cpu_milli(quantities: "Mapping[str, str | int | float] | None") -> int | None:
    """Return the CPU of a list of resources; None where it names none, or no valid quantity."""
    value = quantities.get(CPU) if quantities else None
    if value is None:
        return None
    try:
        return parse_milli(str(value))
    except ValueError:
        return None


def _requested(container: "Container") -> int:
    """Return the CPU of a container; a limit without a request is its request."""
    resources = container.resources
    if resources is None:
        return 0
    return cpu_milli(resources.requests) or cpu_milli(resources.limits) or 0
