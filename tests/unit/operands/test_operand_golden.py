"""Objects of the operands are those that were read and approved: `UPDATE_GOLDEN=1` rewrites the files."""

import os
from pathlib import Path

import pytest
import yaml

from manifests.yaml import render
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ALL_KINDS_SERVED, OPTIONAL_KINDS, ServedKinds
from operands.transforms import pod_spec_of
from tests.unit.operands.operand_cases import (
    ALL_ON,
    CASES,
    DEFAULT,
    DIGEST,
    NVML,
    ON,
    OWN,
)

GOLDEN = Path(__file__).parent / "golden"
IMAGES = {OWN, DIGEST, *(operand["image"] for operand in ON.values())}


@pytest.mark.parametrize("name", CASES)
def test_objects_are_the_approved_ones(name: str):
    """A case besides the full one is approved by its differences from that: the objects that differ."""
    full = [] if name == "all-on" else build_operands(ALL_ON, ALL_KINDS_SERVED)
    text = render(
        operand for operand in build_operands(CASES[name], ALL_KINDS_SERVED) if operand not in full
    )
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "run `make golden` and read the difference"


@pytest.mark.parametrize(
    "settings", [pytest.param(settings, id=name) for name, settings in CASES.items()]
)
def test_containers_run_the_images_of_the_settings_under_a_security_context_of_ours(
    settings: PolicyOperands,
):
    for operand in build_operands(settings, ALL_KINDS_SERVED):
        if operand["kind"] != "DaemonSet":
            continue
        spec = pod_spec_of(operand)
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert container["image"] in IMAGES
            context = container["securityContext"]
            assert context.get("privileged") or context["capabilities"] == {"drop": ["ALL"]}
            if container.get("command", [])[:1] == ["gpu-control-plane"]:
                assert context["readOnlyRootFilesystem"]


def test_optional_kinds_are_left_out_where_the_cluster_does_not_serve_them():
    with_them = {operand["kind"] for operand in build_operands(ALL_ON, ALL_KINDS_SERVED)}
    without = {operand["kind"] for operand in build_operands(ALL_ON, ServedKinds())}
    assert with_them - without == OPTIONAL_KINDS


def test_validation_of_file_systems_and_of_gdrcopy_is_absent_by_default():
    (daemon_set,) = (
        operand
        for operand in build_operands(DEFAULT, ServedKinds())
        if operand["metadata"]["name"] == "gpu-node-validator" and operand["kind"] == "DaemonSet"
    )
    names = [container["name"] for container in pod_spec_of(daemon_set)["initContainers"]]
    assert names == ["driver-validation", "toolkit-validation", "cuda-validation"]


def test_nvml_needs_no_daemon_set_of_dcgm():
    names = {
        operand["metadata"]["name"]
        for operand in build_operands(NVML, ServedKinds())
        if operand["kind"] == "DaemonSet"
    }
    assert names == {"gpu-node-validator", "gpu-feature-discovery"}


def test_an_external_operator_leaves_nothing_to_us():
    assert build_operands(CASES["external"], ALL_KINDS_SERVED) == []


def test_golden_files_are_those_of_the_cases():
    assert {file.stem for file in GOLDEN.iterdir()} == CASES.keys()
    assert all(
        list(yaml.safe_load_all(file.read_text(encoding="utf-8"))) is not None
        for file in GOLDEN.iterdir()
    )
