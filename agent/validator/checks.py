"""The check of each step of a node."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from agent.validator.cuda_check import CudaCheck
from agent.validator.driver_check import DriverCheck
from agent.validator.steps import Failed, Outcome, Passed, ValidationStep
from agent.validator.toolkit_check import ToolkitCheck

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.validator.checked_node import CheckedNode
    from agent.validator.steps import StepCheck
    from api.clock import Clock


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModule:
    """A module and what brings it."""

    name: str
    cure: str
    device_file: str = ""


NVIDIA_FS: Final = KernelModule(
    name="nvidia_fs",
    cure="install NVIDIA GPUDirect Storage and run modprobe nvidia-fs,"
    " or set bootstrap.validator.enable_nvidia_fs_validation to false",
)
GDRCOPY: Final = KernelModule(
    name="gdrdrv",
    cure="install GDRCopy's driver and run modprobe gdrdrv,"
    " or set bootstrap.validator.enable_gdrcopy_validation to false",
    device_file="gdrdrv",
)


@final
class ModuleCheck:
    """The check of one kernel module."""

    def __init__(self, node: "CheckedNode", module: KernelModule) -> None:
        self._node = node
        self._module = module

    def signature(self) -> object:
        return self._missing()

    async def run(self) -> Outcome:
        missing = self._missing()
        if missing:
            return Failed(f"{missing}: {self._module.cure}")
        return Passed(f"kernel module {self._module.name}")

    def _missing(self) -> str:
        if not self._node.is_loaded(self._module.name):
            return f"the kernel module {self._module.name} is not loaded"
        file = self._module.device_file
        path = self._node.dev_root / file
        if file and not path.is_char_device():
            return f"the device file {path} is missing"
        return ""


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
