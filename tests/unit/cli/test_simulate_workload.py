"""`simulate --workload`: traces and workloads on clusters from files, and every way to give bad ones."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from cli.exit_status import FAILED, MISUSED, OK
from cli.main import run
from tests.support.cluster_objects import a_bound_pod_object, a_list_file, two_nodes

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
p1,1000,1024,1,500,,LS
p2,1000,1024,2,1000,T4,LS
p3,1000,1024,0,0,,BE
"""


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    """Return the flags of a trace on two nodes of four devices."""
    (tmp_path / "pods.csv").write_text(PODS)
    cluster = a_list_file(tmp_path / "cluster.json", *two_nodes())
    return ["--cluster", str(cluster), "--workload", str(tmp_path / "pods.csv")]


def a_workload(directory: Path, *groups: dict[str, Any]) -> str:
    file = directory / "workload.yaml"
    file.write_text(yaml.safe_dump({"pods": list(groups)}))
    return str(file)


def report(capsys: pytest.CaptureFixture[str], *flags: str) -> Any:
    status = run(["simulate", *flags, "--output", "json"])
    printed = capsys.readouterr()
    assert (status, printed.err) == (OK, "")
    return json.loads(printed.out)


def complaint(capsys: pytest.CaptureFixture[str], *flags: str, status: int = FAILED) -> str:
    assert run(["simulate", *flags]) == status
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said.removeprefix("gpu-control-plane: ").strip()


def test_strategies_are_compared_on_one_workload(
    trace: list[str], capsys: pytest.CaptureFixture[str]
):
    found = report(capsys, *trace, "--strategy", "BinPack", "--strategy", "Spread")
    names = [strategy["strategy"] for strategy in found["strategies"]]
    assert names == ["BinPack", "Spread"]
    assert (found["nodes"], found["devices"], found["axis"]) == (2, 8, "Arrived")
    for item in found["strategies"]:
        curve = item["curve"]
        assert item["pods"] == found["pods"] >= 3
        assert curve[-1]["allocated"] == pytest.approx(item["allocated"], abs=1e-4)
        assert [point["x"] for point in curve] == sorted(point["x"] for point in curve)


def test_the_same_seed_gives_the_same_report(trace: list[str], capsys: pytest.CaptureFixture[str]):
    assert report(capsys, *trace) == report(capsys, *trace)


def test_demand_beyond_the_cluster_is_said(trace: list[str], capsys: pytest.CaptureFixture[str]):
    found = report(capsys, *trace, "--inflate", "3")
    assert any("the workload is larger than the cluster" in note for note in found["notes"])


def test_the_table_has_a_row_for_each_strategy(
    trace: list[str], capsys: pytest.CaptureFixture[str]
):
    assert run(["simulate", *trace, "--strategy", "BinPack", "--strategy", "Spread"]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{trace[1]}: 8 devices on 2 nodes"
    assert [line.split()[0] for line in lines if line.startswith(("BinPack", "Spread"))] == [
        "BinPack",
        "Spread",
    ] * 3


def test_pictures_and_pages_are_written_to_files(trace: list[str], tmp_path: Path):
    for form in ("svg", "html"):
        file = tmp_path / f"run.{form}"
        assert run(["simulate", *trace, "--output", form, "--file", str(file)]) == OK
    ET.fromstring((tmp_path / "run.svg").read_text())  # our own text
    page = (tmp_path / "run.html").read_text()
    assert page.count("<svg ") == 1
    assert "<table>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_workload_in_time_waits_and_ends_on_a_cluster_from_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cluster = a_list_file(
        tmp_path / "cluster.json", *two_nodes(), a_bound_pod_object("other", "n1", [0, 1, 2])
    )
    train = {"name": "train", "namespace": "ml", "pool": "whole", "units": 4, "cpu": "8"}
    workload = a_workload(
        tmp_path,
        {**train, "count": 3, "every": "30m", "duration": "1h"},
        {"name": "single", "pool": "whole", "units": 1, "arrival": "10m", "duration": "2h"},
    )
    found = report(capsys, "--cluster", str(cluster), "--workload", workload)
    (one,) = found["strategies"]
    assert found["axis"] == "Time"
    assert one["notPlaced"] == 0
    # Only n2 has four free devices: the second waits from 0:30 to 1:00, the third from 1:00 to 2:00.
    assert one["longestWaitS"] == 3600
    assert one["hoursByNamespace"]["ml"]["busy"] == 12
    assert one["hoursByPool"]["whole"]["busy"] == pytest.approx(12 + 2 + 3 * 3)


