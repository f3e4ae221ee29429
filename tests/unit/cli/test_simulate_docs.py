"""docs/placement.md shows what the command really says and takes."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from api.kinds.gpupool import GPUPool, SlicePlacement
from cli.main import run
from cli.simulate import _parser
from cli.simulation.workload.pool_run import POOL_STRATEGIES
from cli.simulation.workload.workload_file import read_workload
from inventory.pools.spec_rules import spec_faults
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_list_file,
    a_node_object,
    a_pod_object,
    a_pool_object,
)

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "placement.md").read_text()
COMMANDS = [
    line.removeprefix("$ gpu-control-plane ")
    for line in PAGE.replace("\\\n", "").splitlines()
    if line.startswith("$ gpu-control-plane ")
]


def the_cluster_of_the_page() -> list[Object]:
    found = [
        a_pool_object("training", scheduling={"deviceTopology": "Required"}),
        a_pool_object("small"),
        a_node_object("gpu-3"),
        *(
            a_device_object("gpu-3", at, pool="small", product="NVIDIA-L40S", numaNode=0)
            for at in range(4)
        ),
    ]
    for node in ("gpu-1", "gpu-2"):
        found.append(a_node_object(node))
        found += [a_device_object(node, at, pool="training", numaNode=at // 4) for at in range(8)]
    return [
        *found,
        a_bound_pod_object("eval", "gpu-1", [0], pool="training"),
        a_bound_pod_object("sweep-1", "gpu-1", [4, 5], pool="training"),
        a_bound_pod_object("big", "gpu-2", [0, 1, 2, 3], pool="training"),
        a_bound_pod_object("big-2", "gpu-2", [4, 5, 6], pool="training", priority=5),
    ]


def test_the_answer_on_the_page_is_the_command_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cluster = a_list_file(tmp_path / "cluster.json", *the_cluster_of_the_page())
    pod = a_list_file(
        tmp_path / "train.json", a_pod_object("train", 4, pool="training", priority=5)
    )
    run(["simulate", "--pod", str(pod), "--cluster", str(cluster)])
    assert (
        f"```console\n$ gpu-control-plane simulate --pod train.yaml\n{capsys.readouterr().out}```"
        in PAGE
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_on_the_page_can_be_given(command: str):
    name, *flags = command.split()
    assert name == "simulate"
    parsed = _parser().parse_flags(flags)
    assert set(parsed.strategy or ()) <= set(POOL_STRATEGIES)


def test_every_flag_of_the_command_is_on_the_page():
    flags = {flag for action in _parser()._actions for flag in action.option_strings}
    missing = {flag for flag in flags if flag not in PAGE} - {"-h", "--help"}
    assert missing == {"--namespace"}


def test_the_workload_on_the_page_can_be_read(tmp_path: Path):
    (text,) = re.findall(r"```yaml\n(# night\.yaml\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "night.yaml").write_text(text)
    pods = read_workload(tmp_path / "night.yaml").pods
    assert len(pods) == 212
    assert pods[0].name == "ml/train-0"


def test_the_pool_on_the_page_is_valid():
    (text,) = re.findall(r"```yaml\n(apiVersion: gpu.*?)```", PAGE, re.DOTALL)
    pool = msgspec.convert(yaml.safe_load(text), GPUPool)
    assert pool.slice_placement is SlicePlacement.SAME_DEVICE
    assert list(spec_faults(pool.spec)) == []
