"""The steps `nvidia-fs` and `gdrcopy`: a kernel module, and its device file where programs open one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from agent.validator.steps import Failed, Outcome, Passed

if TYPE_CHECKING:
    from agent.validator.checked_node import CheckedNode


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
    """Of one kernel module."""

    def __init__(self, node: "CheckedNode", module: KernelModule) -> None:
        self._node = node
        self._module = module

    def signature(self) -> object:
        return self._missing()

    async def look(self) -> Outcome:
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
