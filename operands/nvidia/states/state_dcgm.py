"""State `state-dcgm`: the DCGM host engine, one on each node, behind a Service that leads to that of the same node."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices.device_access import set_device_access
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import state_operator_validation
from operands.operand_state import OperandState
from operands.transforms import the

NAME: Final = "state-dcgm"
HOST_ENGINE: Final = "nvidia-dcgm:5555"
"""The Service, as clients of the engine name it."""
_MAIN: Final = "nvidia-dcgm-ctr"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    objects = load_assets(NAME)
    daemon_set = the(objects, "DaemonSet")
    set_device_access(daemon_set, _MAIN, settings)
    set_block(daemon_set, _MAIN, settings.spec.dcgm, field="dcgm", settings=settings)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    needs=(state_operator_validation.NAME,),
    is_enabled=lambda settings: settings.spec.dcgm.is_enabled,
    build=_build,
)
