"""The role validator: keeps the files of the node's validation true while its pod runs.

The init containers of the pod have passed the steps of the node (`gpu-control-plane validate`). This role looks every
ten seconds, and calls the driver only where something changed. Where a step fails for its whole deadline, the process
ends with the cause as its termination message, which becomes the operand's message in the GPUNodeInventory; kubelet
starts it again. The files of steps that are good stay then. They are removed when the pod ends.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import structlog

from agent.errors import ReadyFilesError, StepFailedError
from agent.validator.checked_node import CheckedNode
from agent.validator.checks import checks_of
from agent.validator.pool_units import missing_units
from agent.validator.ready_files import ReadyFiles
from agent.validator.step_run import StepTimes
from agent.validator.steps import ValidationStep
from agent.validator.termination_log import write_termination_message
from agent.validator.validated_steps import ValidatedSteps
from api.foreign.core import Node
from api.text import listed
from kube.errors import ApiError
from kube.resources import NODES

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agent.api_cache import NodeObjects
    from agent.context import AgentContext

CHECK_S: Final = 10.0
PLUGIN_S: Final = 150.0
"""Seconds for the plugin of a pool that has just received a device: its image is pulled meanwhile."""

_log = structlog.get_logger()


@final
class ValidatorRole:
    """The steps of the node, and the units of its pools."""

    def __init__(
        self,
        dependencies: "AgentContext",
        objects: "NodeObjects",
        *,
        times: StepTimes | None = None,
        check_s: float = CHECK_S,
        plugin_s: float = PLUGIN_S,
    ) -> None:
        settings = dependencies.settings
        node = CheckedNode(
            driver_root=settings.driver_root,
            dev_root=settings.dev_root,
            sysfs=settings.sysfs,
            procfs=settings.procfs,
            driver_libraries=settings.driver_libraries,
            hand_out=settings.hand_out,
            cdi_kind=settings.cdi_kind,
        )
        clock = dependencies.clock
        self._dependencies = dependencies
        self._objects = objects
        self._files = ReadyFiles(settings.validations_directory)
        self._steps = ValidatedSteps(
            checks_of({ValidationStep(step) for step in settings.steps}, node, clock),
            self._files,
            clock=clock,
            times=times or StepTimes(),
        )
        self._check_s = check_s
        self._plugin_s = plugin_s
        self._missing_since: float | None = None
        self._has_units = False
        self._has_failed = False

    @property
    def missing(self) -> list[str]:
        """Conditions of readiness that do not hold."""
        missing = [f"{step.value}: not validated" for step in self._steps.missing]
        return missing if self._has_units else [*missing, "plugin: not validated"]

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        return {"validator": self.run()}

    async def run(self) -> None:
        """Keep the files true until cancelled.

        Raises:
            StepFailedError: a step has not passed until its deadline; its text is the termination message.
        """
        try:
            while True:
                await self._steps.until_valid()
                await self._wait_for_objects()
                await self._check_units()
                await asyncio.sleep(self._check_s)
        except (StepFailedError, ReadyFilesError) as error:
            self._has_failed = True
            write_termination_message(self._dependencies.settings.termination_log, str(error))
            raise

    def close(self) -> None:
        """Remove the files at the end of the pod; after a failure, kubelet starts this container again."""
        if self._has_failed:
            return
        try:
            self._files.remove(reversed(ValidationStep))
        except ReadyFilesError as error:
            _log.warning("validation files not removed", error=str(error))

    async def _wait_for_objects(self) -> None:
        """Return once the pools are known, so that the first look tells; at most one interval later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._check_s):
                await self._objects.synced()

    async def _check_units(self) -> None:
        missing = await self._missing_units()
        if missing is None:
            return
        if not missing:
            self._has_units = True
            self._missing_since = None
            if not self._files.has(ValidationStep.PLUGIN):
                self._files.write(ValidationStep.PLUGIN, {})
            return
        now = self._dependencies.clock.monotonic()
        self._files.remove([ValidationStep.PLUGIN])
        self._missing_since = self._missing_since or now
        if now - self._missing_since >= self._plugin_s:
            pools = listed(f"{resource} of pool {pool}" for pool, resource in missing)
            raise StepFailedError(
                f"plugin: the node's allocatable lacks {pools}: see the pool's gpu-device-plugin pod on this"
                " node, and AgentDegraded of its GPUNodeInventory"
            )

    async def _missing_units(self) -> list[tuple[str, str]] | None:
        """Return the pools without units here; None while that is unknown."""
        if not self._objects.is_synced:
            return None
        devices = list(self._objects.devices())
        if not any(device.status.pool_ref for device in devices):
            return []
        try:
            node = await self._dependencies.client.get(NODES, Node, self._dependencies.node)
        except ApiError as error:
            _log.warning("node not read", error=str(error))
            return None
        return missing_units(devices, self._objects.pools(), node.status.allocatable or {})
