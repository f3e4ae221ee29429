"""What an action changes in a Node, and what it leaves alone."""

from typing import Any

import msgspec
import pytest

from api.driver_upgrade import AGENT_DEPLOY_LABEL, CORDON_MANAGER, UPGRADE_STATE_LABEL, UpgradeState
from api.foreign.core import Node
from api.names import NodeName
from operands.upgrade.actions import (
    Annotate,
    PauseOperand,
    ReleaseAgent,
    ResumeOperand,
    ReturnAgent,
    ReturnUnits,
    SetState,
    UpgradeAction,
    WithholdUnits,
)
from reconciler.driver_upgrade.node_actions import OvertakenError, change_of

N1 = NodeName("n1")


def a_node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Node:
    meta = {"name": "n1", "labels": labels or {}, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta}, Node)


STATE = SetState(N1, "a", UpgradeState.UPGRADE_DONE, {"x": "1", "y": None})
DCGM = "nvidia.com/gpu.deploy.dcgm"
WITHHELD = "gpu.deckhouse.io/units-withheld-by"
PAUSED = "paused-for-driver-upgrade"


@pytest.mark.parametrize(
    ("action", "node", "want"),
    [
        (WithholdUnits(N1), a_node(), {"annotations": {WITHHELD: "driver-upgrade"}}),
        (WithholdUnits(N1), a_node(annotations={WITHHELD: "driver-upgrade"}), {}),
        (
            ReturnUnits(N1),
            a_node(annotations={WITHHELD: "driver-upgrade"}),
            {"annotations": {WITHHELD: None}},
        ),
        (ReturnUnits(N1), a_node(annotations={WITHHELD: "me"}), {}),
        (Annotate(N1, {"x": "1", "y": None}), a_node(annotations={"x": "1"}), {}),
        (PauseOperand(N1, DCGM), a_node({DCGM: "true"}), {"labels": {DCGM: PAUSED}}),
        (PauseOperand(N1, DCGM), a_node({DCGM: "false"}), {}),
        (ResumeOperand(N1, DCGM), a_node({DCGM: PAUSED}), {"labels": {DCGM: "true"}}),
        (ResumeOperand(N1, DCGM), a_node({DCGM: "paused-for-mig-change"}), {}),
        (ReleaseAgent(N1), a_node(), {"labels": {AGENT_DEPLOY_LABEL: PAUSED}}),
        (
            ReturnAgent(N1),
            a_node({AGENT_DEPLOY_LABEL: PAUSED}),
            {"labels": {AGENT_DEPLOY_LABEL: None}},
        ),
        (ReturnAgent(N1), a_node(), {}),
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
    action: UpgradeAction, node: Node, want: dict[str, Any]
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
