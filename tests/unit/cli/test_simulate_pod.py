"""`simulate --pod`: where a pod would go, and what would have to change."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.annotations import encode_devices
from api.names import API_VERSION, DEVICES_ANNOTATION, UnitId
from cli.exit_status import FAILED, MISUSED, OK
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


class Asking:
    """Runs the command on files."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def __call__(self, pod: Object, *cluster: Object, flags: tuple[str, ...] = ()) -> Any:
        """Return the answer."""
        printed = self.text(pod, *cluster, flags=("--output", "json", *flags))
        return json.loads(printed)

    def text(self, pod: Object, *cluster: Object, flags: tuple[str, ...] = ()) -> str:
        asked = self.directory / "pod.yaml"
        asked.write_text(yaml.safe_dump(pod))
        files = a_list_file(self.directory / "cluster.json", *cluster)
        status = run(["simulate", "--pod", str(asked), "--cluster", str(files), *flags])
        printed = self._capsys.readouterr()
        assert (status, printed.err) == (OK, "")
        return printed.out


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asking:
    return Asking(tmp_path, capsys)


def kinds(answer: Object) -> list[str]:
    return [found["type"] for found in answer.get("remedies", ())]


def remedy(answer: Object, kind: str) -> Object:
    """Return the one remedy of a kind, without the name of the kind."""
    (found,) = (found for found in answer["remedies"] if found["type"] == kind)
    return {key: value for key, value in found.items() if key != "type"}


def test_a_pod_that_fits_gets_a_node_and_devices_by_name(ask: Asking):
    answer = ask(a_pod_object(units=2), *two_nodes(), a_bound_pod_object("other", "n1", [0, 1]))
    placement = answer["decision"]["placement"]
    assert answer["decision"]["verdict"] == "Placed"
    assert placement["node"] == "n1"
    assert [device["name"] for device in placement["devices"]] == ["n1-2", "n1-3"]
    assert placement["isReserved"]
    assert "remedies" not in answer
    assert "newNode" not in answer


def test_the_demand_of_the_servers_settings_decides_where_a_pool_has_no_pods_of_known_age(
    ask: Asking,
):
    """n2 has three devices free: room for one pod of three, which n1 keeps."""
    cluster = [*two_nodes(), a_bound_pod_object("other", "n2", [0])]
    settings = ask.directory / "settings.yaml"
    flags = ("--demand", str(settings))

    def node(*usual: Object) -> str:
        settings.write_text(yaml.safe_dump({"demand": {"usual": list(usual)}, "drain_s": 3}))
        answer = ask(a_pod_object(units=1), *cluster, flags=flags)
        return str(answer["decision"]["placement"]["node"])

    assert ask(a_pod_object(units=1), *cluster)["decision"]["placement"]["node"] == "n2"
    assert node({"units": 4}) == "n2"
    assert node({"units": 3}) == "n1"
    assert node({"units": 3}, {"pool": "whole", "units": 4, "cpu": "8", "memory": "64Gi"}) == "n2"


def test_a_demand_that_is_no_setting_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(a_pod_object()))
    settings = tmp_path / "settings.yaml"
    for content, said in (
        ({"demand": {"usual": [{"units": 0}]}}, "demand.usual"),
        ({"demnd": {}}, "demand"),
    ):
        settings.write_text(yaml.safe_dump(content))
        flags = ["--pod", str(tmp_path / "pod.yaml"), "--cluster", str(tmp_path)]
        assert run(["simulate", *flags, "--demand", str(settings)]) == FAILED
        printed = capsys.readouterr().err
        assert said in printed
        assert "Traceback" not in printed


def test_the_text_names_node_devices_and_strategy(ask: Asking):
    printed = ask.text(a_pod_object(units=1), *two_nodes())
    assert "pod default/mine: would be placed now (1 unit of gpu.deckhouse.io/whole)\n" in printed
    assert "  node      n1 (reserved at admission)\n  devices   n1-0 (NVIDIA-H200" in printed


