"""State `state-dcgm`: the host engine, and the Service that leads to that of the same node."""

from operands.nvidia.states.dcgm import HOST_ENGINE, STATE
from operands.transforms import object_of
from tests.unit.operands.nvidia.state_changes import BLOCK, FULL, check_golden, kinds_of, objects_of


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_a_full_block_are_the_approved_ones():
    check_golden(STATE, "full", {**FULL, "dcgm": {**BLOCK, "hostPort": 5555}})


def test_the_engine_has_no_rights():
    assert kinds_of(objects_of(STATE, {})) == [
        ("ServiceAccount", "nvidia-dcgm"),
        ("DaemonSet", "nvidia-dcgm"),
        ("Service", "nvidia-dcgm"),
    ]


def test_the_service_leads_to_the_engine_of_the_same_node():
    service = object_of(objects_of(STATE, {}), "Service")
    (port,) = service["spec"]["ports"]
    assert f"{service['metadata']['name']}:{port['port']}" == HOST_ENGINE
    assert service["spec"]["internalTrafficPolicy"] == "Local"
