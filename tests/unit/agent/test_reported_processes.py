"""Which processes with the driver open the node reports, and under which names."""

from dataclasses import replace

import pytest

from agent.driver_processes.open_drivers import OpenProcess
from agent.driver_processes.reported_processes import Reading, reported_processes
from agent.kubelet.node_pods import ContainerRequest, NodePod
from api.kinds.gpunodeinventory import DriverProcess
from api.names import PodUid
from pool.model import ContainerRole

UID, GONE = PodUid("uid-p"), PodUid("uid-gone")
NVTOP = OpenProcess(70, "nvtop")
PYTHON = OpenProcess(80, "python3")


def a_pod(resource: str = "", **fields: object) -> NodePod:
    request = ContainerRequest("main", ContainerRole.MAIN, {resource: 1})
    pod = NodePod(
        uid=UID,
        namespace="team",
        name="p",
        is_ended=False,
        containers=(request,) if resource else (),
        assigned=None,
    )
    return replace(pod, **fields)  # type: ignore[arg-type]


def reported(
    reading: Reading,
    before: "Reading | None" = None,
    *current: DriverProcess,
    pod: NodePod | None = None,
) -> list[DriverProcess]:
    """What is reported of two readings, the same ones where `before` is left out."""
    pods = {} if pod is None else {pod.uid: pod}
    return reported_processes(
        reading,
        reading if before is None else before,
        current=current,
        pod_of=pods.get,
        namespace="ours",
    )


def test_pod_without_a_request_is_named_once_whatever_its_processes():
    reading: Reading = {PYTHON: UID, OpenProcess(81, "python3"): UID}
    assert reported(reading, pod=a_pod()) == [
        DriverProcess(command="python3", namespace="team", pod="p", uid=UID)
    ]


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "gpu.deckhouse.io/whole"],
)
def test_pod_that_requests_a_device_says_so_itself(resource: str):
    assert reported({PYTHON: UID}, pod=a_pod(resource)) == []


def test_request_of_another_resource_says_nothing_about_the_driver():
    assert len(reported({PYTHON: UID}, pod=a_pod("rdma/hca"))) == 1


def test_pod_that_ended_and_has_processes_left_is_reported_whatever_it_requested():
    assert len(reported({PYTHON: UID}, pod=a_pod("nvidia.com/gpu", is_ended=True))) == 1


@pytest.mark.parametrize(("namespace", "count"), [("ours", 0), ("team", 1)])
def test_operands_leave_by_their_label_and_only_ours(namespace: str, count: int):
    pod = a_pod(has_deploy_label=True, namespace=namespace)
    assert len(reported({PYTHON: UID}, pod=pod)) == count


def test_our_own_pod_that_leaves_by_no_label_is_reported():
    assert len(reported({PYTHON: UID}, pod=a_pod(namespace="ours"))) == 1


def test_process_in_no_pod_has_its_id():
    assert reported({NVTOP: None}) == [DriverProcess(command="nvtop", pid=70)]


def test_processes_of_one_name_are_one_entry_with_the_id_of_the_first():
    reading = {NVTOP: None, OpenProcess(71, "nvtop"): None, OpenProcess(9, "x"): None}
    assert reported(reading) == [
        DriverProcess(command="nvtop", pid=70),
        DriverProcess(command="x", pid=9),
    ]


def test_what_only_one_reading_finds_is_not_reported():
    assert reported({NVTOP: None, PYTHON: UID}, {}, pod=a_pod()) == []
    assert reported({}, {NVTOP: None, PYTHON: UID}, pod=a_pod()) == []


def test_processes_that_come_and_go_are_reported_without_an_id():
    later = {OpenProcess(71, "nvtop"): None}
    assert reported(later, {NVTOP: None}) == [DriverProcess(command="nvtop")]


def test_pod_whose_processes_come_and_go_is_reported():
    found = reported({OpenProcess(81, "b"): UID}, {PYTHON: UID}, pod=a_pod())
    assert [item.pod for item in found] == ["p"]


def test_entry_stays_as_long_as_it_is_true():
    reading = {OpenProcess(5, "nvtop"): None, NVTOP: None, OpenProcess(6, "a"): UID, PYTHON: UID}
    current = reported({NVTOP: None, PYTHON: UID}, pod=a_pod())
    assert reported(reading, None, *current, pod=a_pod()) == current


def test_pod_that_is_gone_is_reported_with_its_last_name():
    current = reported({PYTHON: UID}, pod=a_pod())
    assert reported({PYTHON: UID}, None, *current) == current


def test_pod_that_nobody_knows_is_reported_with_its_uid():
    assert reported({PYTHON: GONE}) == [DriverProcess(command="python3", uid=GONE)]


def test_processes_in_no_pod_come_first_and_then_pods_by_name():
    current = reported({PYTHON: UID, NVTOP: None}, pod=a_pod())
    assert [item.command for item in current] == ["nvtop", "python3"]
