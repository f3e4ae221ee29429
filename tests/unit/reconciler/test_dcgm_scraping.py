"""When exporters are read, how often, and what becomes of those that do not answer."""

import random
from dataclasses import dataclass, field

import pytest

from api.kinds.gpudevice import GPUDevice, GPUDeviceStatus
from api.meta import ObjectMeta
from api.names import DeviceName, NodeName
from inventory.readiness.software import Operand
from reconciler.dcgm.errors import ExporterUnavailableError
from reconciler.dcgm.scraper import SPEC, DcgmScraper, ScrapeLimits
from reconciler.runtime.device_store import DeviceStore
from reconciler.sinks.operand_pod import OperandPod
from reconciler.sinks.operand_pod_sink import OperandPodSink
from telemetry.metrics import REGISTRY
from tests.support.controllers import a_context, connected
from tests.support.dcgm import device_lines
from tests.support.scheduling import Time

N1 = NodeName("n1")


@dataclass
class FakePages:
    """Answers with a page, or fails."""

    page_text: str = field(default_factory=lambda: device_lines("GPU-a"))
    is_silent: bool = False
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def page(self, ip: str, port: int) -> str:
        self.asked.append((ip, port))
        if self.is_silent:
            raise ExporterUnavailableError("no route")
        return self.page_text


class Setup:
    def __init__(self, **parameters: float) -> None:
        self.time = Time()
        self.pages = FakePages()
        self.operands = OperandPodSink()
        self.devices = DeviceStore()
        self.reported: list[str] = []
        self.scraping = DcgmScraper(
            self.pages,
            self.operands,
            self.devices,
            limits=ScrapeLimits(**parameters),
            now=self.time.now,
            rng=random.Random(7),
        )
        self.scraping.changes.subscribe(self.reported.append)

    def add(self, node: str = "n1", *, ready: bool = True) -> None:
        """Have a device and an exporter on a node."""
        status = GPUDeviceStatus(node_name=node, uuid="GPU-a")
        self.devices.upsert(GPUDevice(metadata=ObjectMeta(name=f"{node}-0"), status=status))
        self.operands.upsert(an_exporter_pod(node, ready=ready))

    async def read(self, node: NodeName = N1) -> float:
        wait_s = await self.scraping.reconcile(node)
        assert wait_s is not None
        return wait_s

    async def read_when_due(self, times: int) -> list[float]:
        """Read again whenever it is due; return what was waited."""
        waits = []
        for _ in range(times):
            wait_s = await self.read()
            self.time.seconds += wait_s
            waits.append(wait_s)
        return waits


def an_exporter_pod(node: str = "n1", *, ready: bool = True) -> OperandPod:
    return OperandPod(
        ref=f"gpu-operator/exporter-{node}",
        operand=Operand.DCGM_EXPORTER,
        node=NodeName(node),
        is_ready=ready,
        ip="10.0.0.7",
        port=9400,
    )


def scrapes(outcome: str) -> float:
    return REGISTRY.get_sample_value("gpu_health_scrapes_total", {"outcome": outcome}) or 0.0


async def test_a_ready_exporter_of_a_node_with_devices_is_read_and_told_of():
    setup = Setup()
    setup.add()
    before = scrapes("read")
    assert 12 <= await setup.read() <= 15
    assert setup.pages.asked == [("10.0.0.7", 9400)]
    assert setup.reported == ["n1"]
    seen = setup.scraping.seen(N1)
    assert seen is not None
    assert (seen.at, set(seen.page.devices)) == (100.0, {"GPU-a"})
    assert scrapes("read") == before + 1


async def test_whoever_asks_early_changes_nothing():
    setup = Setup()
    setup.add()
    wait_s = await setup.read()
    setup.time.seconds += 5
    assert await setup.read() == pytest.approx(wait_s - 5)
    assert len(setup.pages.asked) == 1


async def test_pages_are_read_again_and_again_and_not_in_step():
    setup = Setup()
    setup.add()
    waits = await setup.read_when_due(20)
    assert len(setup.pages.asked) == 20
    assert all(12 <= wait_s <= 15 for wait_s in waits)
    assert len({round(wait_s, 3) for wait_s in waits}) > 10


@pytest.mark.parametrize("case", ["no exporter", "not ready", "no device"])
async def test_nobody_else_is_asked(case: str):
    setup = Setup()
    if case != "no device":
        setup.add(ready=case != "not ready")
    if case != "not ready":
        setup.operands.replace_all([an_exporter_pod()] if case == "no device" else [])
    assert await setup.scraping.reconcile(N1) is None
    assert setup.pages.asked == []
    assert setup.scraping.heartbeat_age_s(N1) is None


async def test_many_nodes_are_read_less_often_and_not_faster():
    setup = Setup(per_second=10)
    for number in range(400):
        setup.add(f"n{number}")
    waits = [await setup.scraping.reconcile(NodeName(f"n{number}")) or 0.0 for number in range(400)]
    # The first is read at once; the others have one tenth of a second each.
    assert len(setup.pages.asked) == 1
    assert waits[1] == pytest.approx(0.1)
    assert waits[399] == pytest.approx(39.9)


