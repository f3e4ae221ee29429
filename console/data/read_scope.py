"""Lists that a console may read: those of its user in `kubectl gpu console`, those of its account in a cluster."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, final

from console.visibility import Visibility
from kube.resources import (
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    LEASES,
    NODES,
    PODS,
)

if TYPE_CHECKING:
    from kube.client import KubeClient


class NothingReadableError(Exception):
    """Pools or devices may not be listed, without which there is no picture; the text says which."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadScope:
    """Lists that may be read, beside those of pools and devices, which are always read."""

    all_pods: bool
    namespace: str = ""
    """The one namespace whose pods are read where those of all may not be; empty where no pod is read."""
    nodes: bool
    inventories: bool
    leases_in: str = ""
    """Namespace of the leader's Lease; empty where it may not be read."""

    @classmethod
    def whole(cls, *, system_namespace: str) -> Self:
        """Return the scope of the console's own account in a cluster."""
        return cls(all_pods=True, nodes=True, inventories=True, leases_in=system_namespace)

    @property
    def visibility(self) -> Visibility:
        """What a viewer with the same rights sees."""
        seen = frozenset({self.namespace} - {""})
        return Visibility(namespaces=None if self.all_pods else seen, nodes=self.nodes)


async def find_scope(client: "KubeClient", *, namespace: str, system_namespace: str) -> ReadScope:
    """Return what may be listed, by asking for one object of each kind.

    Args:
        client: with the rights in question.
        namespace: whose pods are read where those of all namespaces may not be.
        system_namespace: of the control plane.

    Raises:
        NothingReadableError: pools or devices may not be listed.
        KubeError: the API server does not answer, accepts no credentials, or does not serve these kinds.
    """
    for resource in (GPU_POOLS, GPU_DEVICES):
        if not await client.can_list(resource):
            raise NothingReadableError(
                f"{resource.plural}.{resource.group} may not be listed by this user"
            )
    all_pods = await client.can_list(PODS)
    has_own = not all_pods and bool(namespace) and await client.can_list(PODS, namespace=namespace)
    has_lease = await client.can_list(LEASES, namespace=system_namespace)
    return ReadScope(
        all_pods=all_pods,
        namespace=namespace if has_own else "",
        nodes=await client.can_list(NODES),
        inventories=await client.can_list(GPU_NODE_INVENTORIES),
        leases_in=system_namespace if has_lease else "",
    )
