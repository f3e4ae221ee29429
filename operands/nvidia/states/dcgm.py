"""State `state-dcgm`: the DCGM host engine, one on each node, behind a Service that leads to that of the same node."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices.access import set_device_access
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import operator_validation
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of

NAME: Final = "state-dcgm"
HOST_ENGINE: Final = "nvidia-dcgm:5555"
"""The Service, as clients of the engine name it."""
_MAIN: Final = "nvidia-dcgm-ctr"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    objects = load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    if settings.own is not None:
        _set_up_own(daemon_set)
    set_device_access(daemon_set, _MAIN, settings)
    set_block(daemon_set, _MAIN, settings.spec.dcgm, field="dcgm", settings=settings)
    return finish_policy(NAME, objects, settings)


def _set_up_own(daemon_set: dict[str, Any]) -> None:
    """Have the engine listen on every address; a ClusterPolicy's is that of the image."""
    # The processes that use a device are named by their ids on the node.
    pod_spec_of(daemon_set)["hostPID"] = True
    container_of(daemon_set, _MAIN)["command"] = ["nv-hostengine", "-n", "-b", "ALL"]


STATE: Final = OperandState(
    name=NAME,
    needs=(operator_validation.NAME,),
    why_off=switched_by("dcgm"),
    deploy_label="dcgm",
    build=_build,
)
