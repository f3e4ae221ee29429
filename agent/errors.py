"""What can go wrong on a node: one tree.

AgentError
├── BadConfig             a file cannot be read, or is not what it should be
├── NotRegistered         kubelet did not take the plugin
├── KubeletUnavailable    kubelet's PodResources does not answer
├── DriverUnavailable     there is no driver, or it does not answer
├── PartitioningRefused   the driver does not cut a card as it should be
└── UnusableAgent         the API server is needed, and there is no usable way to it
"""

from telemetry.conditions import AgentDegraded


class AgentError(Exception):
    """Base of all."""


class BadPoolConfigError(AgentError):
    """A file cannot be used; the text names it and says why."""


class RegistrationError(AgentError):
    """kubelet did not take the plugin; the text says why. It is tried again."""


class KubeletUnavailableError(AgentError):
    """kubelet's PodResources did not answer in time, or refused; the text says why."""


class DriverUnavailableError(AgentError):
    """The driver cannot be asked; `reason` is what the node's condition says."""

    def __init__(self, reason: "AgentDegraded", text: str) -> None:
        super().__init__(text)
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        """Say whether there is no driver at all: what answers after this is another one."""
        return self.reason in {AgentDegraded.DRIVER_MISSING, AgentDegraded.DRIVER_NOT_LOADED}


class PartitioningError(AgentError):
    """The driver does not cut a card as it should be; the text says what was refused and why."""


class AgentUnusableError(AgentError):
    """The API server is needed, and there is no usable way to it; the text says why."""
