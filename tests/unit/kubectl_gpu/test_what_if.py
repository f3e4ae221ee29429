"""How many equal pods a cluster takes, and where: the verb against counting by hand."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import POOL_LABEL
from cli.simulation.pod_file import pod_of_object
from cli.simulation.pod_scheduling import PodCreator
from kube.resources import GPU_DEVICES, NODES, PODS
from kubectl_gpu.command_line import run
from kubectl_gpu.dump.dumped_lists import collect
from kubectl_gpu.dumped.dump_archive import write_dump
from kubectl_gpu.errors import ForbiddenError, UnreadableError
from kubectl_gpu.terminal import Terminal
from kubectl_gpu.what_if.trial_pods import try_pods
from kubectl_gpu.what_if.verb import copy_of
from tests.support.cluster_objects import (
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
    two_nodes,
)
from tests.support.listed_objects import ListedObjects
from tests.support.object_source import ObjectSource

Json = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.tgz"


def what_if(path: Path, objects: list[Json], *arguments: str) -> tuple[int, str, str]:
    """Run the verb on a dump of the objects; return exit code, output and complaints."""
    for object_ in objects:
        if object_["kind"] == "Pod":
            object_["metadata"].setdefault("labels", {})[POOL_LABEL] = "whole"
    write_dump(path, collect(ObjectSource(objects), namespace="gpu-control-plane"))
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    terminal = Terminal(out, io.StringIO())
    code = run(["whatif", "--from", str(path), *arguments], terminal)
    out.seek(0)
    return code, out.read(), terminal.err.getvalue()  # type: ignore[attr-defined]


def answer(path: Path, objects: list[Json], *arguments: str) -> Json:
    _, text, complaints = what_if(path, objects, *arguments, "-o", "json")
    assert not complaints
    found: Json = json.loads(text)
    return found


def test_a_pod_that_fits_says_where(path: Path):
    code, text, _ = what_if(path, two_nodes(), "--pool", "whole", "--units", "3")
    assert code == 0
    assert text.startswith(
        "pod default/what-if: would be placed now (3 units of gpu.deckhouse.io/whole)\n  node      n"
    )


def test_a_pod_that_does_not_fit_says_what_would_help(path: Path):
    objects = [*two_nodes(), a_bound_pod_object("a", "n1", [0]), a_bound_pod_object("b", "n2", [0])]
    code, text, _ = what_if(path, objects, "--pool", "whole", "--units", "4")
    assert code == 1
    assert "would wait" in text
    assert "ask for 3 units: node n1 would take the pod now" in text


def test_pods_are_placed_one_after_the_other(path: Path):
    found = answer(path, two_nodes(), "--pool", "whole", "--units", "2", "--times", "6")
    assert (found["kind"], found["fits"], found["pods"]) == ("WhatIf", False, 6)
    assert sorted(item["node"] for item in found["placed"]) == ["n1", "n1", "n2", "n2"]
    devices = [device for item in found["placed"] for device in item["devices"]]
    assert len(devices) == len(set(devices)) == 8
    assert found["answer"]["pod"] == "default/what-if-5"


def test_the_table_counts_pods_by_node(path: Path):
    code, text, _ = what_if(path, two_nodes(), "--pool", "whole", "--units", "2", "--times", "4")
    assert code == 0
    assert text == (
        "4 of 4 pods would be placed now, each with 2 units\n"
        "  NODE  PODS  UNITS\n"
        "  n1       2      4\n"
        "  n2       2      4\n"
        "partial: a dump has pods of pools alone: what CPU and memory nodes have left is unknown, and a"
        " pod that requests them gets neither a node nor a remedy\n"
    )


def test_a_cordoned_node_takes_none(path: Path):
    arguments = ("--pool", "whole", "--units", "4", "--times", "2", "--cordon", "n1")
    found = answer(path, two_nodes(), *arguments)
    assert [item["node"] for item in found["placed"]] == ["n2"]
    _, text, _ = what_if(path, two_nodes(), *arguments)
    assert "node is cordoned (n1)" in text


def test_pods_that_are_bound_on_a_cordoned_node_stay(path: Path):
    objects = [*two_nodes(), a_bound_pod_object("a", "n1", [0])]
    found = answer(
        path, objects, "--pool", "whole", "--units", "1", "--times", "9", "--cordon", "n1"
    )
    assert len(found["placed"]) == 4


def test_cpu_that_pods_of_the_trial_take_is_taken(path: Path, tmp_path: Path):
    objects = [a_pool_object(), a_node_object("n1", cpu="5")]
    objects += [a_device_object("n1", number) for number in range(8)]
    pod = a_pod_object("mine", cpu="2")
    asked = pod_of_object(pod, where="the test")
    assert asked is not None
    found = try_pods(asked, 4, copy_of(ListedObjects(objects)), caller=PodCreator())
    assert len(found.placed) == 2
    assert "insufficient cpu" in str(found.last_answer)
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    of_dump = answer(path, objects, "-f", str(file), "--times", "4")
    assert of_dump["placed"] == []
    assert "not all pods are read" in json.dumps(of_dump["answer"])


@given(
    free=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    units=st.integers(1, 4),
    times=st.integers(1, 12),
)
def test_as_many_pods_fit_as_counting_by_node_finds(
    free: list[int], units: int, times: int, tmp_path_factory: pytest.TempPathFactory
):
    objects = [a_pool_object()]
    for number, count in enumerate(free):
        name = f"n{number}"
        objects += [a_node_object(name), *(a_device_object(name, item) for item in range(4))]
        if count < 4:
            objects.append(a_bound_pod_object(f"p{number}", name, list(range(4 - count))))
    path = tmp_path_factory.mktemp("what-if") / "f.tgz"
    arguments = ("--pool", "whole", "--units", str(units), "--times", str(times))
    found = answer(path, objects, *arguments)
    fitting = min(times, sum(item // units for item in free))
    assert len(found["placed"]) == fitting
    assert found["fits"] is (fitting == times)


def test_a_job_has_as_many_pods_as_run_at_once(path: Path, tmp_path: Path):
    pod = a_pod_object("train")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"gpu.deckhouse.io/whole": "2"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"parallelism": 3, "template": {"spec": pod["spec"]}},
    }
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    found = answer(path, two_nodes(), "-f", str(file), "-n", "team")
    assert found["pods"] == 3
    assert [item["pod"] for item in found["placed"]] == [
        "team/train-1",
        "team/train-2",
        "team/train-3",
    ]
    assert answer(path, two_nodes(), "-f", str(file), "--times", "1")["pods"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either -f FILE, or --pool POOL with --units N"),
        (("--pool", "whole", "-f", "x"), "give either"),
        (("--pool", "whole"), "--pool POOL and --units N go together"),
        (("--pool", "whole", "--units", "0"), "'0' is no number from 1"),
        (("--pool", "whole", "--units", "1", "--times", "-3"), "--times"),
        (("-f", "/nonexistent.yaml"), "cannot be read"),
        (("--pool", "whole", "--units", "1", "--watch"), "no such flag --watch"),
    ],
)
def test_flags_that_cannot_be_used_are_refused(arguments: tuple[str, ...], said: str, path: Path):
    code, text, complaint = what_if(path, two_nodes(), *arguments)
    assert (code, text) == (2, "")
    assert said in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps({"kind": "ConfigMap", "metadata": {}}), "has no object with pods"),
        (
            "---\n".join([json.dumps(a_pod_object(), indent=1) + "\n"] * 2),
            "has 2 objects with pods",
        ),
        (json.dumps({"kind": "Pod", "spec": {"containers": [{"name": 3}]}}), "cannot be decoded"),
        (
            json.dumps({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}),
            "asks for no pool",
        ),
        (json.dumps({"kind": "Job", "spec": {"template": 3}}), "has no object with pods"),
        ("{", "neither YAML nor JSON"),
        ("- 3", "is no file of Kubernetes objects"),
    ],
)
def test_files_that_cannot_be_used_are_refused(content: str, said: str, path: Path, tmp_path: Path):
    file = tmp_path / "pod.yaml"
    file.write_text(content if not content.startswith("{\n") else f"---\n{content}")
    code, text, complaint = what_if(path, two_nodes(), "-f", str(file))
    assert (code, text) == (2, "")
    assert said in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pool", "none", "--units", "1"), "there is no pool none"),
        (("--pool", "whole", "--units", "1", "--cordon", "n7"), "there is no node n7"),
    ],
)
def test_names_that_are_not_there_are_named(arguments: tuple[str, ...], said: str, path: Path):
    code, _, complaint = what_if(path, two_nodes(), *arguments)
    assert code == 3
    assert said in complaint


def test_lists_that_may_not_be_read_make_the_answer_partial():
    source = ObjectSource(two_nodes(), forbidden=[PODS, NODES])
    snapshot = copy_of(source)
    assert len(snapshot.gaps) == 2
    assert {query.resource.plural for query in source.queries} >= {"pods", "nodes", "gpudevices"}


def test_without_devices_there_is_no_answer():
    with pytest.raises(ForbiddenError, match="gpudevices may not be read"):
        copy_of(ObjectSource(two_nodes(), forbidden=[GPU_DEVICES]))
    with pytest.raises(UnreadableError):
        copy_of(ObjectSource(two_nodes(), forbidden=[NODES]), cordoned=["n1"])
