"""One run of a step: its check is repeated until it passes, at most until a deadline.

The file of the step, and those of the steps after it, are removed before the first look: a file exists only after its
step has passed in this run, at whatever moment the process is killed.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from agent.errors import ReadyFilesError, StepFailedError
from agent.validator.steps import Failed, Passed, ValidationStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.validator.ready_files import ReadyFiles
    from agent.validator.steps import Outcome, StepCheck
    from api.clock import Clock

DEADLINE_S: Final = 60.0
"""Time limit, in seconds, of one step: a node agent needs ten seconds for its specification, a driver container minutes;
kubelet starts the step again, at intervals of up to five minutes."""
RETRY_S: Final = 5.0
LEAST_S: Final = 5.0
"""Least time, in seconds, for one check near the deadline."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of a step."""

    deadline_s: float = DEADLINE_S
    retry_s: float = RETRY_S


def steps_from(step: ValidationStep) -> tuple[ValidationStep, ...]:
    """Return a step and those after it, which depend on it."""
    steps = tuple(ValidationStep)
    return steps[steps.index(step) :]


async def run_step(
    step: ValidationStep,
    check: "StepCheck",
    files: "ReadyFiles",
    *,
    clock: "Clock",
    times: StepTimes,
    voids: "Sequence[ValidationStep] | None" = None,
) -> None:
    """Return once the step has passed and its file is there.

    The files of `voids` go first: by default those of the step and of all later ones.

    Raises:
        StepFailedError: it has not passed until the deadline, or its file cannot be written.
    """
    ends = clock.monotonic() + times.deadline_s
    cause = ""
    try:
        files.remove(reversed(steps_from(step) if voids is None else voids))
        while True:
            outcome = await _run(check, max(ends - clock.monotonic(), LEAST_S))
            if isinstance(outcome, Passed):
                files.write(step, outcome.content)
                _log.info("step passed", step=step.value, found=outcome.text)
                return
            if outcome.cause != cause:
                cause = outcome.cause
                _log.warning("step not passed yet", step=step.value, cause=cause)
            if clock.monotonic() + times.retry_s > ends:
                raise StepFailedError(f"{step.value}: {cause}")
            await asyncio.sleep(times.retry_s)
    except ReadyFilesError as error:
        raise StepFailedError(f"{step.value}: {error}") from error


async def wait_for_file(
    step: ValidationStep, files: "ReadyFiles", *, clock: "Clock", times: StepTimes
) -> None:
    """Return once the validator of this node has written the step's file.

    Raises:
        StepFailedError: it is not there until the deadline.
    """
    ends = clock.monotonic() + times.deadline_s
    while not files.has(step):
        if clock.monotonic() + times.retry_s > ends:
            raise StepFailedError(
                f"the validator has not written {step.ready_file}: see its pod gpu-node-validator on this node"
            )
        await asyncio.sleep(times.retry_s)


async def _run(check: "StepCheck", within_s: float) -> "Outcome":
    try:
        async with asyncio.timeout(within_s):
            return await check.run()
    except TimeoutError:
        return Failed("the check does not end: see NVRM in the node's kernel log")
