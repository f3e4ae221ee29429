"""The command `validate`: one step of the validation of a GPU node, as an init container runs it."""

# ruff: noqa: PLC0415  # modules of one command are imported when it runs

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.errors import StepFailedError
from agent.settings import CDI_KIND, TERMINATION_LOG, VALIDATIONS_DIRECTORY
from agent.validator.step_run import DEADLINE_S, RETRY_S, StepTimes
from agent.validator.steps import OF_THE_NODE, ValidationStep
from api.nodefiles.poolconfig import DeviceInjection
from cli.command_parser import CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_STEPS: Final = tuple(step.value for step in OF_THE_NODE)
_WAYS: Final = tuple(way.value for way in DeviceInjection)


def run_validate(arguments: "Sequence[str]") -> int:
    """Run one step to its deadline, or wait for its file; return the process's exit status.

    Raises:
        CommandLineError: the flags cannot be used.
    """
    return _run(validate_parser().parse_flags(arguments))


def validate_parser() -> CommandParser:
    """Return the parser of the command's flags."""
    parser = CommandParser(
        "validate", "One step of the validation of this GPU node, until it passes or its deadline."
    )
    parser.add_argument("step", choices=_STEPS, help="what to check")
    parser.add_argument(
        "--wait",
        action="store_true",
        help="check nothing, and wait until the node's validator has written the step's file",
    )
    parser.add_argument(
        "--deadline-s",
        type=_positive,
        default=DEADLINE_S,
        metavar="S",
        help=f"seconds until the step fails ({DEADLINE_S:g})",
    )
    parser.add_argument(
        "--retry-s",
        type=_positive,
        default=RETRY_S,
        metavar="S",
        help=f"seconds between two looks ({RETRY_S:g})",
    )
    parser.add_argument(
        "--hand-out", choices=_WAYS, default=DeviceInjection.CDI.value, help="see agent"
    )
    parser.add_argument("--cdi-kind", default=CDI_KIND, metavar="KIND", help="see agent")
    parser.add_argument("--driver-libraries", default="", metavar="DIRECTORY", help="see agent")
    for name, default, text in (
        ("driver-root", "/", "mount point of the node's root"),
        ("dev-root", "/dev", "directory of the node's device files"),
        ("sysfs", "/sys", "the kernel's sysfs"),
        ("procfs", "/proc", "the kernel's procfs"),
        ("validations-directory", VALIDATIONS_DIRECTORY, "directory of the steps' files"),
        ("termination-log", TERMINATION_LOG, "file for the cause of a failure"),
    ):
        parser.add_argument(
            f"--{name}", type=Path, default=default, metavar="PATH", help=f"{text} ({default})"
        )
    return parser


def _run(flags: "argparse.Namespace") -> int:
    from agent.validator.termination_log import write_termination_message
    from telemetry.logs import configure_logs

    configure_logs("info")
    cause = asyncio.run(_until_signalled(flags))
    if not cause:
        return OK
    write_termination_message(Path(flags.termination_log), cause)
    print_error(cause)
    return FAILED


async def _until_signalled(flags: "argparse.Namespace") -> str:
    """Run the step, and return why it has not passed; a signal ends it without its file."""
    from telemetry.tasks import stop_signals

    with stop_signals() as signalled:
        async with asyncio.TaskGroup() as group:
            stop = group.create_task(signalled.wait(), name="signal")
            step = group.create_task(_failure(flags), name=flags.step)
            await asyncio.wait([stop, step], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            step.cancel()
    return "it was told to stop" if step.cancelled() else step.result()


async def _failure(flags: "argparse.Namespace") -> str:
    try:
        await _step(flags)
    except StepFailedError as error:
        return str(error)
    return ""


async def _step(flags: "argparse.Namespace") -> None:
    """Run the step.

    Raises:
        StepFailedError: it did not pass.
    """
    from agent.validator.ready_files import ReadyFiles
    from agent.validator.step_run import run_step, wait_for_file
    from http_edge.system_clock import SystemClock

    clock = SystemClock()
    step = ValidationStep(flags.step)
    files = ReadyFiles(Path(flags.validations_directory))
    times = StepTimes(deadline_s=flags.deadline_s, retry_s=flags.retry_s)
    if flags.wait:
        await wait_for_file(step, files, clock=clock, times=times)
        return
    from agent.validator.checked_node import CheckedNode
    from agent.validator.checks import checks_of

    node = CheckedNode(
        driver_root=Path(flags.driver_root),
        dev_root=Path(flags.dev_root),
        sysfs=Path(flags.sysfs),
        procfs=Path(flags.procfs),
        driver_libraries=flags.driver_libraries,
        hand_out=DeviceInjection(flags.hand_out),
        cdi_kind=flags.cdi_kind,
    )
    await run_step(step, checks_of([step], node, clock)[step], files, clock=clock, times=times)


def _positive(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise CommandLineError(f"{text!r}: a number of seconds between 0 and 3600")
    return seconds
