"""State `telemetry`: Service and ServiceMonitor of the node agents, which serve the metrics of devices from NVML."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.operand_settings import BootstrapOperands
from operands.operand_state import OperandState
from operands.states.metrics_objects import set_metrics_objects
from operands.transforms import finish

NAME: Final = "telemetry"


def _build(settings: BootstrapOperands) -> list[dict[str, Any]]:
    objects = set_metrics_objects(load_assets(NAME), settings.exporter)
    return finish(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    is_enabled=lambda settings: settings.exports_nvml,
    build=_build,
)
