"""Reports the processes that have the driver open, in `status.driverProcesses` of the node's GPUNodeInventory.

    processes of the node, pod watch ─> two readings in a row ─> server-side apply, under a field manager of its own

The report is written where it differs, twice a minute at most; a restarted agent starts from the object and writes nothing
before its second reading. Where the kernel does not answer in time, the report stays as it is. Where the node's processes
cannot be seen, nothing is reported, and the log says so once.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, final

import structlog

from agent.driver_processes.reported_processes import reported_processes
from agent.errors import DriverUnavailableError, HiddenProcessesError
from api.kinds.gpunodeinventory import MAX_DRIVER_PROCESSES, GPUNodeInventory
from api.names import API_VERSION
from kube.backoff import Backoff
from kube.errors import ApiError, KubeError, NotFound, one_line
from kube.resources import GPU_NODE_INVENTORIES
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    import random

    from agent.driver_processes.reported_processes import Reading
    from agent.inventories import Inventories
    from agent.kubelet.node_pods import NodePods
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.kinds.gpunodeinventory import DriverProcess
    from api.names import NodeName

FIELD_MANAGER: Final = "gpu-control-plane/agent-driver-processes"
TASK: Final = "agent.driver-processes"
SOURCE: Final = "driver processes"
"""Source of the problem in the registry."""
READ_EVERY_S: Final = 15.0
WRITE_EVERY_S: Final = 30.0
VERIFY_S: Final = 600.0
"""Seconds between two reads of the object, which may have been edited or created again."""
_WHAT: Final = "driver_processes"

_log = structlog.get_logger()


class Search(Protocol):
    """`agent.driver_processes.process_search.ProcessSearch`."""

    async def find(self) -> "Reading":
        """Return the processes that have the driver open.

        Raises:
            HiddenProcessesError: processes of the node cannot be seen.
            DriverUnavailableError: the kernel does not answer in time.
        """


@final
class DriverProcessReporter:
    """Reads and reports; `run` does the work."""

    def __init__(  # noqa: PLR0913  # its dependencies; tests set each alone
        self,
        search: Search,
        pods: "NodePods",
        client: "Inventories",
        *,
        synced: asyncio.Event,
        clock: "Clock",
        node: "NodeName",
        namespace: str,
        problems: "ProblemRegistry",
        rng: "random.Random | None" = None,
    ) -> None:
        """Wire the reporter.

        Args:
            search: finds the processes.
            pods: all pods of this node.
            client: of the API server.
            synced: set once the pods are known; nothing is read or written before.
            clock: monotonic.
            node: the name of the inventory.
            namespace: our own.
            problems: collects failures to write.
            rng: the source of chance of retries.
        """
        self._search = search
        self._pods = pods
        self._client = client
        self._synced = synced
        self._clock = clock
        self._node = node
        self._namespace = namespace
        self._problems = problems
        self._backoff = Backoff(base_s=READ_EVERY_S, cap_s=4 * READ_EVERY_S, rng=rng)
        self._before: Reading | None = None
        self._recorded: list[DriverProcess] = []
        self._published: dict[str, Any] | None = None
        """Our fields of the object; None where it must be read."""
        self._read_at = self._written_at = float("-inf")
        self._last_error = ""
        TASK_FAILURES.labels(TASK)
        for outcome in ("written", "failed"):
            PUBLISHED.labels(_WHAT, outcome)

    async def run(self) -> NoReturn:
        """Read and write until cancelled."""
        await self._synced.wait()
        while True:
            wait_s = READ_EVERY_S
            try:
                await self._write_reading()
            except KubeError as error:
                wait_s = max(wait_s, self._failed(error))
            else:
                self._backoff.succeed()
                self._problems.clear(SOURCE)
            await asyncio.sleep(wait_s)

    async def _write_reading(self) -> None:
        """Take a reading, and write what it makes different."""
        now = self._clock.monotonic()
        if self._published is None or now - self._read_at >= VERIFY_S:
            await self._read_current(now)
        reading = await self._read()
        before, self._before = self._before, reading
        if reading is None or before is None:
            return
        self._recorded = reported_processes(
            reading,
            before,
            current=self._recorded,
            pod_of=self._pods.get_any,
            namespace=self._namespace,
        )
        desired = _fields_of(self._recorded)
        if desired == self._published or now - self._written_at < WRITE_EVERY_S:
            return
        # A failed apply may have been carried out: the object is read then.
        self._published = None
        await self._client.apply(
            GPU_NODE_INVENTORIES,
            {
                "apiVersion": API_VERSION,
                "kind": GPU_NODE_INVENTORIES.kind,
                "metadata": {"name": self._node},
                "status": desired,
            },
            field_manager=FIELD_MANAGER,
            subresource="status",
        )
        self._published, self._written_at = desired, now
        PUBLISHED.labels(_WHAT, "written").inc()
        _log.info("processes with the driver open reported", processes=len(self._recorded))

    async def _read_current(self, now: float) -> None:
        inventory = await self._client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, self._node)
        status = inventory.status
        entries = list(status.driver_processes or ())
        self._published = _fields(entries, status.driver_processes_omitted)
        self._read_at = now
        if self._before is None:
            self._recorded = entries

    async def _read(self) -> "Reading | None":
        """Return the reading; None where the kernel does not answer."""
        try:
            reading = await self._search.find()
        except HiddenProcessesError as error:
            self._log_error_once(str(error))
            return {}
        except DriverUnavailableError as error:
            self._log_error_once(str(error))
            return None
        self._last_error = ""
        return reading

    def _log_error_once(self, text: str) -> None:
        if text != self._last_error:
            self._last_error = text
            _log.warning("processes with the driver open are not known", error=text)

    def _failed(self, error: KubeError) -> float:
        TASK_FAILURES.labels(TASK).inc()
        PUBLISHED.labels(_WHAT, "failed").inc()
        if not isinstance(error, NotFound):
            # NotFound is expected until the node's devices are known and the inventory is created.
            text = f"processes with the driver open cannot be reported: {one_line(str(error))}"
            self._problems.set(SOURCE, AgentDegraded.NOT_PUBLISHED, text)
        return self._backoff.fail(error.retry_after_s if isinstance(error, ApiError) else None)


def _fields_of(entries: "list[DriverProcess]") -> dict[str, Any]:
    reported = entries[:MAX_DRIVER_PROCESSES]
    return _fields(reported, len(entries) - len(reported))


def _fields(entries: "list[DriverProcess]", omitted: int) -> dict[str, Any]:
    """Return our part of the status: nothing of it where there is nothing to report."""
    fields: dict[str, Any] = {"driverProcesses": entries} if entries else {}
    return fields | {"driverProcessesOmitted": omitted} if omitted else fields
