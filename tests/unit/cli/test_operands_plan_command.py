"""`operands plan`: files in, a plan out, and one line for each mistake; docs/node-software.md shows what it really prints."""

import json
import re
from pathlib import Path

import pytest
import yaml

from cli.exit_status import FAILED, MISUSED, OK, UNREADABLE
from cli.main import run
from cli.operands.plan_command import _parser
from tests.support.nvidia.planned_nodes import (
    GOOD_POLICY,
    POLICY,
    RHEL,
    UBUNTU,
    a_driver,
    a_node,
    write_list,
)

PAGE = (Path(__file__).parents[3] / "docs" / "node-software.md").read_text(encoding="utf-8")
COMMAND = ["operands", "plan", "-f", "software.yaml", "--nodes", "nodes.yaml"]
IN_POOL = {"pool.gpu.deckhouse.io/train": ""}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", {})
    write_list(
        Path("nodes.yaml"),
        a_node("gpu-1"),
        a_node("gpu-2"),
        a_node("gpu-3", labels=IN_POOL),
        a_node("gpu-4", RHEL),
        a_node("web-1", has_gpu=False),
    )
    Path("software.yaml").write_text(GOOD_POLICY)


def test_the_plan_on_the_page_is_the_command_s(capsys: pytest.CaptureFixture[str]):
    Path("software.yaml").write_text(POLICY)
    assert f"```yaml\n{POLICY}```" in PAGE
    assert run(COMMAND) == FAILED
    said = capsys.readouterr().out
    printed = f"```console\n$ gpu-control-plane {' '.join(COMMAND)}\n{said}```"
    assert printed in PAGE, printed


def test_every_flag_of_the_command_is_on_the_page():
    flags = {flag for action in _parser()._actions for flag in action.option_strings}
    missing = {flag for flag in flags if f"`{flag}" not in PAGE and f" {flag} " not in PAGE}
    assert missing - {"-h", "--help"} == {"--filename", "--output"}


def test_equal_nodes_are_shown_once_and_wide_each_by_itself(capsys: pytest.CaptureFixture[str]):
    assert run(COMMAND) == OK
    assert "\n2 nodes: gpu-1, gpu-2\n" in capsys.readouterr().out
    assert run([*COMMAND, "-o", "wide"]) == OK
    assert re.findall(r"^1 node: (.*)$", capsys.readouterr().out, re.MULTILINE) == [
        "gpu-1",
        "gpu-2",
        "gpu-3",
        "gpu-4",
    ]


def test_200_equal_nodes_fit_on_a_screen(capsys: pytest.CaptureFixture[str]):
    write_list(Path("nodes.yaml"), *(a_node(f"gpu-{number:03}") for number in range(200)))
    assert run(COMMAND) == OK
    assert len(capsys.readouterr().out.splitlines()) < 40


def test_programs_get_the_same_as_json_and_as_yaml(capsys: pytest.CaptureFixture[str]):
    assert run([*COMMAND, "-o", "json"]) == OK
    plan = json.loads(capsys.readouterr().out)
    assert run([*COMMAND, "-o", "yaml"]) == OK
    assert yaml.safe_load(capsys.readouterr().out) == plan
    first = plan["nodes"][0]
    assert (first["name"], first["workload"], first["system"]) == (
        "gpu-1",
        "container",
        "ubuntu24.04",
    )
    driver = first["states"][0]
    assert driver["images"]["nvidia-driver-ctr"].endswith("/driver:580.95-ubuntu24.04")
    assert driver["daemonSet"] == "nvidia-driver-daemonset-ubuntu24.04"
    assert plan["nodesWithoutGPU"] == ["web-1"]


def test_images_come_from_a_flag_before_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    Path("software.yaml").write_text(re.sub("  toolkit: .*", "  toolkit: {}", GOOD_POLICY))
    assert run(COMMAND) == FAILED
    assert "environment variable CONTAINER_TOOLKIT_IMAGE" in capsys.readouterr().out
    monkeypatch.setattr("os.environ", {"CONTAINER_TOOLKIT_IMAGE": "of/environment:1"})
    assert run(COMMAND) == OK
    assert " of/environment:1\n" in capsys.readouterr().out
    assert run([*COMMAND, "--image", "CONTAINER_TOOLKIT_IMAGE=of/flag:1"]) == OK
    assert " of/flag:1\n" in capsys.readouterr().out


def test_fields_that_are_null_count_as_left_out(capsys: pytest.CaptureFixture[str]):
    text = GOOD_POLICY.replace("operator: {}", "operator: {defaultRuntime: null}\n  mig: null")
    Path("software.yaml").write_text(text)
    assert run(COMMAND) == OK
    assert capsys.readouterr().err == ""


def test_a_list_of_kubectl_and_its_status_are_read(capsys: pytest.CaptureFixture[str]):
    policy = {**yaml.safe_load(GOOD_POLICY), "status": {"state": "ready", "namespace": "gpu"}}
    driver = yaml.safe_load(a_driver("a").removeprefix("---\n"))
    write_list(Path("software.yaml"), policy, driver, {"kind": "Pod", "metadata": {"name": "p"}})
    assert run(COMMAND) == OK
    assert "Note: NVIDIADriver a does nothing" in capsys.readouterr().out


def test_drivers_in_conflict_are_an_answer_of_no(capsys: pytest.CaptureFixture[str]):
    text = GOOD_POLICY.replace("  driver:\n", "  driver:\n    useNvidiaDriverCRD: true\n")
    Path("software.yaml").write_text(text + a_driver("a") + a_driver("b"))
    assert run(COMMAND) == FAILED
    assert "NVIDIADrivers a, b" in capsys.readouterr().out


