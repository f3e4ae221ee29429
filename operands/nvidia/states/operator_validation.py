"""State `state-operator-validation`: the validator, which checks driver, toolkit, CUDA and device plugin of each node.

Its init containers are the checks, in the order on the node. Driver and toolkit are checked though another one brought
them. The device plugin is checked where it runs: nodes that have none, those with a device in a GPUPool among them, get
a DaemonSet without that check.
"""

import copy
from typing import TYPE_CHECKING, Any, Final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX
from api.names import GROUP
from operands.asset_files import load_assets
from operands.nvidia.devices.access import runtime_class_of, set_device_access
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, image_of, set_block
from operands.nvidia.states import container_toolkit, driver
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of, set_env, without_container

if TYPE_CHECKING:
    from api.kinds.nvidia.container_operands import ValidatorSpec, ValidatorStep

Json = dict[str, Any]

NAME: Final = "state-operator-validation"
PLUGIN_CHECK_LABEL: Final = f"{GROUP}/device-plugin-check"
"""On pods of the validator: whether the device plugin is among their checks."""
_MAIN: Final = "nvidia-operator-validator"
_WITHOUT_PLUGIN: Final = f"{_MAIN}-without-plugin"
_PLUGIN: Final = "plugin-validation"
_WITH_WORKLOAD: Final = ("cuda-validation", _PLUGIN)
"""Checks that run a pod of their own."""
_PLUGIN_GATE: Final = f"{DEPLOY_LABEL_PREFIX}device-plugin"
_OFF: Final = ["", "false"]
"""Values of a deploy label without the operand; a paused one comes back."""


def _build(settings: PolicyOperands) -> list[Json]:
    validator, objects = settings.spec.validator, load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    set_device_access(daemon_set, "toolkit-validation", settings)
    _set_steps(daemon_set, settings)
    set_block(daemon_set, _MAIN, validator, field="validator", settings=settings)
    if not settings.spec.device_plugin.is_enabled:
        without_container(daemon_set, _PLUGIN)
        return finish_policy(NAME, objects, settings)
    without = copy.deepcopy(daemon_set)
    without["metadata"]["name"] = _WITHOUT_PLUGIN
    without_container(without, _PLUGIN)
    is_there = {"key": _PLUGIN_GATE, "operator": "Exists"}
    is_on = {"key": _PLUGIN_GATE, "operator": "NotIn", "values": _OFF}
    is_off = {"key": _PLUGIN_GATE, "operator": "In", "values": _OFF}
    is_absent = {"key": _PLUGIN_GATE, "operator": "DoesNotExist"}
    _mark_container(daemon_set, "true", [[is_there, is_on]])
    _mark_container(without, "false", [[is_absent], [is_off]])
    return finish_policy(NAME, [*objects, without], settings)


def _set_steps(daemon_set: Json, settings: PolicyOperands) -> None:
    validator = settings.spec.validator
    strategy = settings.spec.mig.strategy
    workload = _workload(settings)
    for name, step in _steps(validator).items():
        of_step = dict(workload) if name in _WITH_WORKLOAD else {}
        if name == _PLUGIN:
            of_step["MIG_STRATEGY"] = strategy.value if strategy else ""
        given = {item.name: item.value for item in step.env or ()}
        set_env(container_of(daemon_set, name), {**of_step, **given})


def _steps(validator: "ValidatorSpec") -> "dict[str, ValidatorStep]":
    return {
        "driver-validation": validator.driver,
        "toolkit-validation": validator.toolkit,
        "cuda-validation": validator.cuda,
        _PLUGIN: validator.plugin,
    }


def _workload(settings: PolicyOperands) -> dict[str, str]:
    """Return what the pods of checks are made of."""
    validator = settings.spec.validator
    secrets = validator.image_pull_secrets or ()
    has_class = not settings.spec.cdi.nri_plugin_enabled
    return {
        "VALIDATOR_IMAGE": image_of(validator, "validator", settings),
        "VALIDATOR_IMAGE_PULL_POLICY": validator.image_pull_policy,
        **({"VALIDATOR_IMAGE_PULL_SECRETS": ",".join(secrets)} if secrets else {}),
        **({"VALIDATOR_RUNTIME_CLASS": runtime_class_of(settings)} if has_class else {}),
    }


def _mark_container(daemon_set: Json, checks_plugin: str, terms: list[list[Json]]) -> None:
    """Have a DaemonSet run on the nodes of any of the terms, and select its own pods only."""
    spec = daemon_set["spec"]
    spec["selector"]["matchLabels"][PLUGIN_CHECK_LABEL] = checks_plugin
    spec["template"]["metadata"]["labels"][PLUGIN_CHECK_LABEL] = checks_plugin
    pod_spec_of(daemon_set)["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]
            }
        }
    }


STATE: Final[OperandState[PolicyOperands]] = OperandState(
    name=NAME,
    needs=(driver.NAME, container_toolkit.NAME),
    why_off=lambda settings: "" if settings.name else "the built-in policy has its own validator",
    deploy_label="operator-validator",
    build=_build,
)
