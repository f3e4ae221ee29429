"""Bandwidth of NVLink from the driver's counters, between two readings: as DCGM has it, in MB/s."""

from dataclasses import replace
from typing import TYPE_CHECKING, final

from agent.driver.device_fields import DeviceField

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.driver.device_fields import DeviceSample


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
