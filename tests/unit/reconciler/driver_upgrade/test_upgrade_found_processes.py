"""What node agents find with the driver open, as facts of an upgrade."""

import datetime as dt
from dataclasses import replace

import pytest

from api.clock import Instant
from api.kinds.gpunodeinventory import DriverProcess, GPUNodeInventory, GPUNodeInventoryStatus
from api.names import NodeName, PodUid
from inventory.health.device import HealthReport
from operands.upgrade.facts import DriverUse, HostProcess, PodOwner
from reconciler.driver_upgrade.found_processes import found_on, with_driver_open
from reconciler.sinks.agent_reports import AgentReports
from tests.support.driver_upgrades import NOW, a_pod

NODE = NodeName("n1")
OPEN = frozenset({DriverUse.OPEN})


def of_pod(uid: str, name: str = "train") -> DriverProcess:
    return DriverProcess(command="python3", namespace="team", pod=name, uid=uid)


def test_pod_with_the_driver_open_is_a_user_and_others_are_not():
    asked, open_, idle = a_pod("a"), a_pod("b", uses=frozenset()), a_pod("c", uses=frozenset())
    found = [of_pod("a"), of_pod("b")]
    pods, processes = with_driver_open([asked, open_, idle], found, ())
    assert [pod.uses for pod in pods] == [asked.uses | OPEN, OPEN, frozenset()]
    assert processes == ()


def test_pod_that_is_gone_is_waited_for_under_its_last_name():
    (pod,), _ = with_driver_open([], [of_pod("gone")], ())
    assert (pod.ref, pod.is_active, pod.uses) == ("team/train", False, OPEN)


def test_pod_that_nobody_knows_is_named_by_its_uid():
    (pod,), _ = with_driver_open([], [DriverProcess(command="python3", uid="u-1")], ())
    assert pod.ref == "pod/u-1"


def test_static_pod_is_known_by_its_name():
    """Its cgroup has the UID of its manifest, and the pod that shows it has another one."""
    mirror = a_pod(owner=PodOwner.MIRROR, uses=frozenset())
    pods, _ = with_driver_open([mirror], [of_pod("of-the-manifest")], ())
    assert pods == (replace(mirror, uses=OPEN),)


def test_pod_of_the_name_of_one_that_is_gone_is_another_one():
    pods, _ = with_driver_open([a_pod(uses=frozenset())], [of_pod("before")], ())
    assert [(pod.uid, pod.uses) for pod in pods] == [("train", frozenset()), ("before", OPEN)]


def test_processes_of_a_driver_pod_go_with_it():
    assert with_driver_open([], [of_pod("driver")], {PodUid("driver")}) == ((), ())


def test_processes_in_no_pod_are_named_by_id_and_command():
    found = [DriverProcess(command="nvtop", pid=70), DriverProcess(command="nvidia-smi")]
    pods, processes = with_driver_open([], found, ())
    assert (pods, processes) == ((), (HostProcess(70, "nvtop"), HostProcess(0, "nvidia-smi")))
    assert [process.ref for process in processes] == ["process 70 (nvtop)", "processes nvidia-smi"]


class Features:
    def __init__(self, age_s: float | None) -> None:
        self._age_s = age_s

    def heartbeat(self, node: NodeName) -> dt.datetime | None:
        assert node == NODE
        return None if self._age_s is None else NOW - dt.timedelta(seconds=self._age_s)

    @staticmethod
    def health(_node: NodeName) -> dict[str, HealthReport]:
        return {}


@pytest.mark.parametrize(
    ("age_s", "count"),
    [
        pytest.param(119, 1, id="heard of lately"),
        pytest.param(121, 0, id="silent"),
        pytest.param(None, 1, id="no heartbeat can be published"),
    ],
)
def test_what_an_agent_found_counts_as_long_as_it_is_heard(age_s: float | None, count: int):
    agents = AgentReports(Features(age_s), now=lambda: Instant(0.0, NOW))
    status = GPUNodeInventoryStatus(driver_processes=[of_pod("a")])
    assert len(found_on(NODE, {NODE: GPUNodeInventory(status=status)}, agents)) == count
    assert found_on(NODE, {NODE: GPUNodeInventory()}, agents) == ()
    assert found_on(NODE, {}, agents) == ()
