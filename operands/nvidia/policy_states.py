"""States of a ClusterPolicy, in the order of the GPU Operator, which is one that their needs allow.

States do not wait for each other when they are applied. On a node the order is kept by init containers, which wait
for the validator's files.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from operands.nvidia.built_in import own_validator, telemetry
from operands.nvidia.own_pods import OwnOperands
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.states import (
    cc_manager,
    container_toolkit,
    dcgm,
    dcgm_exporter,
    device_plugin,
    driver,
    gpu_feature_discovery,
    kata_device_plugin,
    kata_manager,
    mig_manager,
    mps_control_daemon,
    node_status_exporter,
    operator_metrics,
    operator_validation,
    pre_requisites,
    sandbox_device_plugin,
    sandbox_validation,
    vfio_manager,
    vgpu_device_manager,
    vgpu_manager,
)
from operands.operand_state import ALL_KINDS_SERVED, OperandState, in_order

if TYPE_CHECKING:
    from operands.operand_state import ServedKinds

POLICY_STATES: "Final[tuple[OperandState[PolicyOperands], ...]]" = in_order(
    (
        pre_requisites.STATE,
        operator_metrics.STATE,
        driver.STATE,
        container_toolkit.STATE,
        operator_validation.STATE,
        device_plugin.STATE,
        mps_control_daemon.STATE,
        dcgm.STATE,
        dcgm_exporter.STATE,
        gpu_feature_discovery.STATE,
        mig_manager.STATE,
        node_status_exporter.STATE,
        vgpu_manager.STATE,
        vgpu_device_manager.STATE,
        sandbox_validation.STATE,
        vfio_manager.STATE,
        sandbox_device_plugin.STATE,
        kata_device_plugin.STATE,
        kata_manager.STATE,
        cc_manager.STATE,
    )
)
STATE_NAMES: Final = tuple(state.name for state in POLICY_STATES)
BUILT_IN_STATES: "Final[tuple[OperandState[PolicyOperands], ...]]" = (
    own_validator.STATE,
    gpu_feature_discovery.STATE,
    dcgm.STATE,
    dcgm_exporter.STATE,
    telemetry.STATE,
)
"""Those of the built-in policy, each after those that it needs."""


def build_operands(settings: "PolicyOperands", served: "ServedKinds") -> list[dict[str, Any]]:
    """Return the objects of the built-in policy in the order in which they are applied."""
    return [object_ for state in BUILT_IN_STATES for object_ in state.objects(settings, served)]


def all_built_in_objects() -> list[dict[str, Any]]:
    """Return every object that the built-in policy can have, in the form in which it takes the most rights."""
    block = {"enabled": True, "image": "operand:1"}
    spec = {
        **dict.fromkeys(("dcgm", "devicePlugin", "gfd"), block),
        "dcgmExporter": {**block, "serviceMonitor": {"enabled": True}},
        "validator": {"image": "operand:1"},
    }
    own = OwnOperands(runs_validator=True, exports_nvml=True)
    settings = PolicyOperands(namespace="", spec=msgspec.convert(spec, ClusterPolicySpec), own=own)
    return build_operands(settings, ALL_KINDS_SERVED)
