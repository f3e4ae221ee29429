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


class BadConfig(AgentError):  # noqa: N818  # it is named for what is wrong
    """A file cannot be used; the text names it and says why."""


class NotRegistered(AgentError):  # noqa: N818  # as above
    """kubelet did not take the plugin; the text says why. It is tried again."""


class KubeletUnavailable(AgentError):  # noqa: N818  # as above
    """kubelet's PodResources did not answer in time, or refused; the text says why."""


class DriverUnavailable(AgentError):  # noqa: N818  # as above
    """The driver cannot be asked; `reason` is what the node's condition says."""

    def __init__(self, reason: "AgentDegraded", text: str) -> None:
        super().__init__(text)
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        """Say whether there is no driver at all: what answers after this is another one."""
        return self.reason in {AgentDegraded.DRIVER_MISSING, AgentDegraded.DRIVER_NOT_LOADED}


class PartitioningRefused(AgentError):  # noqa: N818  # as above
    """The driver does not cut a card as it should be; the text says what was refused and why."""


class UnusableAgent(AgentError):  # noqa: N818  # as above
    """The API server is needed, and there is no usable way to it; the text says why."""
