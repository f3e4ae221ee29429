"""State `telemetry`: Service and ServiceMonitor of the node agents, which serve the metrics of devices from NVML."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.own_pods import set_own_metrics
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_or_remove_monitor
from operands.operand_state import OperandState

NAME: Final = "telemetry"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    objects = load_assets(NAME)
    assert settings.own is not None
    set_own_metrics(objects, settings.own)
    set_or_remove_monitor(objects, settings.spec.dcgm_exporter.service_monitor)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    why_off=lambda settings: (
        ""
        if settings.own is not None and settings.own.exports_nvml
        else "bootstrap.dcgm_exporter has another source"
    ),
    build=_build,
)
