"""The check of each step of a node."""

from typing import TYPE_CHECKING

from agent.validator.cuda_check import CudaCheck
from agent.validator.driver_check import DriverCheck
from agent.validator.module_check import GDRCOPY, NVIDIA_FS, ModuleCheck
from agent.validator.steps import ValidationStep
from agent.validator.toolkit_check import ToolkitCheck

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.validator.checked_node import CheckedNode
    from agent.validator.steps import StepCheck
    from api.clock import Clock


def checks_of(
    steps: "Collection[ValidationStep]", node: "CheckedNode", clock: "Clock"
) -> "dict[ValidationStep, StepCheck]":
    """Return the checks of steps of the node, in the steps' order."""
    checks: dict[ValidationStep, StepCheck] = {
        ValidationStep.DRIVER: DriverCheck(node, clock),
        ValidationStep.NVIDIA_FS: ModuleCheck(node, NVIDIA_FS),
        ValidationStep.GDRCOPY: ModuleCheck(node, GDRCOPY),
        ValidationStep.TOOLKIT: ToolkitCheck(node, clock),
        ValidationStep.CUDA: CudaCheck(node, clock),
    }
    return {step: check for step, check in checks.items() if step in steps}
