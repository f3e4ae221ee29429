"""What an action changes in a Node, and what it leaves alone."""

from typing import Any

import msgspec
import pytest

from api.driver_upgrade import AGENT_DEPLOY_LABEL, CORDON_MANAGER, UPGRADE_STATE_LABEL, UpgradeState
from api.foreign.core import Node
from api.names import NodeName
from operands.upgrade import actions
from reconciler.driver_upgrade.node_actions import OvertakenError, change_of

N1 = NodeName("n1")


def a_node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    meta = {"name": "n1", "labels": labels or {}, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta}, Node)


STATE = actions.SetState(N1, "a", UpgradeState.UPGRADE_DONE, {"x": "1", "y": None})
DCGM = "nvidia.com/gpu.deploy.dcgm"
WITHHELD = "gpu.deckhouse.io/units-withheld-by"
PAUSED = "paused-for-driver-upgrade"


@pytest.mark.parametrize(
    ("action", "node", "want"),
    [
        (actions.WithholdUnits(N1), a_node(), {"annotations": {WITHHELD: "driver-upgrade"}}),
        (actions.WithholdUnits(N1), a_node(annotations={WITHHELD: "driver-upgrade"}), {}),
        (
            actions.ReturnUnits(N1),
            a_node(annotations={WITHHELD: "driver-upgrade"}),
            {"annotations": {WITHHELD: None}},
        ),
        (actions.ReturnUnits(N1), a_node(annotations={WITHHELD: "me"}), {}),
        (actions.Annotate(N1, {"x": "1", "y": None}), a_node(annotations={"x": "1"}), {}),
        (actions.PauseOperand(N1, DCGM), a_node({DCGM: "true"}), {"labels": {DCGM: PAUSED}}),
        (actions.PauseOperand(N1, DCGM), a_node({DCGM: "false"}), {}),
        (actions.ResumeOperand(N1, DCGM), a_node({DCGM: PAUSED}), {"labels": {DCGM: "true"}}),
        (actions.ResumeOperand(N1, DCGM), a_node({DCGM: "paused-for-mig-change"}), {}),
        (actions.ReleaseAgent(N1), a_node(), {"labels": {AGENT_DEPLOY_LABEL: PAUSED}}),
        (
            actions.ReturnAgent(N1),
            a_node({AGENT_DEPLOY_LABEL: PAUSED}),
            {"labels": {AGENT_DEPLOY_LABEL: None}},
        ),
        (actions.ReturnAgent(N1), a_node(), {}),
        (
            STATE,
            a_node({UPGRADE_STATE_LABEL: "a"}, {"y": "2"}),
            {
                "labels": {UPGRADE_STATE_LABEL: "upgrade-done"},
                "annotations": {"x": "1", "y": None},
            },
        ),
        (STATE, a_node({UPGRADE_STATE_LABEL: "upgrade-done"}), {}),
    ],
)
def test_an_action_changes_what_is_not_so_yet_and_nothing_of_others(
    action: actions.UpgradeAction, node: Node, want: dict[str, Any]
):
    assert change_of(action, node) == want


def test_a_state_that_another_client_changed_stays():
    with pytest.raises(OvertakenError, match="is 'b', and was 'a'"):
        change_of(STATE, a_node({UPGRADE_STATE_LABEL: "b"}))


def test_a_cordon_is_ours_by_its_field_manager():
    def node(manager: str, fields: dict[str, Any]) -> Node:
        entry = {"manager": manager, "fieldsV1": fields}
        return msgspec.convert({"metadata": {"managedFields": [entry]}}, Node)

    cordon: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    assert node(CORDON_MANAGER, cordon).metadata.owns_cordon(CORDON_MANAGER)
    assert not node("kubectl-cordon", cordon).metadata.owns_cordon(CORDON_MANAGER)
    other: dict[str, Any] = {"f:spec": {"f:taints": {}}}
    assert not node(CORDON_MANAGER, other).metadata.owns_cordon(CORDON_MANAGER)
