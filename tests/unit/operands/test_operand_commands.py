"""The manifests' containers of our image have command lines that our command takes."""

from dataclasses import replace
from typing import Any

import pytest

from agent.settings import AgentRole
from cli.agent import add_arguments, settings_of
from cli.command_parser import CommandParser
from cli.node_validation import validate_parser
from operands.nvidia.own_pods import OwnOperands
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ALL_KINDS_SERVED
from operands.transforms import pod_spec_of
from tests.unit.operands.operand_cases import ALL_ON, CASES, OWN


def our_containers(name: str) -> list[dict[str, Any]]:
    found = build_operands(CASES[name], ALL_KINDS_SERVED)
    specs = [pod_spec_of(item) for item in found if item["kind"] == "DaemonSet"]
    containers = [
        container
        for spec in specs
        for container in (*spec["containers"], *spec.get("initContainers", ()))
    ]
    return [container for container in containers if container["image"] == OWN]


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_command_line_is_taken(name: str):
    agent = CommandParser("agent", "")
    add_arguments(agent)
    for container in our_containers(name):
        assert container["command"] == ["gpu-control-plane"]
        command, *arguments = container["args"]
        if command == "agent":
            settings = settings_of(agent.parse_flags(arguments))
            assert settings.roles == {AgentRole.VALIDATOR}
        else:
            assert command == "validate"
            step = validate_parser().parse_flags(arguments).step
            assert container["name"] == f"{step}-validation"
        message = container["terminationMessagePath"]
        assert message == validate_parser().get_default("termination_log")


def test_arguments_are_those_of_the_settings():
    way = ("--hand-out", "Environment", "--cdi-kind", "nvidia.com/gpu")
    own = OwnOperands(
        runs_validator=True,
        allocation_arguments=way,
        library_arguments=("--driver-libraries=/opt/vendor/lib",),
        validates_gdrcopy=True,
    )
    (daemon_set,) = (
        operand
        for operand in build_operands(replace(ALL_ON, own=own), ALL_KINDS_SERVED)
        if operand["kind"] == "DaemonSet" and operand["metadata"]["name"] == "gpu-node-validator"
    )
    spec = pod_spec_of(daemon_set)
    agent = CommandParser("agent", "")
    add_arguments(agent)
    main = settings_of(agent.parse_flags(spec["containers"][0]["args"][1:]))
    assert main.steps == ("driver", "gdrcopy", "toolkit", "cuda")
    steps = [validate_parser().parse_flags(item["args"][1:]) for item in spec["initContainers"]]
    assert (
        {step.driver_libraries for step in steps} == {main.driver_libraries} == {"/opt/vendor/lib"}
    )
    (init,) = (step for step in steps if step.step == "toolkit")
    assert (main.hand_out.value, main.cdi_kind) == ("Environment", "nvidia.com/gpu")
    assert (init.hand_out, init.cdi_kind) == ("Environment", "nvidia.com/gpu")
