"""Steps of the validation of a node, in their order, and the outcome of one check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, final


class ValidationStep(Enum):
    """A part of the node's GPU software."""

    DRIVER = "driver"
    """NVML, the kernel's modules, and the device files."""
    NVIDIA_FS = "nvidia-fs"
    """The kernel module of GPUDirect Storage."""
    GDRCOPY = "gdrcopy"
    """The kernel module of GDRCopy."""
    TOOLKIT = "toolkit"
    """What the container runtime needs to hand a device to a container."""
    CUDA = "cuda"
    """A copy to and from the memory of each device, through libcuda."""
    PLUGIN = "plugin"
    """The units of the pools that have devices of the node, in the Node's allocatable."""

    @property
    def ready_file(self) -> str:
        """Return the name of the file that shows that it has passed."""
        return f"{self.value}-ready"


OF_THE_NODE: Final = tuple(step for step in ValidationStep if step is not ValidationStep.PLUGIN)
"""Steps of init containers. The plugin's is checked while the validator runs: pods of the node are not started
before its init containers have ended."""
DEFAULT_STEPS: Final = (ValidationStep.DRIVER, ValidationStep.TOOLKIT, ValidationStep.CUDA)


@final
@dataclass(frozen=True, slots=True)
class Passed:
    """The step is good at this moment."""

    text: str
    """Text for the log."""
    content: Mapping[str, str] = field(default_factory=dict)
    """Lines `KEY=value` of its file."""


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """The step is not good."""

    cause: str
    """What is wrong and the cure. The same for the same fault, so that no write to the API follows a retry."""


Outcome = Passed | Failed


class StepCheck(Protocol):
    """One step's check."""

    async def run(self) -> Outcome:
        """Look once; bounded, and raises nothing but a cancellation."""

    def signature(self) -> object:
        """Return a cheap value that changes where the outcome may have changed; calls no driver."""
