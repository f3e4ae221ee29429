"""Writer of the condition AgentDegraded of the node's GPUNodeInventory.

The list of conditions has other writers, too: the condition is applied server-side under a field manager of
its own, on a difference only. The shown condition is read once, and again every few minutes, in case it was
removed. A node without an inventory yet is retried.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from agent.problems.registry import NO_PROBLEM
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import API_VERSION
from api.status_conditions import find_condition, new_condition
from kube.backoff import Backoff
from kube.errors import KubeError, NotFound, one_line
from kube.resources import GPU_NODE_INVENTORIES
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import InventoryCondition
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    import random

    from agent.inventories import Inventories
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.meta import Condition
    from api.names import NodeName

FIELD_MANAGER: Final = "gpu-control-plane/agent"
TASK: Final = "agent.condition"
GATHER_S: Final = 1.0
"""Problems come and go together, as at the start of the process."""
BEGINNING_S: Final = 15.0
"""Seconds until each part knows whether it has a problem; a problem from before a restart stays as long."""
CHECK_EVERY_S: Final = 300.0
_CAP_S: Final = 30.0
_WHAT: Final = "condition"

_log = structlog.get_logger()


@final
class DegradedConditionWriter:
    """Keeps the condition equal to the registry."""

    def __init__(
        self,
        client: "Inventories",
        problems: "ProblemRegistry",
        clock: "Clock",
        *,
        node: "NodeName",
        rng: "random.Random | None" = None,
    ) -> None:
        self._client = client
        self._problems = problems
        self._clock = clock
        self._node = node
        self._backoff = Backoff(cap_s=_CAP_S, rng=rng)
        self._published: Condition | None = None
        self._generation = 0
        self._read_at: float | None = None
        self._began_at: float | None = None
        self._has_written = False
        self._last_error = ""
        TASK_FAILURES.labels(TASK)

    async def run(self) -> NoReturn:
        """Follow the registry until cancelled."""
        self._began_at = self._clock.monotonic()
        while True:
            self._problems.changed.clear()
            try:
                await self.reconcile()
            except NotFound:
                # A node without devices never gets an inventory: no problem.
                self._forget()
                await asyncio.sleep(max(self._backoff.fail(), GATHER_S))
            except KubeError as error:
                self._forget()
                self._report_failure(error)
                await asyncio.sleep(self._backoff.fail(getattr(error, "retry_after_s", None)))
            else:
                self._backoff.succeed()
                self._last_error = ""
                await self._pause()

    async def reconcile(self) -> bool:
        """Write the condition if the object has another one; return whether it was written.

        Raises:
            KubeError: it could not be read or written.
        """
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= CHECK_EVERY_S:
            await self._read(now)
        problem = self._problems.summary()
        desired = new_condition(
            InventoryCondition.AGENT_DEGRADED,
            problem.reason,
            problem.text or "the agent works without restrictions",
            status=problem != NO_PROBLEM,
            keeps_text=problem == NO_PROBLEM,
            current=() if self._published is None else (self._published,),
            generation=self._generation,
            now=self._clock.utc_now(),
        )
        if desired == self._published or self._is_too_early(desired):
            return False
        await self._client.apply(
            GPU_NODE_INVENTORIES,
            {
                "apiVersion": API_VERSION,
                "kind": GPU_NODE_INVENTORIES.kind,
                "metadata": {"name": self._node},
                "status": {"conditions": [desired]},
            },
            field_manager=FIELD_MANAGER,
            subresource="status",
        )
        self._published, self._has_written = desired, True
        PUBLISHED.labels(_WHAT, "written").inc()
        _log.info("condition written", reason=desired.reason, text=desired.message)
        return True

    def _is_too_early(self, desired: "Condition") -> bool:
        """Return whether the current condition is from before a restart, and may still be right."""
        return (
            desired.status == "False"
            and self._published is not None
            and not self._has_written
            and self._beginning_s > 0
        )

    @property
    def _beginning_s(self) -> float:
        """Seconds that the beginning still lasts."""
        began_at = self._began_at
        return 0.0 if began_at is None else began_at + BEGINNING_S - self._clock.monotonic()

    async def _pause(self) -> None:
        next_check_s = (self._read_at or 0.0) + CHECK_EVERY_S - self._clock.monotonic()
        within_s = self._beginning_s if self._beginning_s > 0 else next_check_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._problems.changed.wait()
        await asyncio.sleep(GATHER_S)

    async def _read(self, now: float) -> None:
        inventory = await self._client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, self._node)
        self._published = find_condition(
            inventory.status.conditions, InventoryCondition.AGENT_DEGRADED
        )
        self._generation = inventory.metadata.generation
        self._read_at = now

    def _forget(self) -> None:
        """Read the condition again: a write that failed may have been carried out."""
        self._read_at = None

    def _report_failure(self, error: KubeError) -> None:
        TASK_FAILURES.labels(TASK).inc()
        PUBLISHED.labels(_WHAT, "failed").inc()
        cause = type(error).__name__
        if cause != self._last_error:
            self._last_error = cause
            _log.warning("condition not written", node=self._node, error=one_line(str(error)))
