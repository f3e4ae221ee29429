"""Readings of the devices' processes: when, of which pods, and one Event for each pod and device.

They come with a page that is requested, and every ten seconds at most: a pod whose process is found twice is known to
kubelet and to the watch by then, and the driver is asked less often than for the metrics.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from agent.device_metrics.unaccounted_processes import UnaccountedProcesses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from agent.device_metrics.unaccounted_processes import PodOf, UnaccountedDevice
    from agent.driver.device_fields import DeviceSample
    from api.clock import Clock
    from api.names import PodUid

    OwnersOf = Callable[[Collection[int]], Mapping[int, PodUid | None]]
    """Returns the pods of processes, as `agent.kubelet.pod_processes.pods_of_processes`; runs in a thread."""

PROCESSES_EVERY_S: Final = 10.0
"""Least time between two readings, in seconds."""
MAX_REPORTED: Final = 1024
"""Pods and devices with an Event; the first are forgotten first, and would get another one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSources:
    """The parts of the agent that know processes and pods."""

    owners_of: "OwnersOf"
    pod_of: "PodOf"
    report: "Callable[[UnaccountedDevice], None]"
    """Emits the Event on the pod."""


@final
class ProcessReadings:
    """The last judged reading."""

    def __init__(self, sources: ProcessSources, clock: "Clock") -> None:
        self._sources = sources
        self._clock = clock
        self._processes = UnaccountedProcesses()
        self._read_at = float("-inf")
        self._accounted: dict[int, PodUid | None] = {}
        # Process -> its pod; a suspect's is read again. A node may have a thousand processes, of 20 microseconds each.
        self._reported: dict[tuple[PodUid, str], None] = {}
        self.unaccounted: Counter[UnaccountedDevice] = Counter()
        """Processes of the last two readings, by device and pod."""

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic() >= self._read_at + PROCESSES_EVERY_S

    async def take(self, samples: "Sequence[DeviceSample]", pools: "Mapping[str, str]") -> None:
        """Judge a reading.

        Args:
            samples: of all devices, with their processes.
            pools: pool of each device, by UUID.
        """
        self._read_at = self._clock.monotonic()
        pids = {pid for sample in samples for pid in sample.processes or ()}
        owners = {pid: uid for pid, uid in self._accounted.items() if pid in pids}
        if unknown := pids - owners.keys():
            owners |= await asyncio.to_thread(self._sources.owners_of, unknown)
        self.unaccounted = self._processes.judge(
            samples, owners=owners, pod_of=self._sources.pod_of, pools=pools
        )
        suspects = self._processes.suspects
        self._accounted = {pid: uid for pid, uid in owners.items() if pid not in suspects}
        for device in self.unaccounted:
            self._report_once(device)

    def _report_once(self, device: "UnaccountedDevice") -> None:
        if device.uid is None or not device.holder.pod:
            return
        key = (device.uid, device.unit)
        if key in self._reported:
            return
        self._reported[key] = None
        if len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        self._sources.report(device)