def test_a_pod_that_waits_learns_why_and_what_would_help(ask: Asking):
    answer = ask(
        a_pod_object(units=3),
        *two_nodes(),
        a_bound_pod_object("a", "n1", [0]),
        a_bound_pod_object("b", "n1", [1]),
        a_bound_pod_object("c", "n2", [0, 1, 2], priority=5),
    )
    decision = answer["decision"]
    assert decision["verdict"] == "Waits"
    assert {item["reason"]: item["examples"] for item in decision["refused"]} == {
        "GPU pool whole: 3 requested, 2 free (2 used of 4)": ["n1"],
        "GPU pool whole: 3 requested, 1 free (3 used of 4)": ["n2"],
    }
    assert remedy(answer, "AskFewerUnits") == {"units": 2, "node": "n1"}
    ending = remedy(answer, "PodsEnd")
    assert (ending["node"], [holder["name"] for holder in ending["holders"]]) == ("n1", ["a"])
    assert "isPreemption" not in ending
    assert answer["newNode"] == {"like": "n1", "devices": {"NVIDIA-H200": 4}}


def test_pods_of_lower_priority_are_preempted(ask: Asking):
    pod = a_pod_object(units=4, priority=10)
    blockers = [a_bound_pod_object(f"p{node}", node, [0]) for node in ("n1", "n2")]
    assert "kube-scheduler preempts such pods by itself" in ask.text(pod, *two_nodes(), *blockers)


def test_a_reservation_of_a_waiting_pod_counts_for_others_and_not_for_itself(ask: Asking):
    waiting = a_pod_object("mine", 4)
    waiting["metadata"]["annotations"] = {
        "gpu.deckhouse.io/reservation": json.dumps(
            {
                "id": "r1",
                "pool": "whole",
                "node": "n1",
                "devices": {"main": [f"GPU-n1-{number}" for number in range(4)]},
                "expiresAt": "2099-01-01T00:00:00Z",
            }
        )
    }
    other = ask(a_pod_object("other", 4), *two_nodes(), waiting)
    assert other["decision"]["placement"]["node"] == "n2"
    own = ask(a_pod_object("mine", 4), *two_nodes(), waiting)
    assert own["decision"]["placement"]["node"] == "n1"


def test_another_pool_is_offered_only_where_access_rules_allow_it(ask: Asking):
    cluster = [
        a_pool_object(),
        a_pool_object("closed", access={"namespaces": ["finance"]}),
        a_pool_object("by-group", access={"groups": ["ml"]}),
        a_node_object("n1"),
        a_node_object("n2"),
        a_node_object("n3"),
        a_device_object("n1", 0),
        a_device_object("n2", 0, pool="closed"),
        a_device_object("n3", 0, pool="by-group"),
        a_bound_pod_object("other", "n1", [0]),
    ]
    assert "UsePool" not in kinds(ask(a_pod_object(), *cluster))
    found = remedy(ask(a_pod_object(), *cluster, flags=("--group", "ml")), "UsePool")
    assert (found["pool"], found["node"]) == ("by-group", "n3")


def test_an_unknown_pool_is_denied_and_others_are_offered(ask: Asking):
    answer = ask(a_pod_object(pool="whale"), *two_nodes())
    assert (answer["decision"]["verdict"], answer["decision"]["reason"]) == (
        "Denied",
        "PoolNotFound",
    )
    assert remedy(answer, "UsePool")["pool"] == "whole"


def test_more_units_than_any_node_has_are_denied_and_a_node_of_that_shape_is_described(
    ask: Asking,
):
    answer = ask(a_pod_object(units=6), *two_nodes())
    assert answer["decision"]["reason"] == "ExceedsCapacity"
    assert remedy(answer, "AskFewerUnits")["units"] == 4
    assert answer["newNode"] == {"like": None, "devices": {"": 6}}


def test_a_node_without_cpu_does_not_take_the_pod_and_ending_pods_give_theirs(ask: Asking):
    answer = ask(
        a_pod_object(units=1, cpu="10"),
        a_pool_object(),
        a_node_object("n1", cpu="12"),
        a_device_object("n1", 0),
        a_device_object("n1", 1),
        a_bound_pod_object("busy", "n1", [0], cpu="8"),
    )
    (refused,) = answer["decision"]["refused"]
    assert refused["reason"] == "insufficient cpu: 10000m requested, 4000m free"
    assert remedy(answer, "PodsEnd")["holders"][0]["name"] == "busy"


