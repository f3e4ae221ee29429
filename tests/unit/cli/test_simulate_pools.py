"""`simulate --workload` on a cluster of pools: what admission, nodes and devices make of its pods."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.exit_status import FAILED, OK
from cli.main import run
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_list_file,
    a_node_object,
    a_pod_object,
    a_pool_object,
    two_nodes,
)

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time
p1,1000,1024,1,460,,LS,0,100
p2,1000,1024,2,1000,T4,LS,10,
p3,1000,1024,0,0,,BE,20,30
"""


class Simulating:
    """Runs the command on files."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def __call__(self, workload: Any, *cluster: Object, flags: tuple[str, ...] = ()) -> Any:
        """Return the report; groups, or the text of a file."""
        status, printed, said = self._run(workload, cluster, ("--output", "json", *flags))
        assert (status, said) == (OK, "")
        return json.loads(printed)

    def complaint(self, workload: Any, *cluster: Object, flags: tuple[str, ...] = ()) -> str:
        status, printed, said = self._run(workload, cluster, flags)
        assert (status, printed) == (FAILED, "")
        assert said.count("\n") == 1
        return said

    def _run(
        self, workload: Any, cluster: tuple[Object, ...], flags: tuple[str, ...]
    ) -> tuple[int, str, str]:
        is_csv = isinstance(workload, str) and workload.startswith("name,")
        file = self.directory / ("pods.csv" if is_csv else "workload.yaml")
        is_text = isinstance(workload, str)
        file.write_text(workload if is_text else yaml.safe_dump({"pods": workload}))
        objects = a_list_file(self.directory / "cluster.json", *cluster)
        status = run(["simulate", "--workload", str(file), "--cluster", str(objects), *flags])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulating:
    return Simulating(tmp_path, capsys)


def a_node(name: str, count: int, *, pool: str = "whole", **status: Any) -> list[Object]:
    return [
        a_node_object(name),
        *(a_device_object(name, number, pool=pool, **status) for number in range(count)),
    ]


def containers(units: int, pool: str = "whole", *names: str) -> list[Object]:
    limits = {f"gpu.deckhouse.io/{pool}": str(units)}
    return [{"name": name, "resources": {"limits": limits}} for name in names or ("main",)]


def test_a_pod_that_may_not_use_its_pool_is_denied_and_does_not_wait(simulate: Simulating):
    cluster = [a_pool_object(access={"namespaces": ["ml"]}), *a_node("n1", 4)]
    group = {"pool": "whole", "units": 1, "duration": "1h"}
    groups = [
        {"name": "mine", "namespace": "ml", **group},
        {"name": "other", "namespace": "web", "count": 2, **group},
    ]
    found = simulate(groups, *cluster)
    (one,) = found["strategies"]
    assert (one["notPlaced"], one["refusalCauses"]) == (2, {"Denied": 2})
    assert all(point["waiting"] == 0 for point in one["curve"])
    (note,) = [note for note in found["notes"] if "denies" in note]
    assert note.startswith("pods that admission denies: 2, the first is web/other-0: ")


def test_groups_of_the_creator_open_a_pool(simulate: Simulating):
    cluster = [a_pool_object(access={"groups": ["ml"]}), *a_node("n1", 4)]
    groups = [{"name": "mine", "pool": "whole", "units": 1}]
    assert simulate(groups, *cluster)["strategies"][0]["notPlaced"] == 1
    found = simulate(groups, *cluster, flags=("--group", "ml"))
    assert found["strategies"][0]["notPlaced"] == 0


def test_a_pool_that_rejects_waiting_pods_denies_them(simulate: Simulating):
    cluster = [a_pool_object(reservation={"whenExhausted": "Reject"}), *a_node("n1", 1)]
    groups = [{"name": "a", "pool": "whole", "units": 1, "count": 3, "duration": "1h"}]
    found = simulate(groups, *cluster)
    one = found["strategies"][0]
    assert (one["notPlaced"], one["waited"]) == (2, 0)
    (note,) = [note for note in found["notes"] if "denies" in note]
    assert note.startswith("pods that admission denies: 2, the first is default/a-1: pool whole")


def test_a_pod_that_no_node_could_ever_align_is_denied_with_the_reason(simulate: Simulating):
    cluster = [
        a_pool_object(scheduling={"deviceTopology": "Required"}),
        a_node_object("n1"),
        *(a_device_object("n1", number, numaNode=number // 2) for number in range(4)),
    ]
    found = simulate([{"name": "a", "pool": "whole", "units": 4}], *cluster)
    assert "no node has more than 2 so; ask for at most 2" in " ".join(found["notes"])


def test_devices_that_are_not_together_stay_idle_for_that_reason(simulate: Simulating):
    cluster = [
        a_pool_object(scheduling={"deviceTopology": "Required"}),
        a_node_object("n1"),
        *(a_device_object("n1", number, numaNode=number // 2) for number in range(4)),
        a_bound_pod_object("x", "n1", [0]),
        a_bound_pod_object("y", "n1", [2]),
    ]
    one = simulate([{"name": "a", "pool": "whole", "units": 2}], *cluster)["strategies"][0]
    assert one["refusalCauses"] == {"Topology": 1}
    assert one["idle"] == {"NotTogether": 0.5}


def test_kubelet_s_policy_counts(simulate: Simulating):
    inventory = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUNodeInventory",
        "metadata": {"name": "n1"},
        "status": {"kubelet": {"topologyManagerPolicy": "single-numa-node"}},
    }
    cluster = [
        a_pool_object(),
        a_node_object("n1"),
        *(a_device_object("n1", number, numaNode=number // 2) for number in range(4)),
        inventory,
    ]
    one = simulate([{"name": "a", "pool": "whole", "units": 3}], *cluster)["strategies"][0]
    assert one["refusalCauses"] == {"Topology": 1}


@pytest.mark.parametrize(
    ("group", "cause", "idle"),
    [
        pytest.param({"cpu": "100"}, "Cpu", "CpuGone", id="cpu"),
        pytest.param({"memory": "1Ti"}, "Memory", "MemoryGone", id="memory"),
        pytest.param({"units": 4}, "Devices", "HoleTooSmall", id="units"),
        pytest.param({"models": ["NVIDIA-L4"]}, "Excluded", "Excluded", id="model of others"),
    ],
)
def test_a_refusal_has_a_cause(simulate: Simulating, *, group: Object, cause: str, idle: str):
    cluster = [
        *two_nodes(devices=3),
        *a_node("n3", 5, pool="small", product="NVIDIA-L4"),
        a_pool_object("small"),
        a_bound_pod_object("x", "n1", [0, 1, 2]),
        a_bound_pod_object("y", "n2", [0]),
    ]
    # A node of four is needed, so that a demand of four waits and is not denied.
    cluster += [*a_node("n4", 4), a_bound_pod_object("z", "n4", [0, 1, 2, 3])]
    one = simulate([{"name": "a", "pool": "whole", "units": 1, **group}], *cluster)
    (found,) = one["strategies"]
    assert found["refusalCauses"] == {cause: 1}
    assert found["idle"][idle] == pytest.approx(2 / 15, abs=0.01)


@pytest.mark.parametrize(
    ("group", "cause"),
    [({"cpu": "65"}, "Cpu"), ({"memory": "1Ti"}, "Memory"), ({"models": ["L4"]}, "Excluded")],
)
def test_a_refusal_of_a_pod_without_units_has_a_cause(
    simulate: Simulating, *, group: Object, cause: str
):
    tainted = a_node_object("n3", taints=[{"key": "x", "effect": "NoSchedule"}])
    cluster = [*two_nodes(), tainted, a_device_object("n3", 0, product="L4")]
    one = simulate([{"name": "web", **group}], *cluster)["strategies"][0]
    assert one["refusalCauses"] == {cause: 1}


def test_a_waiting_pod_keeps_no_units_from_others(simulate: Simulating):
    cluster = [a_pool_object(), a_node_object("n1", cpu="4"), a_device_object("n1", 0)]
    groups = [
        {"name": "large", "pool": "whole", "units": 1, "cpu": 8, "duration": "1h"},
        {"name": "small", "pool": "whole", "units": 1, "cpu": 1, "arrival": 1, "duration": "1h"},
    ]
    one = simulate(groups, *cluster)["strategies"][0]
    assert (one["notPlaced"], one["refusalCauses"], one["waited"]) == (1, {"Cpu": 1}, 0)


def test_a_template_has_everything_that_a_pod_has(simulate: Simulating):
    cluster = [*two_nodes(), a_bound_pod_object("x", "n1", [0, 1, 2])]
    spec = {
        "containers": containers(1, "whole", "main", "side"),
        "nodeSelector": {"kubernetes.io/hostname": "n1"},
    }
    group = {"name": "a", "template": {"spec": spec}, "duration": "1h"}
    found = simulate([group], *cluster)["strategies"][0]
    assert (found["notPlaced"], found["bySize"]) == (1, {"2": {"asked": 1, "notPlaced": 1}})
    spec["nodeSelector"] = {"kubernetes.io/hostname": "n2"}
    assert simulate([group], *cluster)["strategies"][0]["notPlaced"] == 0


def test_waiting_pods_are_tried_by_priority(simulate: Simulating):
    cluster = [a_pool_object(), *a_node("n1", 1)]
    groups = [
        {
            "name": name,
            "template": {"spec": {"containers": containers(1), "priority": priority}},
            "arrival": arrival,
            "duration": 100,
        }
        for name, priority, arrival in (("first", 0, 0), ("low", 0, 1), ("high", 5, 2))
    ]
    found = simulate(groups, *cluster)["strategies"][0]
    # high waits for 98 s and low for 199 s; by arrival it would be 99 and 198.
    assert found["longestWaitS"] == 199


def test_kubernetes_objects_are_a_workload(simulate: Simulating):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"parallelism": 3, "template": {"spec": {"containers": containers(2)}}},
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}
    text = yaml.safe_dump_all([job, service, a_pod_object("single", 1)])
    found = simulate(text, *two_nodes())
    assert (found["pods"], found["axis"]) == (4, "Arrived")
    assert found["strategies"][0]["bySize"] == {
        "1": {"asked": 1, "notPlaced": 0},
        "2": {"asked": 3, "notPlaced": 0},
    }


def test_strategies_of_pools_are_compared(simulate: Simulating):
    cluster = [*two_nodes(), a_pool_object("idle")]
    groups = [
        {"name": "one", "pool": "whole", "units": 1, "count": 4},
        {"name": "four", "pool": "whole", "units": 4},
    ]
    flags = ("--strategy", "PoolSpec", "--strategy", "BinPack", "--strategy", "Spread")
    found = simulate(groups, *cluster, flags=flags)["strategies"]
    assert [item["strategy"] for item in found] == ["PoolSpec", "BinPack", "Spread"]
    assert [item["notPlaced"] for item in found] == [0, 0, 1]


def test_what_is_said_of_one_strategy_alone_names_it(simulate: Simulating):
    cluster = [a_pool_object(reservation={"whenExhausted": "Reject"}), *two_nodes()[1:]]
    groups = [
        {"name": "one", "pool": "whole", "units": 1, "count": 4},
        {"name": "four", "pool": "whole", "units": 4},
    ]
    flags = ("--strategy", "BinPack", "--strategy", "Spread")
    notes = simulate(groups, *cluster, flags=flags)["notes"]
    assert any(
        note.startswith("Spread: pods that admission denies: 1, the first is") for note in notes
    )


def test_what_is_left_out_is_said(simulate: Simulating):
    terminating = a_pool_object("ending")
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster = [
        *two_nodes(),
        terminating,
        a_node_object("n3", unschedulable=True),
        a_device_object("n3", 0),
        a_pod_object("waits", 4),
    ]
    found = simulate([{"name": "a", "pool": "whole", "units": 4, "count": 2}], *cluster)
    assert (found["nodes"], found["devices"]) == (2, 8)
    assert found["strategies"][0]["notPlaced"] == 0
    assert found["notes"] == [
        "pool ending is left out: it allocates no units now",
        "nodes that are cordoned or not ready are left out: 1",
        "pods that wait in the cluster are left out: 1",
    ]


def test_pods_without_units_take_cpu_where_most_is_left(simulate: Simulating):
    tainted = a_node_object("n3", cpu="99", taints=[{"key": "x", "effect": "NoSchedule"}])
    cluster = [*two_nodes(), tainted]
    groups = [
        {"name": "web", "cpu": "40", "count": 3, "duration": "1h"},
        {"name": "train", "pool": "whole", "units": 1, "cpu": "40", "arrival": 1},
    ]
    found = simulate(groups, *cluster)["strategies"][0]
    # Each of two nodes of 64 CPUs takes one; the third pod and the one with a device wait for an hour.
    assert (found["waited"], found["longestWaitS"]) == (2, 3600)


def test_a_model_is_one_of_the_nodes_devices(simulate: Simulating):
    cluster = [*two_nodes(), *a_node("n3", 4, product="NVIDIA-L4")]
    group = {"name": "a", "pool": "whole", "units": 4, "models": ["NVIDIA-L4"]}
    assert simulate([group], *cluster)["strategies"][0]["notPlaced"] == 0
    assert simulate([{**group, "count": 2}], *cluster)["strategies"][0]["notPlaced"] == 1
    said = simulate.complaint([{**group, "models": ["NVIDIA-L5"]}], *cluster)
    assert "pod default/a takes model NVIDIA-L5, which no node has; did you mean NVIDIA-L4?" in said


@pytest.mark.parametrize("flags", [("--inflate", "0.9"), ("--trace-times",)])
def test_pods_of_the_trace_run_on_pools(simulate: Simulating, flags: tuple[str, ...]):
    slices = {"mode": "TimeSlice", "slicesPerDevice": 50, "slicePlacement": "SameDevice"}
    cluster = [a_pool_object(allocation=slices), *two_nodes()[1:]]
    found = simulate(PODS, *cluster, flags=flags)
    (one,) = found["strategies"]
    assert one["notPlaced"] == 0
    assert one["bySize"].keys() == {"cpu only", "share", "2"}
    assert "models that pods of the trace name are not asked for" in found["notes"]


def test_the_pool_that_pods_of_the_trace_ask_is_named(simulate: Simulating):
    cluster = [*two_nodes(), a_pool_object("small")]
    assert "the cluster has pools small, whole; name the one" in simulate.complaint(PODS, *cluster)
    said = simulate.complaint(PODS, *cluster, flags=("--pool", "whale"))
    assert "asks for units of pool whale, which the cluster lacks; did you mean whole?" in said
    found = simulate(PODS, *cluster, flags=("--pool", "whole"))
    # A share of a whole device is a whole one.
    assert "share" not in found["strategies"][0]["bySize"]


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        pytest.param(
            [{"name": "a", "pool": "whale", "units": 1}],
            "pod default/a asks for units of pool whale, which the cluster lacks; did you mean whole?",
            id="pool",
        ),
        pytest.param(
            [{"name": "a", "template": {}}],
            "pod default/a: the template has no spec",
            id="no spec",
        ),
        pytest.param(
            [{"name": "a", "template": {"spec": {"containers": 1}}}],
            "pod default/a: the pod cannot be decoded",
            id="spec",
        ),
        pytest.param(
            [{"name": "a", "template": {"spec": {}}, "cpu": 1}],
            "pods[0] (a): give a template, or pool, units, cpu, memory and models",
            id="both",
        ),
        pytest.param(
            yaml.safe_dump(a_pod_object("a", "many")),
            'pod default/a: container "main" asks for "many" of gpu.deckhouse.io/whole',
            id="quantity",
        ),
        pytest.param(
            yaml.safe_dump({"kind": "Service", "apiVersion": "v1"}), "has 0 pods", id="no pods"
        ),
        pytest.param("a: [", "workload.yaml is no YAML", id="yaml"),
        pytest.param("pods: []\n---\npods: []\n", "is no workload", id="two documents"),
    ],
)
def test_a_workload_that_cannot_be_used_is_refused_in_one_line(
    simulate: Simulating, *, workload: Any, said: str
):
    assert said in simulate.complaint(workload, *two_nodes())
