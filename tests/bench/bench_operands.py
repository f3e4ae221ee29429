"""Operands of nodes, and the metrics of a node's devices: what rendering, switching and asking cost.

Correct: every object has its state's label, each switch is one write an object and the steady state is none, a page
has every series, and a driver that hangs leaves the last known values on it.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.device_metrics.process_readings import ProcessSources
from agent.device_metrics.source import DeviceLabelSources, DeviceMetrics
from agent.errors import DriverUnavailableError
from agent.nvml.driver import NvmlDriver
from agent.probes import serving_probes
from api.kinds.gpunodeinventory import ContainerDevices
from api.names import OPERAND_LABEL, RESOURCE_PREFIX
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from manifests import constants
from manifests.yaml import render
from operands.bootstrap_states import BOOTSTRAP_STATES, build_operands
from operands.operand_settings import GfdSettings
from operands.operand_state import OPTIONAL_KINDS, ServedKinds
from reconciler.operands.controller import KEY, NodeOperands
from reconciler.operands.live_operands import read_operands
from server.system_clock import SystemClock
from tests.bench.bench_pools import quiet
from tests.bench.processes import api_server, free_port
from tests.bench.report import Result, at_most, checked, in_ms, rss_mib
from tests.bench.sizes import ClusterSize
from tests.support.nvml.library import FakeNvml, NoCompilerError, a_device
from tests.support.recorded_events import RecordedEvents
from tests.unit.operands.operand_cases import ALL_ON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from operands.operand_settings import BootstrapOperands
    from tests.bench.sizes import Sizes

SUBJECT = "operands"
DEVICES, SLICES = 16, 64
NODE = "n1"
HUNG = "nvmlDeviceGetFieldValues"
"""Of the calls, one that only metrics need: what else asks the driver goes on."""
MEASURED = {
    "utilisation": 37,
    "memory_utilisation": 12,
    "used": 1024,
    "milliwatts": 411_250,
    "sm_clock": 1980,
    "memory_clock": 2619,
    "throttle": 4,
    **{f"field.{number}": 1 for number in (82, 83, 3, 4, 5, 6, 142, 143, 145, 38, 45, 52, 59)},
}
"""Of each device; the numbers are NVML's."""


class AheadClock:
    """The machine's clock, which a benchmark puts forward: a page is made once a second at most."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.ahead_s

    def utc_now(self) -> Any:
        return self._clock.utc_now()


class Health:
    """Of an agent that is well."""

    is_alive = True
    missing: tuple[str, ...] = ()


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure the operands at the server, then the metrics at the agent."""
    with quiet():
        return [
            *_rendering(sizes),
            await _switches(sizes),
            *await _pages(sizes),
        ]


def _rendering(sizes: "Sizes") -> list[Result]:
    served = ServedKinds(kinds=OPTIONAL_KINDS)
    objects = build_operands(ALL_ON, served)
    labels = {one["metadata"]["labels"][OPERAND_LABEL] for one in objects}
    assert labels == {one.name for one in BOOTSTRAP_STATES if one.is_enabled(ALL_ON)}, labels
    checked("rendered operands")
    built, printed = [], []
    for _ in range(sizes.operand_renderings):
        began = time.perf_counter()
        found = build_operands(ALL_ON, served)
        built.append(time.perf_counter() - began)
        text = render(found)
        printed.append(time.perf_counter() - began)
        assert found == objects
        assert text.count("\nkind: ") == len(objects)
    results = []
    for what, took in (
        ("as objects, as the leader does every ten seconds", built),
        ("as YAML, as `render operands` does", printed),
    ):
        p50_ms, p99_ms = in_ms(took)
        results.append(
            Result(
                subject=SUBJECT,
                case=f"all operands rendered {what}; {len(objects)} objects",
                samples=len(took),
                p50_ms=p50_ms,
                p99_ms=p99_ms,
                aims=(at_most("p99_ms", 200),),
            )
        )
    return results


