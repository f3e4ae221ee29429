"""Steps that have passed, kept true: each is run again where its signature changed or its file is gone.

The signatures are cheap, and call no driver: a driver that is held open could not be unloaded. Where the driver
changes, every step is void. The files that init containers of this pod wrote are taken over.
"""

from typing import TYPE_CHECKING, final

from agent.validator.step_run import run_step, steps_from
from agent.validator.steps import ValidationStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.validator.ready_files import ReadyFiles
    from agent.validator.step_run import StepTimes
    from agent.validator.steps import StepCheck
    from api.clock import Clock


@final
class ValidatedSteps:
    """The steps of one node."""

    def __init__(
        self,
        checks: "Mapping[ValidationStep, StepCheck]",
        files: "ReadyFiles",
        *,
        clock: "Clock",
        times: "StepTimes",
    ) -> None:
        self._checks = checks
        self._files = files
        self._clock = clock
        self._times = times
        self._signatures: dict[ValidationStep, object] = {}  # of steps that have passed

    @property
    def missing(self) -> list[ValidationStep]:
        """Return the steps without a file."""
        return [step for step in self._checks if not self._files.has(step)]

    async def until_valid(self) -> None:
        """Return once every step is good and its file is there; nothing is read of the driver while nothing changed.

        Raises:
            StepFailedError: one has not passed until its deadline.
        """
        for step, check in self._checks.items():
            # Before the check: a change during it is seen the next time.
            signature = check.signature()
            if self._files.has(step) and self._signatures.get(step, signature) == signature:
                self._signatures[step] = signature
                continue
            voids = steps_from(step) if step is ValidationStep.DRIVER else (step,)
            await run_step(
                step, check, self._files, clock=self._clock, times=self._times, voids=voids
            )
            self._signatures[step] = signature
