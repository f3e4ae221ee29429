"""The reset of devices by NVIDIA's own program, since NVML has no call for it. Blocking, for the thread of a session.

The program is the driver's, found beside its libraries. It resets a device only while no process has it open, and checks
that itself.
"""

import subprocess
from typing import TYPE_CHECKING, Final

from agent.driver.libraries import find_program
from agent.errors import DriverUnavailableError, ResetRefusedError
from kube.errors import one_line
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROGRAM: Final = "nvidia-smi"
RESET_S: Final = 60.0
CALL_S: Final = RESET_S + 10.0
"""A program that cannot be killed, since it waits in the kernel, is left to the thread of calls (`DriverHangs`)."""


def reset_devices(
    driver_root: "Path", library: str, uuids: "Sequence[str]", *, within_s: float = RESET_S
) -> None:
    """Reset devices together.

    Raises:
        ResetRefusedError: there is no such program, or it refuses.
        DriverUnavailableError: it did not end in time.
    """
    program = find_program(driver_root, PROGRAM)
    if program is None:
        raise ResetRefusedError(f"there is no {PROGRAM} under {driver_root}: reset by hand")
    try:
        done = subprocess.run(  # noqa: S603  # the driver's program, with UUIDs that the driver listed
            [program, "--gpu-reset", "-i", ",".join(uuids)],
            env={"LD_LIBRARY_PATH": library.rpartition("/")[0], "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = f"{PROGRAM} --gpu-reset did not end within {within_s:g} s: see NVRM in the node's kernel log"
        raise DriverUnavailableError(AgentDegraded.DRIVER_HANGS, text) from None
    except OSError as error:
        raise ResetRefusedError(f"{program}: {error}") from error
    if done.returncode != 0:
        said = one_line(f"{done.stdout} {done.stderr}").strip()
        raise ResetRefusedError(
            f"{PROGRAM} --gpu-reset: {said or f'exit status {done.returncode}'}"
        )
