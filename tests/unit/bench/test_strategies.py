"""Scores of strategies on single nodes, as the published program rounds them."""

import pytest

from api.kinds.gpupool import SlicePlacement
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from pool.placement.simulation.model import SimulatedPod
from tests.bench.placement.least_fragmentation import LeastFragmentation
from tests.bench.placement.node_state import Ask, Asks, NodeState, spread_units
from tests.bench.placement.ranked_nodes import simulate
from tests.bench.placement.strategies import Scoring, StartState, scoring_of
from tests.bench.placement.trace_cluster import (
    Cluster,
    SimulatedDevice,
    SimulatedNode,
    SimulatedPool,
    Workload,
)

SHARED_PLACEMENT = SlicePlacement.DISTINCT_DEVICES
POOL = SimulatedPool("gpu", units_per_device=100)
WHOLE_DEVICES = SimulatedPool("whole")
CLUSTER = Cluster((POOL, WHOLE_DEVICES), ())
ASKS = Asks(CLUSTER)
TARGET = TargetWorkload.of([TargetShape(4000, 500, 1), TargetShape(8000, 1000, 1)])


def a_state(*free: int, cpu: int | None = 96_000, whole: int = 0) -> NodeState:
    """Return a node with so many free hundredths of each device."""
    devices = [SimulatedDevice("gpu", 100, item) for item in free]
    devices += [SimulatedDevice("whole")] * whole
    return NodeState.of(0, SimulatedNode("node", tuple(devices), cpu), ASKS.pools)


def an_ask(units: int, cpu: int = 0, pool: str = "gpu") -> Ask:
    return ASKS.of(SimulatedPod("pod", pool if units else "", units, cpu))


def scoring(name: str, *nodes: NodeState) -> Scoring:
    return scoring_of(name, StartState({"gpu": TARGET, "whole": TARGET}, nodes, 42))


def test_dot_product_prefers_nodes_with_little_of_what_is_asked() -> None:
    score = scoring("DotProd").score
    assert score(a_state(100, 100), an_ask(100, 8000)) == 96
    assert score(a_state(*[100] * 8, cpu=128_000), an_ask(800, 128_000)) == 0
    assert score(a_state(0, cpu=None), an_ask(0, 8000)) == 100


def test_clustering_prefers_nodes_of_its_own_kind() -> None:
    score = scoring("GpuClustering").score
    node = a_state(*[100] * 8)
    assert score(node, an_ask(50)) == 25
    node.take(an_ask(50), 0, ((0, 500),))
    assert score(node, an_ask(60)) == 75 + 25 * 500 // 8000
    assert score(node, an_ask(100)) == 25 * 500 // 8000
    node.take(an_ask(100), 0, ((1, 1000),))
    assert score(node, an_ask(100)) == 50 + 25 * 1500 // 8000
    assert score(node, an_ask(0)) == 0
    node.release(an_ask(100), 0, ((1, 1000),))
    assert "1" not in node.sizes


@pytest.mark.parametrize(
    ("free", "units", "want"),
    [
        pytest.param((100, 100), 50, 31, id="all idle"),
        pytest.param((100,) * 8, 100, 25, id="eight idle"),
        pytest.param((100, 100, 30), 50, 49, id="opens one"),
        pytest.param((100, 100, 30), 200, 48, id="opens two"),
        pytest.param((100, 30), 20, 97, id="uses a part"),
        pytest.param((99, 90), 20, 91, id="uses the smaller rest"),
        pytest.param((30,), 0, 0, id="cpu only"),
    ],
)
def test_packing_opens_idle_devices_last(free, units, want) -> None:
    assert scoring("GpuPacking").score(a_state(*free), an_ask(units)) == want


def test_best_fit_prefers_the_node_that_is_left_with_the_least() -> None:
    score = scoring("BestFit").score
    assert score(a_state(100, cpu=8000), an_ask(100, 8000)) == 100
    assert score(a_state(*[100] * 8, cpu=128_000), an_ask(0)) == 0


