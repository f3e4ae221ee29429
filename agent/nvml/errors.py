"""What NVML's errors mean for us.

An error of one question about one card is the absence of an answer: old drivers lack functions, and cards lack
NVLink, ECC or MIG. Errors of the session (the driver went away, or came again) end it: no handle is used
afterwards. A lost card is neither. Texts that name an error call the library: only in a thread that may hang.
"""

from typing import TYPE_CHECKING, Final, NewType, TypeVar, final

import pynvml

from agent.errors import DriverUnavailableError
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")
Default = TypeVar("Default")
Handle = NewType("Handle", object)
"""What NVML gives for a card or an instance: opaque, and of one session."""

ENDING: Final = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
"""After these nothing that was opened before is of use."""

_ADVICE: Final = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        AgentDegraded.DRIVER_NOT_LOADED,
        "the kernel module nvidia is not loaded, or its device files are missing: modprobe nvidia, and look"
        " for NVRM in the node's kernel log",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        AgentDegraded.DRIVER_FAILS,
        "the agent may not open /dev/nvidiactl: it has to be privileged and to see the node's /dev",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        AgentDegraded.DRIVER_FAILS,
        "the NVML library is of another version than the kernel module: the driver was upgraded and not"
        " loaded again; reload the module or restart the node",
    ),
}


class SessionStaleError(DriverUnavailableError):
    """Whatever was opened has to be closed and opened again: the driver, or the set of cards, is another."""


class DeviceLostError(Exception):
    """The driver does not reach a card any more."""


def unavailable(error: pynvml.NVMLError) -> DriverUnavailableError:
    """Return what an error of a call about no card means, and what to do."""
    reason, advice = _ADVICE.get(error.value, (AgentDegraded.DRIVER_FAILS, ""))
    text = f"NVML: {error}" + (f": {advice}" if advice else "")
    return (
        SessionStaleError(reason, text)
        if is_session_stale(error)
        else DriverUnavailableError(reason, text)
    )


def is_session_stale(error: pynvml.NVMLError) -> bool:
    """Say whether an error of a call about no card means that the session is over."""
    return error.value in ENDING or error.value == pynvml.NVML_ERROR_UNKNOWN


@final
class NvmlFailures:
    """Asks about cards, and counts what came of it."""

    def __init__(self) -> None:
        self._answered = 0
        self._unknown = 0

    @property
    def are_unknown(self) -> bool:
        """Whether there was no answer to any, and nobody knows why: so it is after the driver was replaced."""
        return self._unknown > 0 and self._answered == 0

    def ask(
        self, default: Default, function: "Callable[..., Answer]", *arguments: object
    ) -> Answer | Default:
        """Return what NVML says, or the default where it has no answer.

        Raises:
            CardLost: the card is.
            SessionStale: the driver went away.
        """
        try:
            found = function(*arguments)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise DeviceLostError from error
            if error.value in ENDING:
                raise unavailable(error) from error
            self._unknown += error.value == pynvml.NVML_ERROR_UNKNOWN
            return default
        except UnicodeDecodeError:
            return default
        self._answered += 1
        return found
