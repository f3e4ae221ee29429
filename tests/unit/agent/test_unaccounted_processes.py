"""Which processes on devices count as unaccounted: two readings in a row, devices of pools, what kubelet gave."""

from collections.abc import Mapping

import pytest

from agent.device_metrics.holders import Holder
from agent.device_metrics.unaccounted_processes import (
    ProcessPod,
    UnaccountedDevice,
    UnaccountedProcesses,
)
from agent.driver.device_fields import DeviceSample
from api.names import PodUid

DEVICE, OTHER = "GPU-0", "GPU-1"
UID = PodUid("uid")


def a_sample(*pids: int, uuid: str = DEVICE, unit: str = "") -> DeviceSample:
    return DeviceSample(
        index=0,
        address="0000:10:00.0",
        uuid=uuid,
        minor=0,
        product="H100",
        unit=unit,
        processes=frozenset(pids),
    )


class Readings:
    """Readings of one node, whose pods may change."""

    def __init__(self) -> None:
        self.processes = UnaccountedProcesses()
        self.owners: dict[int, PodUid | None] = {7: UID}
        self.pods: dict[PodUid, ProcessPod | None] = {UID: ProcessPod("team", "p", frozenset())}
        self.pools = {DEVICE: "whole"}

    def give(self, *devices: str) -> None:
        self.pods[UID] = ProcessPod("team", "p", frozenset(devices))

    def read(self, *samples: DeviceSample) -> Mapping[UnaccountedDevice, int]:
        return self.processes.judge(
            samples, owners=self.owners, pod_of=self.pods.get, pools=self.pools
        )

    def twice(self, *samples: DeviceSample) -> Mapping[UnaccountedDevice, int]:
        self.read(*samples)
        return self.read(*samples)


@pytest.fixture
def node() -> Readings:
    return Readings()


def found(unit: str = DEVICE, uid: PodUid | None = UID, pod: str = "p") -> UnaccountedDevice:
    return UnaccountedDevice(unit, uid, Holder("whole", "team" if pod else "", pod, ""))


def test_process_counts_from_the_second_reading_on(node: Readings) -> None:
    assert node.read(a_sample(7)) == {}
    assert node.read(a_sample(7)) == node.read(a_sample(7)) == {found(): 1}


def test_process_that_was_away_begins_again(node: Readings) -> None:
    node.twice(a_sample(7))
    assert node.read(a_sample()) == node.read(a_sample(7)) == {}


def test_process_of_another_pod_with_the_same_number_begins_again(node: Readings) -> None:
    node.read(a_sample(7))
    node.owners[7] = PodUid("other")
    node.pods[PodUid("other")] = ProcessPod("team", "other", frozenset())
    assert node.read(a_sample(7)) == {}


def test_processes_of_one_pod_are_counted_together(node: Readings) -> None:
    node.owners |= {8: UID, 9: None}
    assert node.twice(a_sample(7, 8, 9)) == {found(): 2, found(uid=None, pod=""): 1}


def test_pod_with_the_device_may_use_it(node: Readings) -> None:
    node.give(OTHER, DEVICE)
    assert node.twice(a_sample(7)) == {}


def test_pod_with_another_device_may_not(node: Readings) -> None:
    node.give(OTHER)
    assert node.twice(a_sample(7)) == {found(): 1}


def test_pod_that_gets_the_device_meanwhile_is_not_accused(node: Readings) -> None:
    node.read(a_sample(7))
    node.give(DEVICE)
    assert node.read(a_sample(7)) == {}


def test_pod_of_which_nothing_can_be_said_is_not_accused(node: Readings) -> None:
    node.pods[UID] = None
    assert node.twice(a_sample(7)) == {}
    node.give()
    assert node.twice(a_sample(7)) == {found(): 1}


def test_device_of_no_pool_may_be_used_by_anybody(node: Readings) -> None:
    node.pools = {}
    assert node.twice(a_sample(7)) == {}


def test_process_that_has_exited_is_passed_over(node: Readings) -> None:
    """Or one that a driver made up."""
    del node.owners[7]
    assert node.twice(a_sample(7, 0, 2**31)) == {}


def test_instance_is_its_own_pod_s(node: Readings) -> None:
    node.give("MIG-b")
    whole, other = a_sample(), a_sample(7, unit="MIG-b")
    assert node.twice(whole, a_sample(unit="MIG-a"), other) == {}
    assert node.twice(whole, a_sample(7, unit="MIG-a"), other) == {found("MIG-a"): 1}


def test_process_of_the_device_as_a_whole_may_be_one_of_an_instance(node: Readings) -> None:
    node.give("MIG-b")
    assert node.twice(a_sample(7), a_sample(unit="MIG-a"), a_sample(unit="MIG-b")) == {}
    node.give("MIG-elsewhere")
    assert node.twice(a_sample(7), a_sample(unit="MIG-a")) == {found(): 1}


def test_pod_that_the_agent_does_not_know_has_no_name(node: Readings) -> None:
    node.pods[UID] = ProcessPod("", "", frozenset())
    assert node.twice(a_sample(7)) == {found(pod=""): 1}
