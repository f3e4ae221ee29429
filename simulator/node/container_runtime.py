"""The port by which the fake kubelet starts containers, and the runtime whose containers always start."""

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from api.foreign.core import Pod


class ContainerFailedError(Exception):
    """A container ended with an error; the text is its termination message."""


class ContainerRuntime(Protocol):
    """Starts the containers of pods."""

    async def start(self, pod: "Pod", container: str) -> None:
        """Return once the container runs; an init container, once it has succeeded.

        Raises:
            ContainerFailedError: it ended with an error.
        """


@final
class InstantRuntime:
    """Runs no program: every container is up, and every init container succeeds, at once."""

    async def start(self, pod: "Pod", container: str) -> None:
        """Return."""
