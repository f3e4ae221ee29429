"""Pods of processes: what kubelet gave, what is not known yet, and the Event on a pod without the device."""

import asyncio
from dataclasses import replace

import pytest

from agent.allocations.reporter import AllocationReporter
from agent.device_metrics.holders import Holder
from agent.device_metrics.process_pods import ProcessPods
from agent.device_metrics.unaccounted_processes import ProcessPod, UnaccountedDevice
from agent.kubelet.node_pods import NodePod
from api.names import PodUid, UnitId
from tests.component.agent.allocations.reporting_node import (
    WHOLE,
    ReportingNode,
    a_node_pod,
)
from tests.support.recorded_events import RecordedEvents

pytestmark = pytest.mark.looptime
UID = PodUid("uid-p")


def process_pods(
    node: ReportingNode, reporter: AllocationReporter, events: RecordedEvents | None = None
) -> ProcessPods:
    return ProcessPods(
        node.pods,
        reporter,
        events or RecordedEvents(),
        synced=node.synced,
        namespace="gpu-control-plane",
        is_of_a_pool=lambda resource: resource == WHOLE,
    )


def a_plain_pod() -> NodePod:
    return replace(a_node_pod(), containers=())


async def test_pod_has_the_devices_that_kubelet_gave_whole_or_in_slices(node: ReportingNode):
    async with node.running() as reporter:
        pods = process_pods(node, reporter)
        node.kubelet.give("p", main="GPU-1 GPU-2::3 GPU-2::4", side="MIG-5")
        node.pods.upsert(a_node_pod(main=3, side=1))
        await asyncio.sleep(1)
        devices = frozenset({"GPU-1", "GPU-2", "MIG-5"})
        assert pods.pod_of(UID) == ProcessPod("default", "p", devices)


async def test_pod_whose_devices_kubelet_has_not_named_all_is_not_judged(node: ReportingNode):
    async with node.running() as reporter:
        pods = process_pods(node, reporter)
        node.pods.upsert(a_node_pod(main=1, side=1))
        await asyncio.sleep(1)
        assert pods.pod_of(UID) is None
        node.kubelet.give("p", main="GPU-1")
        await asyncio.sleep(5)
        assert pods.pod_of(UID) is None
        node.kubelet.is_away = True
        await asyncio.sleep(600)
        assert pods.pod_of(UID) is None


async def test_init_container_may_use_what_it_was_assigned(node: ReportingNode):
    async with node.running() as reporter:
        pods = process_pods(node, reporter)
        pod = a_node_pod(init=1)
        node.pods.upsert(pod)
        assert pods.pod_of(UID) is None
        node.pods.upsert(
            replace(pod, assigned={"init": (UnitId("GPU-1"),), "main": (UnitId("GPU-2"),)})
        )
        assert pods.pod_of(UID) == ProcessPod("default", "p", frozenset({"GPU-1"}))


async def test_pod_that_asks_for_no_device_has_none(node: ReportingNode):
    pods = process_pods(node, node.a_reporter())
    node.pods.upsert(a_plain_pod())
    assert pods.pod_of(UID) == ProcessPod("default", "p", frozenset())


async def test_pod_of_our_namespace_may_use_any_device(node: ReportingNode):
    pods = process_pods(node, node.a_reporter())
    node.pods.upsert(replace(a_plain_pod(), namespace="gpu-control-plane"))
    assert pods.pod_of(UID) is None


async def test_terminated_pod_keeps_its_devices_while_it_has_processes(node: ReportingNode):
    node.terminated = lambda: {UID}
    async with node.running() as reporter:
        pods = process_pods(node, reporter)
        node.kubelet.give("p", main="GPU-1")
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(1)
        node.pods.discard(a_node_pod())
        await asyncio.sleep(1)
        assert pods.pod_of(UID) == ProcessPod("", "", frozenset({"GPU-1"}))


async def test_terminated_pod_keeps_the_devices_of_its_init_container(node: ReportingNode):
    node.terminated = lambda: {UID}
    units = (UnitId("GPU-1"), UnitId("GPU-2"))
    pod = replace(a_node_pod(init=2, main=1), assigned={"init": units, "main": units[:1]})
    async with node.running() as reporter:
        pods = process_pods(node, reporter)
        node.kubelet.give("p", main="GPU-2")
        node.pods.upsert(pod)
        await asyncio.sleep(1)
        node.pods.discard(pod)
        await asyncio.sleep(1)
        assert pods.pod_of(UID) == ProcessPod("", "", frozenset({"GPU-1", "GPU-2"}))


async def test_nothing_is_said_of_pods_before_they_are_known(node: ReportingNode):
    pods = process_pods(node, node.a_reporter())
    node.synced.clear()
    assert pods.pod_of(UID) is None
    node.synced.set()
    assert pods.pod_of(UID) == ProcessPod("", "", frozenset())


async def test_event_on_the_pod_names_the_device_and_the_cure(node: ReportingNode):
    events = RecordedEvents()
    pods = process_pods(node, node.a_reporter(), events)
    found = UnaccountedDevice("GPU-1", UID, Holder("whole", "default", "p", ""))
    pods.report(found)  # It is gone by now.
    node.pods.upsert(a_plain_pod())
    pods.report(found)
    pods.report(found._replace(uid=None))
    [event] = events.events
    assert (event.type, event.reason) == ("Warning", "GPUProcessUnaccounted")
    assert (event.regarding.name, event.regarding.uid) == ("p", "uid-p")
    assert event.note == (
        "the pod has a process on device GPU-1 of pool whole, which kubelet did not give to it: request the pool's"
        " resource in place of NVIDIA_VISIBLE_DEVICES, a privileged container or a mount of /dev"
    )
