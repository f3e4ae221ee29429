"""Meaning of NVML's errors.

An error of one query of one device is a missing value: old drivers lack functions, and devices lack NVLink, ECC or
MIG. Errors of the session (the driver went away, or came back) end it: no handle is used afterwards. A lost device is
neither. Texts that name an error call the library: only in a thread that may hang.
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
"""NVML's handle of a device or an instance: opaque, and of one session."""

ENDING: Final = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
"""Errors after which every open handle is invalid."""

_ADVICE: Final = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        AgentDegraded.DRIVER_NOT_LOADED,
        "the kernel module nvidia is not loaded, or its device files are missing: run modprobe nvidia,"
        " and see NVRM in the node's kernel log",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        AgentDegraded.DRIVER_FAILS,
        "no permission to open /dev/nvidiactl: the agent must be privileged and mount the node's /dev",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        AgentDegraded.DRIVER_FAILS,
        "the NVML library is of another version than the kernel module: the driver was upgraded and not"
        " loaded again; reload the module or restart the node",
    ),
}


class SessionStaleError(DriverUnavailableError):
    """Everything open has to be closed and opened again: the driver, or the set of devices, is another one."""


class DeviceLostError(Exception):
    """The driver no longer reaches a device."""


def unavailable(error: pynvml.NVMLError) -> DriverUnavailableError:
    """Return the meaning and the cure of an error that is not about a device."""
    reason, advice = _ADVICE.get(error.value, (AgentDegraded.DRIVER_FAILS, ""))
    text = f"NVML: {error}" + (f": {advice}" if advice else "")
    return (
        SessionStaleError(reason, text)
        if is_session_stale(error)
        else DriverUnavailableError(reason, text)
    )


def is_session_stale(error: pynvml.NVMLError) -> bool:
    """Whether an error that is not about a device ends the session."""
    return error.value in ENDING or error.value == pynvml.NVML_ERROR_UNKNOWN


@final
class NvmlQueries:
    """Queries of devices, with a count of their results."""

    def __init__(self) -> None:
        self._answered = 0
        self._unknown = 0

    @property
    def are_unknown(self) -> bool:
        """Whether every query failed with an unknown error: the state after the driver was replaced."""
        return self._unknown > 0 and self._answered == 0

    def ask(
        self, default: Default, function: "Callable[..., Answer]", *arguments: object
    ) -> Answer | Default:
        """Return NVML's value, or the default where it has none.

        Raises:
            DeviceLostError: the device is lost.
            SessionStaleError: the driver went away.
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