def a_two_socket_cluster(*, pool: Object) -> list[Object]:
    devices = [a_device_object("n1", at, numaNode=at // 2) for at in range(4)]
    return [pool, a_node_object("n1"), *devices]


def test_a_pool_that_requires_topology_refuses_unaligned_sets_and_says_what_would_help(
    ask: Asking,
):
    pool = a_pool_object(scheduling={"deviceTopology": "Required"})
    cluster = a_two_socket_cluster(pool=pool)
    blockers = [a_bound_pod_object(f"p{at}", "n1", [at]) for at in (0, 2)]
    answer = ask(a_pod_object(units=2), *cluster, *blockers)
    (refused,) = answer["decision"]["refused"]
    assert (
        "2 requested and 2 free, but of these at most 1 are on one NUMA node" in (refused["reason"])
    )
    assert remedy(answer, "AskFewerUnits")["units"] == 1
    assert len(remedy(answer, "PodsEnd")["holders"]) == 1
    assert answer["newNode"]["like"] == "n1"
    aligned = ask(a_pod_object(units=2), *cluster)["decision"]["placement"]
    assert aligned["topology"] == "NUMA node"


def test_a_kubelet_that_would_reject_the_pod_is_named(ask: Asking):
    inventory = {
        "apiVersion": API_VERSION,
        "kind": "GPUNodeInventory",
        "metadata": {"name": "n1"},
        "status": {"kubelet": {"topologyManagerPolicy": "single-numa-node"}},
    }
    cluster = [*a_two_socket_cluster(pool=a_pool_object()), inventory]
    blockers = [a_bound_pod_object(f"p{at}", "n1", [at]) for at in (0, 2)]
    (refused,) = ask(a_pod_object(units=2), *cluster, *blockers)["decision"]["refused"]
    assert "its topologyManagerPolicy is single-numa-node" in refused["reason"]


def test_fewer_slices_of_one_device_are_offered(ask: Asking):
    pool = a_pool_object(
        allocation={"mode": "TimeSlice", "slicesPerDevice": 10, "slicePlacement": "SameDevice"}
    )
    cluster = [pool, a_node_object("n1"), *(a_device_object("n1", at) for at in range(2))]
    other = a_pod_object("other", 4, nodeName="n1")
    units = tuple(UnitId(f"GPU-n1-{at}::{part}") for at in range(2) for part in (0, 1))
    other["metadata"]["annotations"] = {DEVICES_ANNOTATION: encode_devices({"main": units})}
    answer = ask(a_pod_object(units=9), *cluster, other)
    assert answer["decision"]["verdict"] == "Waits"
    assert remedy(answer, "AskFewerUnits") == {"units": 8, "node": "n1"}


@pytest.mark.parametrize(
    ("numa_nodes", "text"),
    [
        ((0, 0, 0, 0), "topology  one NUMA node"),
        ((0, 0, 0, 1), "topology  split: neither one NUMA node nor all connected by NVLink"),
        ((None, None, None, None), "topology  unknown: the node reports no NUMA nodes"),
    ],
)
def test_the_topology_of_the_chosen_devices_is_told(
    ask: Asking, numa_nodes: tuple[int | None, ...], text: str
):
    cluster = [
        a_pool_object(),
        a_node_object("n1"),
        *(a_device_object("n1", at, numaNode=numa) for at, numa in enumerate(numa_nodes)),
    ]
    assert text in ask.text(a_pod_object(units=4), *cluster)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"unschedulable": True}, "node is cordoned", id="cordoned"),
        pytest.param(
            {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]},
            "taint team:NoSchedule is not tolerated",
            id="taint",
        ),
    ],
)
def test_nodes_that_kube_scheduler_passes_over_say_why(
    ask: Asking, spec: dict[str, Any], reason: str
):
    cluster = [a_pool_object(), a_node_object("n1", **spec), a_device_object("n1", 0)]
    (refused,) = ask(a_pod_object(), *cluster)["decision"]["refused"]
    assert refused["reason"] == reason


