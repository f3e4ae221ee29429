"""State `state-node-status-exporter`: metrics of the state of the node's GPU software, from the validator's files.

It waits for nothing: it reports that a component is missing.
"""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import object_of

NAME: Final = "state-node-status-exporter"
_MAIN: Final = "nvidia-node-status-exporter"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block, objects = settings.spec.node_status_exporter, load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    set_block(daemon_set, _MAIN, block, field="nodeStatusExporter", settings=settings)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    why_off=switched_by("node_status_exporter"),
    deploy_label="node-status-exporter",
    build=_build,
)
