"""Bandwidth of NVLink between two readings, of the same device and driver."""

from agent.device_metrics.source import NvlinkRates
from agent.driver.device_fields import DeviceField, DeviceSample


def a_sample(kib: int | None, uuid: str = "GPU-0") -> DeviceSample:
    return DeviceSample(
        index=0, address="0000:10:00.0", uuid=uuid, minor=0, product="H100", nvlink_kib=kib
    )


def bandwidth(rates: NvlinkRates, now: float, *samples: DeviceSample) -> list[float | None]:
    field = DeviceField.NVLINK_BANDWIDTH_TOTAL
    return [item.values.get(field) for item in rates.added_to(samples, now)]


def test_rate_is_that_since_the_last_reading():
    rates = NvlinkRates()
    assert bandwidth(rates, 10, a_sample(1_000_000)) == [None]
    assert bandwidth(rates, 25, a_sample(2_500_000)) == [100]
    assert bandwidth(rates, 26, a_sample(2_500_000)) == [0]


def test_device_that_came_or_was_reset_has_no_rate():
    rates = NvlinkRates()
    bandwidth(rates, 10, a_sample(5_000))
    assert bandwidth(rates, 20, a_sample(4_000), a_sample(9_000, "GPU-1")) == [None, None]
    assert bandwidth(rates, 30, a_sample(4_000), a_sample(19_000, "GPU-1")) == [0, 1]


def test_device_without_links_has_no_rate():
    rates = NvlinkRates()
    bandwidth(rates, 10, a_sample(None), a_sample(1, "GPU-1"))
    assert bandwidth(rates, 20, a_sample(None), a_sample(None, "GPU-1")) == [None, None]
    assert bandwidth(rates, 20, a_sample(7)) == [None]
    assert bandwidth(rates, 20, a_sample(8)) == [None]
