"""The pool, the pod and the commands of docs/autoscaling.md can be used as they stand there."""

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from api.kinds.autoscaling import Autoscaling, Budget, NodeShape, ScalingBackend
from api.kinds.gpupool import GPUPool
from autoscaling.scaling_model import WaitReason
from cli.exit_status import OK
from cli.main import run
from telemetry.reasons import EventReason

TEXT = (Path(__file__).parents[3] / "docs" / "autoscaling.md").read_text(encoding="utf-8")
OBJECTS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [item for item in OBJECTS if item.get("kind") == kind]
    return dict(found)


def test_the_command_makes_the_node_pool_of_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("pool.yaml").write_text(yaml.safe_dump(of_kind("GPUPool")))
    (command,) = re.findall(
        r"^\$ gpu-control-plane (render nodepool .*) > nodepool", TEXT, re.MULTILINE
    )
    assert run(shlex.split(command)) == OK
    (node_pool,) = yaml.safe_load_all(capsys.readouterr().out)
    assert node_pool["metadata"]["name"] == "elastic"
    assert node_pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "gpu"


def test_the_pod_requests_what_a_shape_has():
    pool = msgspec.convert(of_kind("GPUPool"), GPUPool)
    limits = of_kind("Pod")["spec"]["containers"][0]["resources"]["limits"]
    assert list(limits) == [pool.resource_name]
    assert pool.scales


def test_every_backend_reason_and_event_is_explained():
    reasons = {item.value for item in WaitReason}
    events = {item.value for item in EventReason if item.value.startswith("GPUNode")} & set(
        re.findall(r"GPUNode(?:Re|La|Failed|WithoutDev)\w*", TEXT)
    )
    named = set(re.findall(r"`(\w[\w-]*)`", TEXT))
    assert {item.value for item in ScalingBackend} | reasons <= named
    assert events >= {"GPUNodeRequested", "GPUNodeFailed", "GPUNodeRequestBlocked"}


@pytest.mark.parametrize("kind", [Autoscaling, NodeShape, Budget], ids=lambda kind: kind.__name__)
def test_every_field_of_the_spec_is_explained(kind: type[msgspec.Struct]):
    first_cells = re.findall(r"^\| (`[^|]+) \|", TEXT, re.MULTILINE)
    explained = {
        name
        for cell in first_cells
        for text in re.findall(r"`([^`]+)`", cell)
        for name in re.findall(r"\w+", text)
    }
    fields = {field.encode_name for field in msgspec.structs.fields(kind)} - {"name", "budget"}
    assert fields <= explained
