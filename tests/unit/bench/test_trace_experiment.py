"""The experiment on the trace, as its authors published it."""

import pytest

from api.kinds.gpupool import SlicePlacement
from pool.placement.simulation.openb import TraceError, read_pods
from tests.bench.placement.trace_cluster import Cluster, Workload
from tests.bench.placement.trace_experiment import experiment, read_nodes, unit_milli

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-b,64000,262144,2,P100
node-a,96000,393216,8,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-0,12000,16384,1,1000,,LS,Running,10,110,10
pod-1,6000,12288,1,460,P100|G2,LS,Running,5,,5
pod-2,8000,4096,0,0,,LS,Running,7,8,7
pod-3,32000,4096,4,1000,,LS,Running,20,30,20
"""


def run(seed: int = 42, inflate: float = 1.0) -> tuple[Cluster, Workload]:
    nodes = read_nodes(NODES.splitlines(), "nodes.csv")
    pods = read_pods(PODS.splitlines(), "pods.csv")
    return experiment(nodes, pods, inflate=inflate, seed=seed)


def test_missing_columns_and_empty_files_are_errors() -> None:
    with pytest.raises(TraceError, match="no column sn, cpu_milli"):
        read_nodes([], "nodes.csv")
    with pytest.raises(TraceError, match="has no nodes"):
        read_nodes(["sn,cpu_milli,memory_mib,gpu,model\n"], "nodes.csv")


def test_the_cluster_is_one_pool_of_slices_on_one_device() -> None:
    cluster, workload = run()
    (pool,) = cluster.pools
    assert (pool.units_per_device, pool.placement) == (50, SlicePlacement.SAME_DEVICE)
    assert {(node.name, len(node.devices), node.model) for node in cluster.nodes} == {
        ("node-a", 8, "G2"),
        ("node-b", 2, "P100"),
    }
    units = {pod.name: (pod.pool, pod.units) for pod in workload.pods}
    assert units["pod-1"] == ("openb", 23)
    assert units["pod-2"] == ("", 0)
    assert units["pod-3"] == ("openb", 200)


def test_the_order_depends_on_the_seed_only() -> None:
    first, again, other = (
        [pod.name for pod in run(seed, inflate=2)[1].pods] for seed in (42, 42, 43)
    )
    assert first == again != other


def test_a_unit_is_the_largest_that_divides_every_demand() -> None:
    assert unit_milli(read_pods(PODS.splitlines(), "pods.csv")) == 20
