"""What a viewer's picture is without, a sentence each."""

from typing import TYPE_CHECKING

from api.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.data.read_scope import ReadScope
    from console.visibility import Visibility


def gaps_of(scope: "ReadScope", visibility: "Visibility") -> tuple[str, ...]:
    """Return what may not be read, and what this viewer may not see of what is read."""
    return tuple(_hidden_parts(scope, visibility))


def _hidden_parts(scope: "ReadScope", visibility: "Visibility") -> "Iterator[str]":
    seen = visibility.namespaces
    if not scope.all_pods:
        pods = f"those of {scope.namespace} are shown" if scope.namespace else "none is shown"
        yield (
            f"Pods of all namespaces may not be listed: {pods}, figures are those that the leader last wrote, and no"
            " remedy can be tried."
        )
    elif seen is not None:
        pods = f"other namespaces than {listed(seen)}" if seen else "any namespace"
        yield f"Pods of {pods} are not shown: the units that they have are used, by nobody."
    if not scope.nodes:
        yield (
            "Nodes may not be listed: every node with a device counts as ready, without taints and labels."
            if scope.all_pods
            else "Nodes may not be listed: their states are unknown."
        )
    elif not visibility.nodes:
        yield "The states of nodes are not shown."
    if not scope.inventories:
        yield (
            "GPUNodeInventories may not be listed: topology policies and reports of kubelets, and the states of node"
            " agents, are unknown."
        )
    if not scope.leases_in:
        yield "The Lease of the control plane may not be read: whether it has a leader is unknown."
