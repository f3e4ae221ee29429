"""A view shares equal refusals, and keeps none that no node has any more."""

from api.kinds.gpupool import Strategy
from api.names import NodeName
from pool.index.node_view import FitView, PoolNode
from pool.placement.unit_request import UnitRequest


def test_refusals_that_no_node_has_any_more_are_forgotten() -> None:
    view = FitView(UnitRequest(1_000_000))
    for used in range(10_000):
        node = PoolNode(
            total=20_000, used=used, reserved=0, free=20_000 - used, unhealthy=0, partial=0
        )
        view.update(NodeName("n1"), node, Strategy.BIN_PACK)
        view.update(NodeName("n2"), node, Strategy.BIN_PACK)
    assert len(view._interned) < 100
    assert view.refusals[NodeName("n1")] is view.refusals[NodeName("n2")]
