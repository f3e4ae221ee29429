"""The trace as it is published, and what is wrong with other files."""

import pytest

from pool.placement.fragmentation.target_workload import TargetShape
from pool.placement.simulation import openb
from pool.placement.simulation.openb import TraceError

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-0,12000,16384,1,1000,,LS,Running,10,110,10
pod-1,6000,12288,1,460,P100|G2,LS,Running,5,,5
pod-2,8000,4096,0,0,,LS,Running,7,8,7
pod-3,32000,4096,4,1000,,LS,Running,20,30,20
"""


def pods(text: str = PODS) -> list[openb.TracePod]:
    return openb.read_pods(text.splitlines(), "pods.csv")


def test_pods_are_read_with_their_models_and_times() -> None:
    whole, share, cpu, several = pods()
    assert whole.shape == TargetShape(12000, 1000, 1)
    assert (share.shape, share.created_s, share.deleted_s) == (
        TargetShape(6000, 460, 1, ("P100", "G2")),
        5,
        None,
    )
    assert cpu.shape == TargetShape(8000, 0, 0)
    assert several.shape.demand == 4000


def test_columns_of_models_and_times_may_be_missing() -> None:
    (pod,) = pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\npod,1,2,1,37\n")
    assert (pod.models, pod.created_s, pod.deleted_s) == ((), None, None)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        pytest.param("pod,x,1,1,10,", "row 2, column cpu_milli: is not", id="no number"),
        pytest.param("pod,1,nan,1,10,", "row 2, column memory_mib: is not", id="nan"),
        pytest.param("pod,1,-5,1,10,", "row 2, column memory_mib: is not", id="negative"),
        pytest.param("pod,1,1,1.5,10,", "row 2, column num_gpu: is not", id="a part"),
        pytest.param(",1,1,1,10,", "row 2, column name: is empty", id="no name"),
        pytest.param("pod,1,1,1,", "row 2, column gpu_milli: is empty", id="short"),
        pytest.param("pod,1,1,1,0,", "row 2, column gpu_milli: is 0, not 1", id="nothing"),
        pytest.param("pod,1,1,1,1001,", "row 2, column gpu_milli: is 1001", id="too much"),
        pytest.param("pod,1,1,2,500,", "column gpu_milli: is 500; a pod of 2", id="two parts"),
        pytest.param("pod,1,1,1,10,,,", "row 2: there are more cells", id="long"),
    ],
)
def test_a_broken_row_is_named_with_its_column(row: str, problem: str) -> None:
    with pytest.raises(TraceError, match=r"pods\.csv, ") as error:
        pods(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{row}\n")
    assert problem in str(error.value)


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(TraceError, match="row 1: there is no column gpu_milli"):
        pods("name,cpu_milli,memory_mib,num_gpu\n")


def test_the_trace_in_its_own_time_has_arrivals_and_ends() -> None:
    assert [
        (pod.name, arrival_s, lasted_s) for pod, arrival_s, lasted_s in openb.in_time(pods())
    ] == [
        ("pod-1", 5.0, None),
        ("pod-2", 7.0, 1.0),
        ("pod-0", 10.0, 100.0),
        ("pod-3", 20.0, 10.0),
    ]
