"""From an exporter's port to a device's condition: the pages of a real server, read, judged, written."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inventory.health.device import HealthDebounceLimits
from reconciler.dcgm.exporter import ExporterClient
from reconciler.dcgm.scraper import DcgmScraper, ScrapeLimits
from tests.component.reconciler.readiness import N1, World, a_world
from tests.support.dcgm import Exporter, an_exporter, device_lines

CLEAN = device_lines("GPU-n1-0") + device_lines("GPU-n1-1")


class ScrapedNode:
    """A world whose node has an exporter that is read."""

    def __init__(self, world: World, exporter: Exporter, scraping: DcgmScraper) -> None:
        self.world = world
        self.exporter = exporter
        self.scraping = scraping

    async def go_on(self, *, rounds: int = 1) -> None:
        """Read the exporter when it is due, and judge devices and node, so often."""
        process = self.world.process
        for _ in range(rounds):
            self.world.time.seconds += await self.scraping.reconcile(N1) or 0.0
            await self.scraping.reconcile(N1)
            process.page = self.scraping.seen(N1)
            process.heartbeat_age_s = self.scraping.heartbeat_age_s(N1)
            await process.examine()
            await process.run_pass()

    async def reason(self) -> str | None:
        return (await self.world.healthy() or {}).get("reason")


@asynccontextmanager
async def watching() -> AsyncIterator[ScrapedNode]:
    async with (
        a_world() as world,
        an_exporter(CLEAN) as exporter,
        ExporterClient(timeout_s=5) as pages,
    ):
        process = world.process
        ports = [{"name": "metrics", "containerPort": exporter.port}]
        await world.run_operand("nvidia-dcgm-exporter", ip=exporter.host, ports=ports)
        await process.observe()
        store, now = process.devices.store, world.time.now
        scraping = DcgmScraper(pages, process.operands, store, limits=ScrapeLimits(), now=now)
        yield ScrapedNode(world, exporter, scraping)


@pytest.fixture
async def node() -> AsyncIterator[ScrapedNode]:
    async with watching() as opened:
        yield opened


async def test_a_device_fails_and_comes_back_as_its_exporter_says(node: ScrapedNode):
    await node.go_on()
    assert await node.reason() == "Healthy"
    node.exporter.page = device_lines("GPU-n1-0", volatile=1) + device_lines("GPU-n1-1")
    await node.go_on()
    assert await node.reason() == "GPUReset"
    await node.go_on(rounds=HealthDebounceLimits().clean_samples)
    assert await node.reason() == "Healthy"


async def test_an_exporter_that_breaks_harms_no_device_and_takes_the_node_out_of_pooling(
    node: ScrapedNode,
):
    await node.go_on(rounds=3)
    assert (await node.world.inventory())["phase"] == "Ready"
    node.exporter.status = 500
    await node.go_on(rounds=12)
    assert await node.reason() == "Healthy"
    conditions = await node.world.conditions()
    assert conditions["MonitoringMissing"] == ("True", "NotReady")
    assert conditions["ReadyForPooling"] == ("False", "MonitoringMissing")
    node.exporter.status = 200
    await node.go_on(rounds=4)
    assert (await node.world.inventory())["phase"] == "Ready"
