"""State `state-vfio-manager`: binds the devices of a node to vfio-pci, once the driver has let them go."""

from typing import Any, Final

from api.kinds.nvidia.sandbox_operands import WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.drivers.manager import set_driver_manager
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.switched_off import of_virtual_machines
from operands.operand_state import OperandState
from operands.transforms import object_of

NAME: Final = "state-vfio-manager"
_MAIN: Final = "nvidia-vfio-manager"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block, objects = settings.spec.vfio_manager, load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    set_block(daemon_set, _MAIN, block, field="vfioManager", settings=settings)
    set_driver_manager(
        daemon_set, block.driver_manager, field="vfioManager.driverManager", settings=settings
    )
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    why_off=of_virtual_machines("vfio_manager"),
    deploy_label="vfio-manager",
    workloads=(WorkloadType.VM_PASSTHROUGH,),
    build=_build,
)
