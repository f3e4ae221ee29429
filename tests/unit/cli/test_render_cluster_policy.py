"""`render clusterpolicy` prints a ClusterPolicy that both schemas accept and of which every state has its image."""

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.exit_status import OK
from cli.main import run
from cli.render_options import TARGETS_OF_FLAGS
from operands.nvidia.policy_states import STATE_NAMES
from simulator.apiserver.schema.structural import StructuralSchema
from tests.support.nvidia.operator_kinds import OURS, published, schema_of
from tests.support.nvidia.planned_nodes import RHEL, a_node, write_list

PAGE = (Path(__file__).parents[3] / "docs" / "node-software.md").read_text(encoding="utf-8")
SCHEMAS = [
    StructuralSchema(schema_of(crd)) for crd in (OURS["ClusterPolicy"], published("ClusterPolicy"))
]
DIGEST = f"sha256:{'0' * 64}"
WITHOUT_POD_OR_IMAGE = {
    "pre-requisites",
    "state-operator-metrics",
    "state-kata-manager",
    "state-vgpu-manager",
}
CAPABLE = {"nvidia.com/mps.capable": "true", "nvidia.com/mig.capable": "true"}

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", {})
    write_list(
        Path("nodes.yaml"),
        a_node("container", labels=CAPABLE),
        a_node("rhel", RHEL),
        *(
            a_node(name, labels={"nvidia.com/gpu.workload.config": name})
            for name in ("vm-passthrough", "vm-vgpu")
        ),
    )


def rendered(capsys: pytest.CaptureFixture[str], *flags: str) -> Json:
    assert run(["render", "clusterpolicy", *flags]) == OK
    (policy,) = yaml.safe_load_all(capsys.readouterr().out)
    return dict(policy)


def images_that_run(policy: Json, capsys: pytest.CaptureFixture[str]) -> dict[str, set[str]]:
    """Return the images of each state that runs on a node, once schemas and plan have accepted the policy."""
    for schema in SCHEMAS:
        body = copy.deepcopy(policy)
        assert schema.prune(body) == []
        schema.default(body)
        assert schema.validate(body, None) == []
    Path("policy.yaml").write_text(yaml.safe_dump(policy))
    assert (
        run(["operands", "plan", "-f", "policy.yaml", "--nodes", "nodes.yaml", "-o", "json"]) == OK
    )
    found: dict[str, set[str]] = {}
    for node in json.loads(capsys.readouterr().out)["nodes"]:
        for state in node["states"]:
            if state["runs"]:
                found.setdefault(state["name"], set()).update(state["images"].values())
    return found


def test_without_flags_the_states_of_containers_run_with_images_of_one_release(
    capsys: pytest.CaptureFixture[str],
):
    found = images_that_run(rendered(capsys), capsys)
    assert found.keys() == {*STATE_NAMES[:12]} - WITHOUT_POD_OR_IMAGE - {
        "state-dcgm",
        "state-node-status-exporter",
    }
    assert found["state-driver"] == {
        "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04",
        "nvcr.io/nvidia/driver:595.91.07-rhel9",
    }
    assert found["state-operator-validation"] == {"nvcr.io/nvidia/gpu-operator:v26.7.0"}


def test_every_state_that_is_switched_on_has_its_image(capsys: pytest.CaptureFixture[str]):
    found: dict[str, set[str]] = {}
    for mode in ("kubevirt", "kata"):
        policy = rendered(capsys, "--registry", "registry.example.com:5000/copies")
        for block in policy["spec"].values():
            if "enabled" in block:
                block["enabled"] = True
        policy["spec"]["sandboxWorkloads"]["mode"] = mode
        found |= images_that_run(policy, capsys)
    assert {*STATE_NAMES} - found.keys() == WITHOUT_POD_OR_IMAGE
    assert len(found["state-driver"]) == 6  # two systems, with GPUDirect Storage and GDRCopy
    images = set[str]().union(*found.values())
    assert {image.partition("nvidia/")[0] for image in images} == {
        "registry.example.com:5000/copies/"
    }


@pytest.mark.parametrize(
    ("flags", "state", "images"),
    [
        (("--no-driver",), "state-driver", None),
        (("--no-toolkit",), "state-container-toolkit", None),
        (("--driver-version", DIGEST), "state-driver", {f"nvcr.io/nvidia/driver@{DIGEST}"}),
    ],
)
def test_flags_say_what_differs_on_the_nodes(
    flags: tuple[str, ...],
    state: str,
    images: set[str] | None,
    capsys: pytest.CaptureFixture[str],
):
    assert images_that_run(rendered(capsys, *flags), capsys).get(state) == images


def test_a_branch_of_the_driver_stays_text(capsys: pytest.CaptureFixture[str]):
    assert rendered(capsys, "--driver-version", "580")["spec"]["driver"]["version"] == "580"


def test_the_page_names_the_command_and_its_flags(capsys: pytest.CaptureFixture[str]):
    commands = re.findall(r"^\$ gpu-control-plane (render clusterpolicy.*) > ", PAGE, re.MULTILINE)
    assert commands
    for command in commands:
        assert run(shlex.split(command)) == OK
        assert capsys.readouterr().out
    flags = {
        f"--{name.replace('_', '-')}"
        for name, targets in TARGETS_OF_FLAGS.items()
        if targets == ("clusterpolicy",)
    }
    assert {flag for flag in flags if f"`{flag}" not in PAGE} == set()
