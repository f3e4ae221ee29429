"""Errors of the agent: one tree.

AgentError
├── BadPoolConfigError       a file cannot be read, or its content is invalid
├── RegistrationError        kubelet rejected the plugin's registration
├── KubeletUnavailableError  kubelet's PodResources does not answer
├── DriverUnavailableError   the driver is missing, or does not answer
│   └── SessionStaleError    the NVML session has to be opened again (`agent.nvml.errors`)
├── HiddenProcessesError     processes of the node cannot be seen
├── PartitioningError        the driver rejects a partitioning step
├── ResetRefusedError        the driver rejects the reset of a device
├── ReadyFilesError          a file of the validator cannot be written
├── MountError               a volume cannot be mounted, or unmounted
├── StepFailedError          a step of the validator did not pass until its deadline
└── AgentUnusableError       the API server is required, and its configuration is unusable
"""

from telemetry.conditions import AgentDegraded


class AgentError(Exception):
    """Base class."""


class BadPoolConfigError(AgentError):
    """A file cannot be used; the text names it and the cause."""


class RegistrationError(AgentError):
    """kubelet rejected the plugin's registration; the text has the cause. It is retried."""


class KubeletUnavailableError(AgentError):
    """kubelet's PodResources did not answer in time, or failed; the text has the cause."""


class DriverUnavailableError(AgentError):
    """The driver cannot be called; `reason` is that of the node's condition."""

    def __init__(self, reason: "AgentDegraded", text: str) -> None:
        super().__init__(text)
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        """Whether there is no driver at all: the next one that answers is another one."""
        return self.reason in {AgentDegraded.DRIVER_MISSING, AgentDegraded.DRIVER_NOT_LOADED}


class HiddenProcessesError(AgentError):
    """Processes of the node, or what they have open, cannot be seen; the text has the cure."""


class PartitioningError(AgentError):
    """The driver rejects a partitioning step; the text has the step and the cause."""


class ResetRefusedError(AgentError):
    """The driver rejects a reset; the text is its own."""

    @property
    def is_in_use(self) -> bool:
        """Whether a program has the device open, which may end."""
        return "in use" in str(self).lower()


class ReadyFilesError(AgentError):
    """A file of the validator cannot be written; the text names it, the cause and the cure."""


class MountError(AgentError):
    """A volume cannot be mounted or unmounted; the text names the path and the cause."""


class StepFailedError(AgentError):
    """A step of the validator did not pass until its deadline; the text names it and has the cause."""


class AgentUnusableError(AgentError):
    """The API server is required, and its configuration is unusable; the text has the cause."""
