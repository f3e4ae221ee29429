"""States of a ClusterPolicy, in the order of the GPU Operator, which is one that their needs allow.

States do not wait for each other when they are applied. On a node the order is kept by init containers, which wait
for the validator's files.
"""

from typing import TYPE_CHECKING, Final

from operands.nvidia.states import (
    gpu_feature_discovery,
    pre_requisites,
    state_cc_manager,
    state_container_toolkit,
    state_dcgm,
    state_dcgm_exporter,
    state_device_plugin,
    state_driver,
    state_kata_device_plugin,
    state_kata_manager,
    state_mig_manager,
    state_mps_control_daemon,
    state_node_status_exporter,
    state_operator_metrics,
    state_operator_validation,
    state_sandbox_device_plugin,
    state_sandbox_validation,
    state_vfio_manager,
    state_vgpu_device_manager,
    state_vgpu_manager,
)
from operands.operand_state import OperandState, in_order

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

POLICY_STATES: "Final[tuple[OperandState[PolicyOperands], ...]]" = in_order(
    (
        pre_requisites.STATE,
        state_operator_metrics.STATE,
        state_driver.STATE,
        state_container_toolkit.STATE,
        state_operator_validation.STATE,
        state_device_plugin.STATE,
        state_mps_control_daemon.STATE,
        state_dcgm.STATE,
        state_dcgm_exporter.STATE,
        gpu_feature_discovery.STATE,
        state_mig_manager.STATE,
        state_node_status_exporter.STATE,
        state_vgpu_manager.STATE,
        state_vgpu_device_manager.STATE,
        state_sandbox_validation.STATE,
        state_vfio_manager.STATE,
        state_sandbox_device_plugin.STATE,
        state_kata_device_plugin.STATE,
        state_kata_manager.STATE,
        state_cc_manager.STATE,
    )
)
STATE_NAMES: Final = tuple(state.name for state in POLICY_STATES)
