"""`node.pool-labels`: a label per pool on every node that has a device of it.

Pods of the pool get a required affinity to this label, so that kube-scheduler looks only there.
Only keys with our prefix are touched.
"""

from typing import TYPE_CHECKING, Final, final

from api.names import POOL_NODE_LABEL_PREFIX, pool_node_label
from kube.errors import NotFound
from kube.resources import NODES
from manifests.rbac import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import NodeName
    from kube.client import KubeClient
    from pool.index import DeviceIndex


RBAC: Final = (Rule(resources=("nodes",), verbs=("patch",)),)


def label_changes(labels: "Mapping[str, str]", wanted: set[str]) -> dict[str, str | None]:
    """Return the merge patch that makes the wanted keys the only ones with our prefix."""
    shown = {key for key in labels if key.startswith(POOL_NODE_LABEL_PREFIX)}
    added: dict[str, str | None] = dict.fromkeys(sorted(wanted - shown), "")
    return {**added, **dict.fromkeys(sorted(shown - wanted))}


@final
class NodeLabels:
    """Writes the pool labels of one node."""

    def __init__(self, client: "KubeClient", index: "DeviceIndex") -> None:
        self._client = client
        self._index = index

    async def reconcile(self, name: "NodeName") -> float | None:
        """Make the node's labels name exactly the pools that have a device on it."""
        node = self._index.node(name)
        if node is None:
            return None
        wanted = {pool_node_label(pool) for pool in self._index.pools_on(name)}
        changes = label_changes(node.labels, wanted)
        if not changes:
            return None
        try:
            await self._client.merge_patch(NODES, {"metadata": {"labels": changes}}, name=name)
        except NotFound:
            return None
        return None
