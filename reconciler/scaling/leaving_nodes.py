"""`node.leaving`: reservations on a node that its autoscaler is about to remove, or that is gone, end at once.

The pods wait again: `pool.capacity` and `pool.scaling` see to those with our gate, `pod.waking` to the others. The
node's free units are gone from the index already. Bound pods are the autoscaler's to evict.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from reconciler.controller_spec import ControllerSpec
from reconciler.pool.index_changes import NODES as INDEX_NODES

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.allocation_state import AllocationState
    from pool.index.figures import IndexFigures

_log = structlog.get_logger()


@final
class LeavingNodes:
    """Ends reservations on one node at a time."""

    def __init__(self, index: "IndexFigures", allocation_state: "AllocationState") -> None:
        self._index = index
        self._state = allocation_state

    async def reconcile(self, name: "NodeName") -> None:
        """End the reservations of pods that are not bound there."""
        node = self._index.nodes.get(name)
        if node is not None and not node.is_leaving:
            return
        ended = self._state.release_on(name)
        if ended:
            pods = sorted(item.reservation.pod for item in ended)
            _log.info("node leaves: its reservations have ended", node=name, pods=pods)


SPEC: Final = ControllerSpec(
    name="node.leaving",
    triggers=(INDEX_NODES,),
    build=lambda context: LeavingNodes(context.index, context.allocation_state).reconcile,
)
