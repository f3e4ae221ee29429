"""State `state-sandbox-validation`: the validator of nodes whose devices virtual machines use.

Its steps pass over a node of another workload by themselves. The step of confidential computing waits for the
container of `state-cc-manager`, so it goes with that state; that and the VFIO manager come later in the operator's
order, so neither is a need.
"""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.nvidia.sandbox_operands import WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import (
    cc_manager,
    vgpu_device_manager,
    vgpu_manager,
)
from operands.nvidia.switched_off import of_virtual_machines
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, set_env, without_container

if TYPE_CHECKING:
    from api.kinds.nvidia.container_operands import ValidatorSpec, ValidatorStep

NAME: Final = "state-sandbox-validation"
_MAIN: Final = "nvidia-sandbox-validator"
_CC_STEP: Final = "cc-manager-validation"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    validator, objects = settings.spec.validator, load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    if not cc_manager.STATE.is_enabled(settings):
        without_container(daemon_set, _CC_STEP)
    workload = settings.spec.sandbox_workloads.default_workload.value
    for name, step in _steps(validator).items():
        variables = {item.name: item.value for item in step.env or ()}
        container = container_of(daemon_set, name)
        set_env(container, {"DEFAULT_GPU_WORKLOAD_CONFIG": workload, **variables})
    set_block(daemon_set, _MAIN, validator, field="validator", settings=settings)
    return finish_policy(NAME, objects, settings)


def _steps(validator: "ValidatorSpec") -> "dict[str, ValidatorStep]":
    return {
        "vfio-pci-validation": validator.vfio_pci,
        "vgpu-manager-validation": validator.vgpu_manager,
        "vgpu-devices-validation": validator.vgpu_devices,
    }


STATE: Final = OperandState(
    name=NAME,
    needs=(vgpu_manager.NAME, vgpu_device_manager.NAME),
    why_off=of_virtual_machines(),
    deploy_label="sandbox-validator",
    workloads=(WorkloadType.VM_PASSTHROUGH, WorkloadType.VM_VGPU),
    build=_build,
)