def test_fgd_takes_the_first_device_of_the_best_score() -> None:
    fgd = scoring("FGD")
    node = a_state(100, 50, 100, 50)
    assert fgd.choose(node, an_ask(50)) == ((1, 500),)
    assert fgd.score(node, an_ask(50)) > fgd.score(a_state(100, 100), an_ask(50))
    assert node.remaining["gpu"] == [1000, 500, 1000, 500]
    assert fgd.score(a_state(0), an_ask(0, 1000)) == 50
    assert fgd.choose(a_state(100), an_ask(0, 1000)) == ()


def test_partial_pods_take_the_tightest_device_and_spread_the_emptiest() -> None:
    node = a_state(100, 60, 80)
    assert scoring("BinPack").choose(node, an_ask(50)) == ((1, 500),)
    assert scoring("Spread").choose(node, an_ask(50)) == ((0, 1000 // 2),)
    assert scoring("Spread").choose(node, an_ask(100)) == ((0, 1000),)


def test_random_takes_any_device_that_fits() -> None:
    choose = scoring("Random").choose
    node = a_state(100, 10, 80)
    assert {choose(node, an_ask(50)) for _ in range(50)} == {((0, 500),), ((2, 500),)}
    assert choose(node, an_ask(100)) == ((0, 1000),)


def test_what_a_pod_takes_from_other_pools_of_the_node_counts() -> None:
    emptier, scarce = a_state(100, cpu=96_000, whole=2), a_state(100, cpu=20_000, whole=2)
    for name in ("LeastFragmentation", "FGD"):
        strategy = scoring(name, emptier, scarce)
        for units in (0, 50):
            ask = an_ask(units, 16_000)
            emptier_score, scarce_score = (strategy.score(item, ask) for item in (emptier, scarce))
            assert emptier_score >= scarce_score
    values = LeastFragmentation({"gpu": TARGET, "whole": TARGET}, [emptier])
    assert values.choose(emptier, an_ask(0, 16_000)) == ()
    assert values.score(a_state(100, cpu=None, whole=1), an_ask(0, 16_000)) == 0


def test_a_price_of_room_renews_the_scores_of_nodes_with_room_only() -> None:
    shapes = [TargetShape(0, 1000, 2), TargetShape(0, 1000, 1)]
    devices = [SimulatedDevice("whole")]
    nodes = [
        NodeState.of(at, SimulatedNode("node", tuple(devices * count)), ASKS.pools)
        for at, count in enumerate((2, 2, 2, 1))
    ]
    values = LeastFragmentation({"whole": TargetWorkload.of(shapes)}, nodes)
    ask = an_ask(1, pool="whole")
    nodes[0].take(ask, 0, ((0, 1000),))
    assert values.changed(nodes[0]) == {0}
    nodes[1].take(ask, 0, ((0, 1000),))
    nodes[1].take(ask, 0, ((1, 1000),))
    assert values.changed(nodes[1]) == {1}
    nodes[3].take(ask, 0, ((0, 1000),))
    before = values.score(nodes[2], ask)
    nodes[2].take(an_ask(2, pool="whole"), 0, ((0, 1000), (1, 1000)))
    values.changed(nodes[2])
    nodes[2].release(an_ask(2, pool="whole"), 0, ((0, 1000), (1, 1000)))
    assert 2 in values.changed(nodes[2])
    assert values.score(nodes[2], ask) <= before


def test_units_are_spread_from_the_fullest_or_the_emptiest_device() -> None:
    cluster = Cluster((SimulatedPool("mig", 4, placement=SHARED_PLACEMENT),), ())
    ask = Asks(cluster).of(SimulatedPod("pod", "mig", 3))
    assert spread_units([1000, 250], ask, fullest_first=True) == ((1, 250), (0, 500))
    assert spread_units([250, 1000, 0], ask, fullest_first=False) == ((1, 500), (0, 250))


def test_an_idle_devices_cause_is_the_pod_nearest_to_fitting_on_that_device() -> None:
    node = SimulatedNode(
        "node", (SimulatedDevice("gpu", 100, 80), SimulatedDevice("gpu", 100, 20)), 1000
    )
    pods = (SimulatedPod("pod", "gpu", 50, 2000),)
    result = simulate(Cluster((POOL,), (node,)), Workload(pods), "BestFit")
    assert {cause.name: milli for cause, milli in result.idle_milli.items()} == {
        "CPU": 800,
        "HOLE": 200,
    }