async def _switches(sizes: "Sizes") -> Result:
    """From other settings until every object is right: gpu-feature-discovery off, and on again."""
    on = replace(ALL_ON, namespace=constants.DEFAULT_NAMESPACE)
    off = replace(on, gfd=GfdSettings())
    size = ClusterSize(nodes=sizes.operand_nodes, pods=0)
    took: list[float] = []
    writes = changed = 0
    with api_server(size) as api:
        async with KubeClient(StaticConnection(api.url), SystemClock()) as client:
            everything = await _reconciled(client, on)
            api.take_writes()
            await _reconciled(client, on)
            assert api.take_writes() == 0
            checked("steady state of operands")
            for number in range(sizes.operand_switches):
                wanted = on if number % 2 else off
                began = time.perf_counter()
                names = await _reconciled(client, wanted)
                took.append(time.perf_counter() - began)
                changed = sum(name[1].startswith("gpu-feature-discovery") for name in everything)
                assert names == {
                    name
                    for name in everything
                    if wanted is on or not name[1].startswith("gpu-feature-discovery")
                }
                writes = api.take_writes()
                assert writes == changed, (writes, changed)
                checked("switch of an operand")
    p50_ms, p99_ms = in_ms(took)
    return Result(
        subject=SUBJECT,
        case=(
            f"an operand is switched until every object is right, {size.nodes} nodes; writes are the"
            " operand's objects"
        ),
        samples=len(took),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        writes=writes,
        aims=(at_most("p99_ms", 10_000), at_most("writes", changed)),
    )


async def _reconciled(client: KubeClient, settings: "BootstrapOperands") -> "set[tuple[str, str]]":
    """Reconcile as a server does that has just started with these settings; return what there is."""
    events = RecordedEvents()
    await NodeOperands(client, settings, events).reconcile(KEY)
    assert not events.events
    return set((await read_operands(client, settings.namespace)).objects)


async def _pages(sizes: "Sizes") -> list[Result]:
    """Ask for the page of the largest node over HTTP, then while the driver hangs."""
    with tempfile.TemporaryDirectory() as folder:
        devices = [a_device(number) for number in range(sizes.page_devices)]
        try:
            nvml = FakeNvml(Path(folder), *devices)
        except NoCompilerError as missing:
            sys.stdout.write(f"  left out, metrics of devices: {missing}\n")
            return []
        for device in devices:
            nvml.set(device.uuid, **MEASURED)
        async with _telemetry(nvml, [one.uuid for one in devices], sizes) as (port, driver, clock):
            # What the agent has without the page: the driver, and a server.
            await driver.look()
            await _drain(port, constants.LIVENESS_PATH)
            before_mib = rss_mib(os.getpid())
            for _ in range(sizes.pages):
                clock.ahead_s += 1
                await _drain(port)
            growth_mib = rss_mib(os.getpid()) - before_mib
            results = [await _page(port, clock, sizes, growth_mib)]
            results += await _hanging(port, driver, clock, nvml=nvml, sizes=sizes)
    return results


