"""The part of a ClusterPolicy that has every operand off but the driver and the validator."""

from typing import Any, Final

OTHER_OPERANDS: Final[dict[str, Any]] = {
    name: {"enabled": False}
    for name in (
        "toolkit",
        "devicePlugin",
        "dcgm",
        "dcgmExporter",
        "gfd",
        "migManager",
        "nodeStatusExporter",
    )
}
