"""The containers that kubelet gave a device to: the labels pool, namespace, pod and container of its metrics."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

from api.names import RESOURCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.gpunodeinventory import ContainerDevices


class Holder(NamedTuple):
    """A container, and the pool that it has the device of."""

    pool: str
    namespace: str
    pod: str
    container: str


@final
@dataclass(slots=True)
class Holders:
    """The containers that hold a device or a MIG instance."""

    containers: "dict[Holder, None]"
    """Containers in the order of `status.allocations`, each once."""
    is_shared: bool = False
    """Whether the device is handed out in time slices."""


def holders_of(
    allocations: "Iterable[ContainerDevices]", pools: "Mapping[str, str]"
) -> dict[str, Holders]:
    """Return the holders by UUID of the device or MIG instance.

    Args:
        allocations: what kubelet gave.
        pools: resource -> pool, of pools with a resource name of their own.
    """
    found: dict[str, Holders] = {}
    for allocation in allocations:
        pool = pools.get(allocation.resource) or allocation.resource.removeprefix(RESOURCE_PREFIX)
        holder = Holder(pool, allocation.namespace, allocation.pod, allocation.container)
        for unit in allocation.units:
            uuid, slices, _ = unit.partition("::")
            if uuid not in found:
                found[uuid] = Holders({})
            found[uuid].containers[holder] = None
            found[uuid].is_shared = found[uuid].is_shared or bool(slices)
    return found
