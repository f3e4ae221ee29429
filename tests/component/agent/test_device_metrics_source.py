"""The page of the devices' metrics: fresh, once a second, and answered while a driver hangs."""

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace

import pytest

from agent.device_metrics.holders import Holder
from agent.device_metrics.process_readings import PROCESSES_EVERY_S, ProcessSources
from agent.device_metrics.source import (
    FRESH_S,
    UUID_CHANGED,
    VALUES_KEPT_S,
    WITHIN_S,
    DeviceLabelSources,
    DeviceMetrics,
)
from agent.device_metrics.unaccounted_processes import ProcessPod, UnaccountedDevice
from agent.driver.device_fields import DeviceField, DeviceSample, DeviceSamples
from agent.errors import DriverUnavailableError
from api.kinds.gpudevice import LastXid
from api.names import PodUid
from telemetry.conditions import AgentDegraded
from tests.support.loop_clock import LoopClock
from tests.support.metric_samples import Counted

pytestmark = pytest.mark.looptime
UUID = "GPU-00000000-0000-0000-0000-000000000000"
HANGS = DriverUnavailableError(AgentDegraded.DRIVER_HANGS, "overdue")
XID = LastXid(code=79, time="2026-01-01T00:00:00Z")
MISSING = DriverUnavailableError(AgentDegraded.DRIVER_MISSING, "no library")


