"""The page of the devices' metrics: fresh, once a second, and answered while a driver hangs."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.device_metrics.source import (
    FRESH_S,
    KNOWN_S,
    UUID_CHANGED,
    WITHIN_S,
    DeviceLabelSources,
    DeviceMetrics,
)
from agent.driver.device_fields import DeviceField, DeviceSample, DeviceSamples
from agent.errors import DriverUnavailableError
from telemetry.conditions import AgentDegraded
from tests.support.loop_clock import LoopClock
from tests.support.metric_samples import Counted

pytestmark = pytest.mark.looptime
UUID = "GPU-00000000-0000-0000-0000-000000000000"
HANGS = DriverUnavailableError(AgentDegraded.DRIVER_HANGS, "overdue")
MISSING = DriverUnavailableError(AgentDegraded.DRIVER_MISSING, "no library")


class MeasuredDouble:
    """Answers at once, fails or hangs."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.utilisation = 1.0
        self.failure: DriverUnavailableError | None = None
        self.hangs = False
        self.changed = 0

    async def measure(self, within_s: float) -> DeviceSamples:
        assert within_s <= 1.0
        self.asked.append(asyncio.get_running_loop().time())
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        values = {DeviceField.GPU_UTIL: self.utilisation}
        sample = DeviceSample(
            index=0, address="0000:10:00.0", uuid=UUID, minor=0, product="A100", values=values
        )
        return DeviceSamples((sample,), self.changed)


@pytest.fixture
def driver() -> MeasuredDouble:
    return MeasuredDouble()


@pytest.fixture
async def metrics(driver: MeasuredDouble) -> AsyncIterator[DeviceMetrics]:
    sources = DeviceLabelSources(pools=lambda: {UUID: "whole"}, xids=lambda: {"": 79})
    metrics = DeviceMetrics(driver, sources, LoopClock(), node="n1")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(metrics.run())
        yield metrics
        task.cancel()


async def page(metrics: DeviceMetrics) -> str:
    answered: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
    metrics.ask(answered.set_result)
    return (await answered).decode()


def is_stale(page: str) -> bool:
    return "\ngpu_device_metrics_stale 1\n" in page


async def test_page_has_values_pool_and_the_last_xid(metrics: DeviceMetrics):
    text = await page(metrics)
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="0"' in text
    assert 'Hostname="n1",pool="whole"} 1\n' in text
    assert text.endswith('pool="whole"} 79\n')
    assert not is_stale(text)


async def test_driver_is_read_once_a_second_however_many_ask(
    metrics: DeviceMetrics, driver: MeasuredDouble
):
    pages = await asyncio.gather(*(page(metrics) for _ in range(100)))
    await asyncio.sleep(FRESH_S / 2)
    pages.append(await page(metrics))
    assert len(set(pages)) == 1
    assert len(driver.asked) == 1
    await asyncio.sleep(FRESH_S)
    driver.utilisation = 2
    assert "} 2\n" in await page(metrics)
    assert len(driver.asked) == 2


async def test_nothing_is_read_without_a_request(metrics: DeviceMetrics, driver: MeasuredDouble):
    await asyncio.sleep(600)
    assert driver.asked == []


async def test_request_that_was_given_up_is_not_answered(metrics: DeviceMetrics):
    answers: list[bytearray] = []
    metrics.ask(answers.append)
    metrics.forget(answers.append)
    metrics.forget(answers.append)
    await page(metrics)
    assert answers == []


async def test_driver_that_hangs_leaves_the_known_values_for_a_minute(
    metrics: DeviceMetrics, driver: MeasuredDouble
):
    await page(metrics)
    await asyncio.sleep(FRESH_S)
    driver.hangs = True
    began = asyncio.get_running_loop().time()
    text = await page(metrics)
    assert asyncio.get_running_loop().time() - began == pytest.approx(WITHIN_S)
    assert is_stale(text)
    assert "DCGM_FI_DEV_GPU_UTIL{" in text
    await asyncio.sleep(KNOWN_S)
    text = await page(metrics)
    assert is_stale(text)
    assert "DCGM" not in text
    driver.hangs = False
    await asyncio.sleep(FRESH_S)
    assert not is_stale(await page(metrics))


async def test_driver_that_is_overdue_already_is_not_waited_for(
    metrics: DeviceMetrics, driver: MeasuredDouble
):
    driver.failure = HANGS
    began = asyncio.get_running_loop().time()
    assert is_stale(await page(metrics))
    assert asyncio.get_running_loop().time() == began


async def test_values_go_with_the_driver(metrics: DeviceMetrics, driver: MeasuredDouble):
    await page(metrics)
    await asyncio.sleep(FRESH_S)
    driver.failure = MISSING
    assert "DCGM" not in await page(metrics)


async def test_left_out_values_are_counted_once(metrics: DeviceMetrics, driver: MeasuredDouble):
    counted = Counted()
    driver.utilisation, driver.changed = 65535, 2
    await page(metrics)
    await asyncio.sleep(FRESH_S)
    driver.failure = HANGS
    await page(metrics)
    dropped = counted.growth("gpu_agent_device_values_dropped_total")
    assert dropped == {("gpu_util",): 1, (UUID_CHANGED,): 2}
