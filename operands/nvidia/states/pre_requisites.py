"""State `pre-requisites`: the RuntimeClasses by which pods get the devices' runtime.

With the toolkit's plugin of the container runtime (NRI) pods need none.
"""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices.access import runtime_class_of
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_operator_metadata
from operands.operand_state import OperandState

NAME: Final = "pre-requisites"
_OFF: Final = "spec.cdi.nriPluginEnabled is true: no RuntimeClass is needed"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    main, *of_cdi = load_assets(NAME)
    name = runtime_class_of(settings)
    main["metadata"]["name"] = main["handler"] = name
    objects = [main]
    if settings.spec.cdi.is_enabled:
        # The policy may give its class the name of one of these.
        objects += [item for item in of_cdi if item["metadata"]["name"] != name]
    set_operator_metadata(objects, settings.spec.operator)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    why_off=lambda settings: _OFF if settings.spec.cdi.nri_plugin_enabled else "",
    build=_build,
)
