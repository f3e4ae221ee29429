"""State `state-node-status-exporter`: metrics of the validator's files."""

from operands.nvidia.states.node_status_exporter import STATE
from operands.operand_state import ServedKinds
from operands.transforms import object_of
from tests.unit.operands.nvidia import state_changes

ON = {"nodeStatusExporter": {"enabled": True}}


def test_objects_by_default_are_the_approved_ones():
    state_changes.check_golden(STATE, "default", ON)


def test_objects_of_a_full_block_are_the_approved_ones():
    state_changes.check_golden(
        STATE, "full", {**state_changes.FULL, "nodeStatusExporter": state_changes.BLOCK}
    )


def test_the_monitor_reads_the_port_of_the_service():
    objects = state_changes.objects_of(STATE, ON)
    service, monitor = object_of(objects, "Service"), object_of(objects, "ServiceMonitor")
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()


def test_a_cluster_without_the_operator_of_prometheus_gets_no_monitor():
    objects = STATE.objects(state_changes.settings_of(ON), ServedKinds())
    assert "ServiceMonitor" not in {kind for kind, _ in state_changes.kinds_of(objects)}
