"""State `state-mps-control-daemon`: the Multi-Process Service on nodes whose configuration shares devices by it.

Its image is the device plugin's; arguments and environment of `spec.devicePlugin` are the plugin's alone.
"""

from typing import Any, Final

import msgspec

from operands.asset_files import load_assets
from operands.nvidia.devices import plugin_configuration
from operands.nvidia.devices.access import set_device_access
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import operator_validation
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of

NAME: Final = "state-mps-control-daemon"
_MAIN: Final = "mps-control-daemon-ctr"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block = msgspec.structs.replace(settings.spec.device_plugin, args=None, env=None)
    objects = load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    plugin_configuration.set_mig_strategy(container_of(daemon_set, _MAIN), settings)
    plugin_configuration.set_mps_root(daemon_set, settings)
    plugin_configuration.set_configuration(daemon_set, _MAIN, settings)
    set_device_access(daemon_set, _MAIN, settings)
    set_block(daemon_set, _MAIN, block, field="devicePlugin", settings=settings)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    needs=(operator_validation.NAME,),
    why_off=switched_by("device_plugin"),
    deploy_label="device-plugin",
    build=_build,
)
