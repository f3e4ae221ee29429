"""Answers requests for the page of the devices' metrics, within a second.

The driver is read when a page is asked for, and once a second at most, however many ask. A driver that does not answer
in time leaves the last known values for a minute; the page says so.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.device_metrics.holders import holders_of
from agent.device_metrics.page import page_of
from agent.device_metrics.process_readings import ProcessReadings, ProcessSources
from agent.driver.device_fields import DeviceField
from agent.errors import DriverUnavailableError
from kube.errors import one_line
from telemetry.agent_metrics import DEVICE_VALUES_DROPPED
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.driver.device_fields import DeviceSample, DeviceSamples
    from api.clock import Clock
    from api.kinds.gpudevice import LastXid
    from api.kinds.gpunodeinventory import ContainerDevices
WITHIN_S: Final = 0.9
"""Seconds for the driver; the text of the largest page takes a tenth of a second at most."""
FRESH_S: Final = 1.0
"""A page is given to all who ask so soon after it."""
VALUES_KEPT_S: Final = 60.0
"""Age of values that are not shown any more."""
TASK: Final = "device.metrics"
UUID_CHANGED: Final = "uuid_changed"
"""Text in place of a field."""

_log = structlog.get_logger()


class MeasuredDriver(Protocol):
    """`measure` of `agent.nvml.driver.NvmlDriver`."""

    async def measure(self, within_s: float, *, reads_processes: bool = False) -> "DeviceSamples":
        """Return the metrics of all devices that answer, with their processes where that is asked for.

        Raises:
            DriverUnavailableError: the driver cannot be asked.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLabelSources:
    """What the roles of the agent know of the node's devices; each is asked for each page."""

    allocations: "Callable[[], Iterable[ContainerDevices]]" = tuple
    """The devices that kubelet gave to containers."""
    pools: "Callable[[], Mapping[str, str]]" = dict
    """UUID of a device -> its pool."""
    resources: "Callable[[], Mapping[str, str]]" = dict
    """Resource -> pool, of pools with a resource name of their own."""
    last_xid: "Callable[[str], LastXid | None] | None" = None
    """Of a UUID; None where no events are followed."""


@final
class DeviceMetrics:
    """The page; `run` makes it."""

    def __init__(
        self,
        driver: MeasuredDriver,
        sources: DeviceLabelSources,
        clock: "Clock",
        *,
        processes: ProcessSources,
        node: str,
    ) -> None:
        self._driver = driver
        self._sources = sources
        self._processes = ProcessReadings(processes, clock)
        self._clock = clock
        self._node = node
        self._waiting: list[asyncio.Future[bytes]] = []
        self._asked = asyncio.Event()
        self._samples: tuple[DeviceSample, ...] = ()
        self._nvlink_rates = NvlinkRates()
        self._measured_at = float("-inf")
        self._page = b""
        self._made_at = float("-inf")
        self._last_error = ""
        TASK_FAILURES.labels(TASK)

    async def page(self) -> bytes:
        """Return the page, which all have who ask within a second of it."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._asked.set()
        return await answer

    async def run(self) -> NoReturn:
        """Answer until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            if self._clock.monotonic() >= self._made_at + FRESH_S:
                await self._make()
            waiting, self._waiting = self._waiting, []
            for answer in waiting:
                if not answer.done():  # of a request that was given up
                    answer.set_result(self._page)

    async def _make(self) -> None:
        is_stale = not await self._measure()
        self._page = b""  # The one before is freed first.
        now = self._clock.monotonic()
        if now > self._measured_at + VALUES_KEPT_S:
            self._samples = ()
        sources = self._sources
        page = page_of(
            self._with_xids(),
            holders_of(sources.allocations(), sources.resources()),
            pools=sources.pools(),
            node=self._node,
            unaccounted=self._processes.unaccounted,
            is_stale=is_stale,
        )
        if not is_stale:
            for field in page.implausible:
                DEVICE_VALUES_DROPPED.labels(field.name.lower()).inc()
        self._page, self._made_at = bytes(page.content), now

    async def _measure(self) -> bool:
        """Read the driver; return whether it answered."""
        reads_processes = self._processes.is_due
        try:
            # Its thread may be busy with a call whose page was given up.
            async with asyncio.timeout(WITHIN_S):
                measured = await self._driver.measure(WITHIN_S, reads_processes=reads_processes)
        except (DriverUnavailableError, TimeoutError) as error:
            self._fail(error)
            return False
        self._last_error = ""
        DEVICE_VALUES_DROPPED.labels(UUID_CHANGED).inc(measured.changed)
        self._measured_at = self._clock.monotonic()
        self._samples = self._nvlink_rates.added_to(measured.samples, self._measured_at)
        if reads_processes:
            await self._processes.take(measured.samples, self._sources.pools())
        return True

    def _fail(self, error: DriverUnavailableError | TimeoutError) -> None:
        TASK_FAILURES.labels(TASK).inc()
        if isinstance(error, DriverUnavailableError) and error.is_absent:
            self._samples = ()
        text = one_line(str(error)) or "the driver did not answer in time"
        if text != self._last_error:
            self._last_error = text
            _log.warning("metrics of devices are stale", error=text)

    def _with_xids(self) -> "Iterable[DeviceSample]":
        last_xid = self._sources.last_xid
        if last_xid is None:
            return self._samples
        return [
            sample
            if sample.gpu_instance is not None
            else replace(
                sample,
                values={
                    **sample.values,
                    DeviceField.XID_ERRORS: xid.code if (xid := last_xid(sample.uuid)) else 0,
                },
            )
            for sample in self._samples
        ]


@final
class NvlinkRates:
    """The counters of the reading before."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        # UUID -> KiB
        self._read_at = float("-inf")

    def added_to(self, samples: "Iterable[DeviceSample]", now: float) -> "tuple[DeviceSample, ...]":
        """Return the samples with the rates since the last call, of devices that were there; seconds."""
        before, elapsed_s = self._before, now - self._read_at
        every = tuple(samples)
        self._before = {item.uuid: item.nvlink_kib for item in every if item.nvlink_kib is not None}
        self._read_at = now
        return tuple(_with_rate(item, before.get(item.uuid), elapsed_s) for item in every)


def _with_rate(sample: "DeviceSample", before: int | None, elapsed_s: float) -> "DeviceSample":
    now = sample.nvlink_kib
    # A counter that is lower was reset with the driver.
    if now is None or before is None or now < before or elapsed_s <= 0:
        return sample
    # DCGM divides by 1,000, too.
    rate = float(round((now - before) / elapsed_s / 1000))
    return replace(sample, values={**sample.values, DeviceField.NVLINK_BANDWIDTH_TOTAL: rate})
