"""State `state-node-status-exporter`: metrics of the validator's files."""

from operands.nvidia.states.node_status_exporter import STATE
from operands.operand_state import ServedKinds
from operands.transforms import the
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    FULL,
    check_golden,
    kinds_of,
    objects_of,
    settings_of,
)

ON = {"nodeStatusExporter": {"enabled": True}}


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", ON)


def test_objects_of_a_full_block_are_the_approved_ones():
    check_golden(STATE, "full", {**FULL, "nodeStatusExporter": BLOCK})


def test_the_monitor_reads_the_port_of_the_service():
    objects = objects_of(STATE, ON)
    service, monitor = the(objects, "Service"), the(objects, "ServiceMonitor")
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()


def test_a_cluster_without_the_operator_of_prometheus_gets_no_monitor():
    objects = STATE.objects(settings_of(ON), ServedKinds())
    assert "ServiceMonitor" not in {kind for kind, _ in kinds_of(objects)}
