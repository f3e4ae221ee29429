"""Access to GPUNodeInventories, for those who report in the status of the node's."""

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from kube.resources import Resource

T = TypeVar("T")


class Inventories(Protocol):
    """The calls of `kube.client.KubeClient` for the node's inventory."""

    async def get(self, resource: "Resource", type_: type[T], name: str) -> T:
        """Return the object."""

    async def apply(
        self, resource: "Resource", body: object, *, field_manager: str, subresource: str
    ) -> object:
        """Apply server-side, with force."""