async def test_a_new_node_does_not_wait_behind_the_rounds_of_the_others():
    setup = Setup(per_second=1)
    for number in range(30):
        setup.add(f"n{number}")
        await setup.read(NodeName(f"n{number}"))
        setup.time.seconds += 1
    setup.add("new")
    await setup.read(NodeName("new"))
    assert setup.scraping.seen(NodeName("new")) is not None


async def test_an_exporter_that_does_not_answer_is_asked_less_and_less_often():
    setup = Setup()
    setup.add()
    setup.pages.is_silent = True
    before = scrapes("failed")
    waits = await setup.read_when_due(12)
    assert all(15 <= wait_s <= 60 for wait_s in waits)
    assert max(waits) > 15
    assert scrapes("failed") == before + 12
    assert setup.reported == []
    setup.pages.is_silent = False
    assert await setup.read() <= 15
    assert setup.reported == ["n1"]


async def test_a_page_that_is_read_ends_the_patience_with_an_exporter():
    setup = Setup()
    setup.add()
    setup.pages.is_silent = True
    await setup.read_when_due(12)
    setup.pages.is_silent = False
    await setup.read_when_due(1)
    setup.pages.is_silent = True
    assert await setup.read() == 15


async def test_the_last_page_stands_while_its_exporter_is_silent():
    setup = Setup()
    setup.add()
    await setup.read_when_due(1)
    setup.pages.is_silent = True
    await setup.read_when_due(3)
    seen = setup.scraping.seen(N1)
    assert seen is not None
    assert seen.at == 100.0


async def test_a_page_that_is_not_of_dcgm_is_counted_and_is_no_heartbeat():
    setup = Setup()
    setup.add()
    setup.pages.page_text = "<html>welcome</html>"
    before = scrapes("malformed")
    await setup.read_when_due(2)
    assert scrapes("malformed") == before + 2
    assert setup.scraping.seen(N1) is None
    assert setup.reported == []


async def test_of_a_page_with_bad_lines_the_rest_is_taken():
    setup = Setup()
    setup.add()
    setup.pages.page_text = "DCGM_FI_DEV_XID_ERRORS nonsense\n" + device_lines("GPU-a")
    before = scrapes("malformed")
    assert await setup.read() <= 15
    assert scrapes("malformed") == before + 1
    assert setup.reported == ["n1"]


async def test_the_age_of_the_heartbeat_counts_from_the_last_page_or_the_first_attempt():
    setup = Setup()
    setup.add()
    setup.pages.is_silent = True
    await setup.read()
    setup.time.seconds += 70
    assert setup.scraping.heartbeat_age_s(N1) == 70
    setup.pages.is_silent = False
    await setup.read()
    setup.time.seconds += 5
    assert setup.scraping.heartbeat_age_s(N1) == 5


async def test_an_exporter_that_comes_back_begins_again():
    setup = Setup()
    setup.add()
    await setup.read()
    setup.operands.upsert(an_exporter_pod(ready=False))
    assert await setup.scraping.reconcile(N1) is None
    assert setup.scraping.seen(N1) is None
    setup.operands.upsert(an_exporter_pod())
    setup.time.seconds += 1
    await setup.read()
    assert len(setup.pages.asked) == 2


async def test_every_change_of_an_exporter_or_of_devices_has_the_node_looked_at():
    setup = Setup()
    setup.add("n1")
    context = a_context()
    context.stores.operands, context.stores.devices = setup.operands, setup.devices
    async with context.ending:
        woken = connected(SPEC, context)
        assert woken.taken() == ["n1"]
        setup.add("n2")
        assert woken.taken() == ["n2"]
        setup.operands.upsert(an_exporter_pod("n1", ready=False))
        assert woken.taken() == ["n1"]


async def test_the_first_page_of_an_exporter_is_told_apart():
    setup = Setup()
    begun: list[str] = []
    setup.scraping.begun.subscribe(begun.append)
    setup.add()
    await setup.read_when_due(3)
    assert begun == ["n1"]
    setup.operands.replace_all([])
    await setup.scraping.reconcile(N1)
    setup.add()
    await setup.read_when_due(2)
    assert begun == ["n1", "n1"]


async def test_when_an_exporter_was_heard_is_known_after_its_end():
    setup = Setup()
    setup.add()
    setup.pages.is_silent = True
    await setup.read()
    assert setup.scraping.heard_at(N1) is None
    setup.pages.is_silent = False
    setup.time.seconds += 60
    await setup.read()
    heard_at = setup.time.now().utc
    setup.time.seconds += 20
    setup.operands.replace_all([])
    await setup.scraping.reconcile(N1)
    assert setup.scraping.heard_at(N1) == heard_at
    setup.devices.discard(DeviceName("n1-0"))
    await setup.scraping.reconcile(N1)
    assert setup.scraping.heard_at(N1) is None