def test_pods_that_fit_no_node_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster = a_list_file(tmp_path / "cluster.json", *two_nodes())
    workload = a_workload(tmp_path, {"name": "huge", "pool": "whole", "units": 5})
    found = report(capsys, "--cluster", str(cluster), "--workload", workload)
    assert (
        "pods that ask pool whole for more than its largest node has, 4 units, and are never placed: 1"
        in found["notes"]
    )
    assert found["strategies"][0]["notPlaced"] == 1


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        pytest.param("pods.csv", PODS.replace("500", "5x0"), "row 2, column gpu_milli", id="milli"),
        pytest.param("pods.csv", None, "cannot be read: No such file", id="no file"),
    ],
)
def test_a_broken_trace_is_refused_with_file_row_and_column(
    trace: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    file: str,
    content: str | None,
    said: str,
):
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    text = complaint(capsys, *trace)
    assert str(tmp_path / file) in text
    assert said in text


@pytest.mark.parametrize(
    ("group", "said"),
    [
        pytest.param({"unit": 1}, "did you mean units?", id="field"),
        pytest.param({"units": 1}, "pods[0] (a): give pool and units, or neither", id="no pool"),
        pytest.param(
            {"pool": "whale", "units": 1},
            "pod default/a asks for units of pool whale, which",
            id="pool",
        ),
        pytest.param({"cpu": "many"}, 'pods[0] (a).cpu: "many" is not a quantity', id="cpu"),
        pytest.param({"cpu": "1e400"}, "(a).cpu: 1e400 is not between 0 and 1P", id="much cpu"),
        pytest.param({"memory": -1}, "(a).memory: -1 is not between 0 and 1P", id="negative"),
        pytest.param({"arrival": "soon"}, 'pods[0] (a).arrival: "soon" is not a dur', id="time"),
        pytest.param({"count": 0}, "Expected `int` >= 1 - at `$.pods[0].count`", id="count"),
    ],
)
def test_a_workload_that_cannot_be_used_is_refused_with_the_field(
    trace: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    group: dict[str, Any],
    said: str,
):
    workload = a_workload(tmp_path, {"name": "a", **group})
    assert said in complaint(capsys, *trace[:2], "--workload", workload)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--strategy", "FDG"], "no such strategy FDG; there are PoolSpec, "),
        (["--strategy", "BinPick"], "no such strategy BinPick; did you mean BinPack?"),
    ],
)
def test_an_unknown_strategy_is_refused_with_the_nearest_name(
    trace: list[str], capsys: pytest.CaptureFixture[str], flags: list[str], said: str
):
    assert complaint(capsys, *trace, *flags).startswith(said)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "give either --pod FILE or --workload FILE"),
        (["--pod", "p", "--workload", "w"], "give either --pod FILE or --workload FILE"),
        (["--pod", "p", "--pool", "n"], "--pool goes with --workload, not --pod"),
        (["--pod", "p", "--output", "svg"], "--output svg goes with --workload, not --pod"),
        (
            ["--workload", "w", "--pool", "p"],
            "--pool goes with the openb trace",
        ),
        (
            ["--workload", "w.csv", "--trace-times", "--inflate", "2"],
            "--trace-times and --inflate contradict each other",
        ),
        (["--workload", "w", "--inflate", "-1"], "argument --inflate: '-1': a share"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    capsys: pytest.CaptureFixture[str], flags: list[str], said: str
):
    assert complaint(capsys, *flags, status=MISUSED).startswith(said)