@asynccontextmanager
async def _telemetry(
    nvml: FakeNvml, uuids: list[str], sizes: "Sizes"
) -> "AsyncIterator[tuple[int, NvmlDriver, AheadClock]]":
    """Serve the page as the agent does, with every slice given to a container of its own."""
    allocations = [
        ContainerDevices(
            namespace="team",
            pod=f"pod-{number}-{part}",
            container="main",
            resource=f"{RESOURCE_PREFIX}shared",
            units=[f"{uuid}::{part}"],
            uid=f"uid-{number}-{part}",
        )
        for number, uuid in enumerate(uuids)
        for part in range(sizes.page_slices)
    ]
    clock = AheadClock()
    driver = NvmlDriver(clock, library=nvml.library)
    sources = DeviceLabelSources(allocations=lambda: allocations, pools=dict)
    processes = ProcessSources(
        owners_of=lambda _pids: {}, pod_of=lambda _pod: None, report=lambda _device: None
    )
    metrics = DeviceMetrics(driver, sources, clock, processes=processes, node=NODE)
    port = free_port()
    async with (
        serving_probes(Health(), "127.0.0.1", port, device_metrics=metrics),
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(metrics.run())
        try:
            yield port, driver, clock
        finally:
            running.cancel()
            nvml.unhang()
            await driver.close()


async def _page(port: int, clock: AheadClock, sizes: "Sizes", growth_mib: float) -> Result:
    took, cpu, page = [], [], b""
    for _ in range(sizes.pages + 1):
        clock.ahead_s += 1
        began, spent = time.perf_counter(), time.process_time()
        page = await _asked(port)
        took.append(time.perf_counter() - began)
        cpu.append(time.process_time() - spent)
        _check(page, sizes, is_stale=False)
    # The first one opens the driver.
    p50_ms, p99_ms = in_ms(took[1:])
    return Result(
        subject=SUBJECT,
        case=(
            f"page of {sizes.page_devices} devices of {sizes.page_slices} slices, each of another pod,"
            f" {len(page) / 1e6:.1f} MB; with the double of NVML, and the client"
        ),
        samples=len(took) - 1,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        cpu_ms=statistics.median(cpu[1:]) * 1e3,
        growth_mib=growth_mib,
        aims=(at_most("cpu_ms", 30), at_most("p99_ms", 100), at_most("growth_mib", 4)),
    )


def _check(page: bytes, sizes: "Sizes", *, is_stale: bool) -> None:
    shown = page.count(b"\nDCGM_FI_DEV_GPU_UTIL{")
    assert shown == sizes.page_devices * sizes.page_slices, shown
    assert page.count(b"\nDCGM_FI_DEV_ECC_SBE_VOL_TOTAL{") == sizes.page_devices
    assert b"\ngpu_device_metrics_stale %d\n" % is_stale in page
    checked("page of devices")


async def _hanging(
    port: int, driver: NvmlDriver, clock: AheadClock, *, nvml: FakeNvml, sizes: "Sizes"
) -> list[Result]:
    """A call of the driver hangs under the page; another role looks at the devices meanwhile."""
    usual = [await _timed_look(driver) for _ in range(20)]
    took: list[float] = []
    looks: list[float] = []
    gaps: list[float] = []
    for _ in range(sizes.hangs):
        clock.ahead_s += 1
        nvml.hang(HUNG)
        async with asyncio.TaskGroup() as group:
            others = group.create_task(_others(driver, looks, gaps))
            began = time.perf_counter()
            page = await _asked(port)
            took.append(time.perf_counter() - began)
            others.cancel()
        _check(page, sizes, is_stale=True)
        nvml.unhang()
        await _until_measured(driver)
    p50_ms, p99_ms = in_ms(took)
    look_ms, worst_ms = in_ms(looks)
    base_ms = statistics.median(usual) * 1e3
    return [
        Result(
            subject=SUBJECT,
            case="the same while a call of the driver hangs: the last known values",
            samples=len(took),
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            stall_ms=max(gaps) * 1e3,
            aims=(at_most("p99_ms", 1_000),),
        ),
        Result(
            subject=SUBJECT,
            case="a look of another role at all devices meanwhile, beside one without a page",
            samples=len(looks),
            p50_ms=look_ms,
            p99_ms=worst_ms,
            base_p50_ms=base_ms,
            ratio=look_ms / base_ms,
            aims=(at_most("p99_ms", 100),),
        ),
    ]


async def _others(driver: NvmlDriver, looks: list[float], gaps: list[float]) -> None:
    """Look at the devices again and again, and tell how long a turn of the loop took to come."""
    while True:
        looks.append(await _timed_look(driver))
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - began)


async def _timed_look(driver: NvmlDriver) -> float:
    began = time.perf_counter()
    look = await driver.look()
    assert len(look.devices) > 0
    return time.perf_counter() - began


async def _until_measured(driver: NvmlDriver) -> None:
    """Wait until the call that hung has returned."""
    async with asyncio.timeout(30):
        while True:
            try:
                await driver.measure(1.0)
            except DriverUnavailableError:
                await asyncio.sleep(0.01)
            else:
                return


async def _drain(port: int, path: str = constants.DEVICE_METRICS_PATH) -> None:
    """Ask, and keep nothing of the answer, whose memory would be counted."""
    reader, writer = await _ask(port, path)
    while await reader.read(4096):
        pass
    writer.close()


async def _ask(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: n1\r\n\r\n".encode())
    return reader, writer


async def _asked(port: int) -> bytes:
    reader, writer = await _ask(port, constants.DEVICE_METRICS_PATH)
    page = await reader.read()
    writer.close()
    assert page.startswith(b"HTTP/1.1 200 ")
    return page