def test_a_config_map_that_is_named_can_be_given(capsys: pytest.CaptureFixture[str]):
    config = "    repoConfig: {configMapName: repositories}\n"
    text = GOOD_POLICY.replace("  driver:\n", f"  driver:\n{config}")
    Path("software.yaml").write_text(text)
    assert run(COMMAND) == FAILED
    assert "there is no ConfigMap gpu-control-plane/repositories" in capsys.readouterr().out
    given = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "repositories"},
        "data": {"a.list": ""},
    }
    Path("maps.yaml").write_text(yaml.safe_dump(given))
    assert run([*COMMAND, "-f", "maps.yaml"]) == OK


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        pytest.param(
            "image: driver",
            "imagee: driver",
            'unknown field "spec.driver.imagee", did you mean image?',
            id="unknown field",
        ),
        pytest.param(
            "operator: {}",
            "operator: {metrics: {serviceMonitor: {path: /}}}",
            'unknown field "spec.operator.metrics.serviceMonitor.path"',
            id="deep",
        ),
        pytest.param(
            "toolkit: {image",
            "toolkit: {env: [{name: A, values: b}], image",
            'unknown field "spec.toolkit.env[0].values", did you mean value?',
            id="in a list",
        ),
        pytest.param(
            "  dcgm: {enabled: false}\n",
            "",
            "spec.dcgm: Required value: write `dcgm: {}`",
            id="required",
        ),
        pytest.param(
            "image: driver",
            "use_ocp_driver_toolkit: true",
            'unknown field "spec.driver.use_ocp_driver_toolkit", it is in spec.operator',
            id="in another object",
        ),
        pytest.param(
            "  dcgm: {enabled: false}\n",
            "  dcmg: {enabled: false}\n",
            'spec.dcgm: Required value: write `dcgm: {}`; unknown field "spec.dcmg", did you mean dcgm?',
            id="unknown and missing at once",
        ),
        pytest.param(
            'version: "580.95"',
            "version: 580.95",
            "cannot be decoded: Expected `str`, got `float` - at `$.spec.driver.version`",
            id="type",
        ),
        pytest.param(
            "nvidia.com/v1",
            "nvidia.com/v2",
            "apiVersion is nvidia.com/v2: set it to nvidia.com/v1",
            id="version",
        ),
        pytest.param("name: gpus", "labels: {}", "without a name: set metadata.name", id="no name"),
    ],
)
def test_what_the_api_server_would_refuse_is_named(
    before: str, after: str, complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert before in GOOD_POLICY
    Path("software.yaml").write_text(GOOD_POLICY.replace(before, after, 1))
    assert run(COMMAND) == UNREADABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("gpu-control-plane: software.yaml: ClusterPolicy ")
    assert complaint in line


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("software.yaml", "{}", "software.yaml is no file of Kubernetes objects"),
        ("software.yaml", "[", "software.yaml is neither YAML nor JSON"),
        ("software.yaml", "kind: Pod", "software.yaml: there is no ClusterPolicy; `kubectl get"),
        ("nodes.yaml", "kind: Pod", "nodes.yaml: there is no Node; `kubectl get nodes -o yaml`"),
        ("nodes.yaml", "kind: Node\nmetadata: [1]", "nodes.yaml: Node  cannot be decoded"),
        (
            "nodes.yaml",
            "kind: Node\nmetadata: {name: n, labels: {a: 1}}",
            "Node n cannot be decoded",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    file: str, text: str, complaint: str, capsys: pytest.CaptureFixture[str]
):
    Path(file).write_text(text)
    assert run(COMMAND) == UNREADABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_file_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]):
    assert run([*COMMAND, "-f", "absent.yaml"]) == UNREADABLE
    assert "absent.yaml cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["operands"], "say what to do: `gpu-control-plane operands plan`"),
        (["operands", "plam"], "no such action of operands plam; did you mean plan?"),
        (["operands", "plan", "-f", "a"], "the following arguments are required: --nodes"),
        ([*COMMAND, "--imag", "x"], "no such flag --imag; did you mean --image?"),
        ([*COMMAND, "--image", "driver=x"], "'driver=x': a variable and an image"),
        ([*COMMAND, "-f", "-", "-f", "-"], "only one of the files can be standard input"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert run(arguments) == MISUSED
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_node_that_runs_nothing_says_why(capsys: pytest.CaptureFixture[str]):
    off = {"nvidia.com/gpu.deploy.operands": "false"}
    write_list(Path("nodes.yaml"), a_node("gpu-1", UBUNTU, labels=off))
    assert run(COMMAND) == OK
    said = capsys.readouterr().out
    assert "workload none" in said
    assert "note: label nvidia.com/gpu.deploy.operands=false keeps all operands away" in said


def test_without_feature_discovery_the_inventory_of_a_node_names_its_system(
    capsys: pytest.CaptureFixture[str],
):
    node = a_node("gpu-1", ("", "", "6.8.0", "containerd://2.1.4"))
    system = {"os": "ubuntu", "osVersion": "24.04"}
    inventory = {"kind": "GPUNodeInventory", "metadata": {"name": "gpu-1"}}
    write_list(Path("nodes.yaml"), {**inventory, "status": {"system": system}}, node)
    assert run(COMMAND) == OK
    assert "workload container, system ubuntu24.04" in capsys.readouterr().out
    write_list(Path("nodes.yaml"), node)
    assert run(COMMAND) == FAILED
    assert "have the node agent run there" in capsys.readouterr().out