class MeasuredDouble:
    """Answers at once, fails or hangs."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.utilisation = 1.0
        self.failure: DriverUnavailableError | None = None
        self.hangs = False
        self.changed = 0
        self.processes: set[int] = set()
        self.read_processes: list[float] = []

    async def measure(self, within_s: float, *, reads_processes: bool = False) -> DeviceSamples:
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
        if reads_processes:
            self.read_processes.append(asyncio.get_running_loop().time())
            sample = replace(sample, processes=frozenset(self.processes))
        return DeviceSamples((sample,), self.changed)


@pytest.fixture
def driver() -> MeasuredDouble:
    return MeasuredDouble()


class PodsDouble:
    """Processes with the ids of their pods, and pods with what they were given."""

    def __init__(self) -> None:
        self.owners: dict[int, PodUid | None] = {}
        self.pods: dict[PodUid, ProcessPod] = {}
        self.asked: list[set[int]] = []
        self.reported: list[UnaccountedDevice] = []

    def run(self, pid: int, pod: str, *devices: str) -> None:
        uid = PodUid(f"uid-{pod}")
        self.owners[pid] = uid
        self.pods[uid] = ProcessPod("team", pod, frozenset(devices))

    def owners_of(self, pids: Collection[int]) -> dict[int, PodUid | None]:
        self.asked.append(set(pids))
        return {pid: self.owners[pid] for pid in pids if pid in self.owners}

    def sources(self) -> ProcessSources:
        return ProcessSources(
            owners_of=self.owners_of, pod_of=self.pods.get, report=self.reported.append
        )


@pytest.fixture
def pods() -> PodsDouble:
    return PodsDouble()


@pytest.fixture
async def metrics(driver: MeasuredDouble, pods: PodsDouble) -> AsyncIterator[DeviceMetrics]:
    sources = DeviceLabelSources(pools=lambda: {UUID: "whole"}, last_xid=lambda _: XID)
    metrics = DeviceMetrics(driver, sources, LoopClock(), processes=pods.sources(), node="n1")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(metrics.run())
        yield metrics
        task.cancel()


async def page(metrics: DeviceMetrics) -> str:
    return (await metrics.page()).decode()


def is_stale(page: str) -> bool:
    return "\ngpu_device_metrics_stale 1\n" in page


async def test_page_has_values_pool_and_the_last_xid(metrics: DeviceMetrics):
    text = await page(metrics)
    assert 'DCGM_FI_DEV_GPU_UTIL{gpu="0"' in text
    assert 'Hostname="n1",pool="whole",namespace="",pod="",container=""} 1\n' in text
    assert text.endswith('container=""} 79\n')
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


async def test_request_that_was_given_up_keeps_no_page_from_others(metrics: DeviceMetrics):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await metrics.page()
    assert await page(metrics)


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
    await asyncio.sleep(VALUES_KEPT_S)
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


def unaccounted(page: str) -> list[str]:
    """Return the labels after those of the device, with the value."""
    lines = [line for line in page.splitlines() if line.startswith("gpu_process_unaccounted{")]
    return [line.partition('Hostname="n1",')[2] for line in lines]


async def test_process_of_a_pod_without_the_device_is_shown_and_reported_once(
    metrics: DeviceMetrics, driver: MeasuredDouble, pods: PodsDouble
):
    driver.processes = {7, 8, 9}
    pods.run(7, "thief")
    pods.run(8, "thief")
    pods.run(9, "holder", UUID)
    assert unaccounted(await page(metrics)) == []
    for _ in range(3):
        await asyncio.sleep(PROCESSES_EVERY_S)
        text = await page(metrics)
        assert unaccounted(text) == ['pool="whole",namespace="team",pod="thief",container=""} 2']
    assert pods.reported == [
        UnaccountedDevice(UUID, PodUid("uid-thief"), Holder("whole", "team", "thief", ""))
    ]
    driver.processes = {9}
    await asyncio.sleep(PROCESSES_EVERY_S)
    assert unaccounted(await page(metrics)) == []


async def test_pod_that_has_just_been_admitted_is_not_accused(
    metrics: DeviceMetrics, driver: MeasuredDouble, pods: PodsDouble
):
    """Its first process is found before kubelet has told of its device."""
    await page(metrics)
    await asyncio.sleep(PROCESSES_EVERY_S)
    driver.processes = {7}
    pods.run(7, "new")
    pages = [await page(metrics)]
    await asyncio.sleep(PROCESSES_EVERY_S / 2)
    pages.append(await page(metrics))
    pods.run(7, "new", UUID)
    await asyncio.sleep(PROCESSES_EVERY_S / 2)
    pages.append(await page(metrics))
    assert [unaccounted(item) for item in pages] == [[], [], []]
    assert pods.reported == []


async def test_processes_are_read_every_ten_seconds_however_many_pages_there_are(
    metrics: DeviceMetrics, driver: MeasuredDouble
):
    for _ in range(21):
        await page(metrics)
        await asyncio.sleep(FRESH_S)
    assert len(driver.asked) == 21
    assert driver.read_processes == pytest.approx(
        [driver.asked[0] + PROCESSES_EVERY_S * number for number in range(3)]
    )


async def test_owner_of_a_process_is_read_once_and_a_suspect_s_each_time(
    metrics: DeviceMetrics, driver: MeasuredDouble, pods: PodsDouble
):
    driver.processes = {7, 9}
    pods.run(7, "thief")
    pods.run(9, "holder", UUID)
    for _ in range(3):
        await page(metrics)
        await asyncio.sleep(PROCESSES_EVERY_S)
    assert pods.asked == [{7, 9}, {7}, {7}]
    # Its number is another process' by now.
    pods.run(7, "holder", UUID)
    assert unaccounted(await page(metrics)) == []


async def test_unaccounted_processes_go_with_the_known_values(
    metrics: DeviceMetrics, driver: MeasuredDouble, pods: PodsDouble
):
    driver.processes = {7}
    pods.owners[7] = None
    await page(metrics)
    await asyncio.sleep(PROCESSES_EVERY_S)
    assert unaccounted(await page(metrics)) == ['pool="whole",namespace="",pod="",container=""} 1']
    assert pods.reported == []
    driver.failure = HANGS
    await asyncio.sleep(PROCESSES_EVERY_S)
    assert unaccounted(await page(metrics)) == ['pool="whole",namespace="",pod="",container=""} 1']
    await asyncio.sleep(VALUES_KEPT_S)
    assert unaccounted(await page(metrics)) == []
