"""What the kernel caches of a pod demand of its node and devices: ports that `kernelcache.cache_index` satisfies.

Compiled kernels run on devices of some compute capabilities only. All values are hashable; equal ones demand the same.
"""

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.cache_name import CacheName
    from api.names import NodeName


class DeviceLimit(Protocol):
    """The limit on the devices that a pod can use."""

    def fits(self, compute_capability: str) -> bool:
        """Say whether the pod can use a device; an empty text is a capability that is not known."""

    def incompatibility(self, capabilities: "Iterable[str]") -> tuple[str, str]:
        """Return what does not fit such devices, as subject and verb of a sentence, and the reason."""

    def __hash__(self) -> int: ...


class CacheDemand(Protocol):
    """What the caches of one pod demand."""

    @property
    def devices(self) -> DeviceLimit: ...

    @property
    def warm_nodes(self) -> "frozenset[NodeName]":
        """Nodes that have all of the caches."""


class ResolvedCaches(Protocol):
    """The caches of the cluster."""

    def demand(self, names: "Iterable[CacheName]") -> CacheDemand | None:
        """Return what these caches demand; None where none of them is known."""


@final
class NoCaches:
    """A cluster without caches."""

    def demand(self, names: "Iterable[CacheName]") -> CacheDemand | None:
        return None
