"""When the detector reports: polls of a bus that is a list, and a report that fails on request."""

from itertools import pairwise

import pytest

from agent.detection.detector import CHECK_EVERY_S, MAX_RETRY_S, POLL_S, Detector
from agent.detection.report import detected_labels
from agent.driver.pci import PciDevice
from inventory.discovery.labels import label_report
from inventory.discovery.presence import has_device


def a_function(address: str, device: str = "2330") -> PciDevice:
    return PciDevice(
        address=address, vendor="10de", device=device, class_="0302", numa_node=0, driver=None
    )


FIRST, SECOND = a_function("0000:3b:00.0"), a_function("0000:86:00.0", "20b0")


class Node:
    """A node whose detector polls every ten seconds."""

    def __init__(self, *devices: PciDevice) -> None:
        self.devices = list(devices)
        self.reports: list[tuple[float, list[str]]] = []
        self.fails = False
        self.now = 1000.0
        self._detector = Detector(lambda: tuple(self.devices), self._report, jitter=lambda: 1.0)

    def _report(self, devices: tuple[PciDevice, ...]) -> bool:
        self.reports.append((self.now, [device.address for device in devices]))
        return not self.fails

    def poll(self, times: int = 1) -> list[list[str]]:
        """Poll; return what was reported."""
        before = len(self.reports)
        for _ in range(times):
            self._detector.step(self.now)
            self.now += POLL_S
        return [devices for _, devices in self.reports[before:]]


def test_present_devices_are_reported_at_once():
    assert Node(FIRST, SECOND).poll() == [[FIRST.address, SECOND.address]]


def test_absence_is_reported_too_since_a_device_may_have_been_pulled_while_the_node_was_off():
    assert Node().poll() == [[]]


def test_quiet_hour_has_one_check():
    node = Node(FIRST)
    node.poll()
    assert node.poll(int(CHECK_EVERY_S / POLL_S)) == [[FIRST.address]]


def test_new_device_is_reported_with_the_next_poll():
    node = Node(FIRST)
    node.poll()
    node.devices.append(SECOND)
    assert node.poll() == [[FIRST.address, SECOND.address]]


def test_device_that_is_unreadable_once_stays():
    node = Node(FIRST, SECOND)
    node.poll()
    node.devices.remove(SECOND)
    assert node.poll() == []
    node.devices.append(SECOND)
    assert node.poll(5) == []


def test_pulled_device_is_gone_with_the_second_poll():
    node = Node(FIRST)
    node.poll()
    node.devices.clear()
    assert node.poll(2) == [[]]


def test_failed_report_is_repeated_ever_more_slowly():
    node = Node(FIRST)
    node.fails = True
    node.poll(400)
    times = [at for at, _ in node.reports]
    waits = [after - before for before, after in pairwise(times)]
    assert waits[:4] == [10.0, 10.0, 20.0, 40.0]
    assert waits == sorted(waits)
    assert max(waits) == MAX_RETRY_S


def test_failed_report_that_succeeds_later_is_not_repeated():
    node = Node(FIRST)
    node.fails = True
    node.poll()
    node.fails = False
    assert node.poll(5) == [[FIRST.address]]


def test_inventory_reads_the_labels():
    labels = detected_labels([FIRST, SECOND])
    report = label_report(labels)
    assert [(slot.vendor, slot.device, slot.class_) for slot in report.slots.values()] == [
        ("10de", "2330", "0302"),
        ("10de", "20b0", "0302"),
    ]
    assert (report.devices, report.has_devices, report.bad) == (2, True, frozenset())
    assert has_device(labels, [])


@pytest.mark.parametrize("count", [0, 1, 16, 128])
def test_every_device_is_numbered(count: int):
    devices = [a_function(f"0000:{number:02x}:00.0") for number in range(count)]
    assert len(label_report(detected_labels(devices)).slots) == count