def test_a_pod_of_no_pool_is_none_of_our_business(ask: Asking):
    pod = a_pod_object()
    del pod["spec"]["containers"][0]["resources"]
    assert "names no GPU pool" in ask.text(pod, *two_nodes())


def test_a_job_stands_for_its_pod(ask: Asking):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"template": {"spec": a_pod_object(units=2)["spec"]}},
    }
    answer = ask(job, *two_nodes())
    assert (answer["pod"], answer["decision"]["units"]) == ("ml/train", 2)


def test_a_snapshot_without_pods_says_that_it_is_partial(ask: Asking):
    answer = ask(a_pod_object(), *two_nodes())
    assert answer["partial"] == [
        "the files have no Pod: units in use and reserved are unknown: every unit counts as free"
    ]


def test_an_object_that_cannot_be_decoded_is_skipped_and_named(ask: Asking):
    broken = a_node_object("n3")
    broken["spec"] = {"unschedulable": "perhaps"}
    answer = ask(a_pod_object(), *two_nodes(), broken)
    assert any("Node n3" in gap for gap in answer["partial"])
    assert answer["decision"]["verdict"] == "Placed"


def test_fields_that_only_kube_scheduler_checks_are_named_and_of_a_reserved_pod_those_that_admission_weighed_are_not(
    ask: Asking,
):
    pod = a_pod_object(
        affinity={
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                ]
            }
        },
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    weighed, not_weighed = "spec.affinity.podAntiAffinity", "spec.volumes[].persistentVolumeClaim"
    reserved = ask(pod, *two_nodes())
    assert reserved["decision"]["placement"]["isReserved"]
    assert reserved["notChecked"] == [not_weighed]
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    assert ask(pod, *two_nodes())["notChecked"] == ["spec.schedulingGates", not_weighed, weighed]


def test_yaml_streams_and_typed_lists_and_directories_are_read(
    ask: Asking, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    directory = tmp_path / "cluster"
    directory.mkdir()
    pools, *others = two_nodes()
    (directory / "pools.yaml").write_text(
        yaml.safe_dump({"apiVersion": pools["apiVersion"], "kind": "GPUPoolList", "items": [pools]})
    )
    (directory / "others.yml").write_text(yaml.safe_dump_all(others))
    pod = a_list_file(tmp_path / "pod.json", a_pod_object())
    assert run(["simulate", "--pod", str(pod), "--cluster", str(directory)]) == OK
    assert "would be placed now" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param("{", "{file} is neither YAML nor JSON", id="broken JSON"),
        pytest.param('{"a":' * 100_000, "{file} is neither YAML nor JSON", id="nested JSON"),
        pytest.param("a: [", "{file} is neither YAML nor JSON", id="broken YAML"),
        pytest.param("- 1", "{file} is no file of Kubernetes objects: they have a kind", id="list"),
        pytest.param("kind: ConfigMap\nspec: {}", "{file} has no pod; give one Pod", id="no pod"),
        pytest.param(
            "kind: Pod\nspec: {containers: 3}", "{file}: the pod cannot be decoded", id="wrong pod"
        ),
        pytest.param(None, "{file} cannot be read: No such file or directory", id="no file"),
    ],
)
def test_a_pod_file_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, complaint: str
):
    file = tmp_path / "pod.yaml"
    if content is not None:
        file.write_text(content)
    cluster = a_list_file(tmp_path / "cluster.json", *two_nodes())
    assert run(["simulate", "--pod", str(file), "--cluster", str(cluster)]) == FAILED
    printed = capsys.readouterr().err
    assert printed.startswith(f"gpu-control-plane: {complaint.format(file=file)}")
    assert printed.count("\n") == 1


def test_a_cluster_without_pools_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pod = a_list_file(tmp_path / "pod.json", a_pod_object())
    cluster = a_list_file(tmp_path / "cluster.json", a_node_object("n1"))
    assert run(["simulate", "--pod", str(pod), "--cluster", str(cluster)]) == FAILED
    assert "there is no GPUPool, and a simulation needs them" in capsys.readouterr().err


def test_without_a_question_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str]):
    assert run(["simulate"]) == MISUSED
    assert capsys.readouterr().err.startswith("gpu-control-plane: give either --pod FILE")
