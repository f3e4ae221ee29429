"""State `dcgm`: DCGM's host engine, one a node, which exporters of the same node ask."""

import shlex
from typing import Any, Final

from operands.asset_files import load_assets
from operands.operand_settings import BootstrapOperands
from operands.operand_state import OperandState
from operands.states import gfd, validator
from operands.transforms import (
    finish,
    set_content_hash,
    set_options,
    set_runtime_class,
    set_security,
    the,
)

NAME: Final = "dcgm"


def _build(settings: BootstrapOperands) -> list[dict[str, Any]]:
    dcgm, objects = settings.dcgm, load_assets(NAME)
    daemon_set, config_map = the(objects, "DaemonSet"), the(objects, "ConfigMap")
    config_map["data"] = {
        "NV_HOSTENGINE_ARGUMENTS": " ".join(dcgm.hostengine_arguments),
        "DCGM_MIG_STRATEGY": dcgm.mig_strategy.value,
        "DCGMPROFTESTER_FLAGS": shlex.join(dcgm.proftester_flags),
    }
    set_content_hash(daemon_set, config_map)
    set_options(daemon_set, "dcgm", dcgm.options)
    set_security(daemon_set, privileged=frozenset({"dcgm"}))
    set_runtime_class(daemon_set, settings)
    return finish(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    needs=(validator.NAME, gfd.NAME),
    is_enabled=lambda settings: settings.runs_dcgm,
    build=_build,
)
