"""kubelet is told the NUMA nodes of devices where it has something to align with them, and not else."""

from typing import TYPE_CHECKING

import pytest

from agent.kubelet.pod_resources import PodResources
from agent.plugin.numa_hints import NumaHints
from http_edge.system_clock import SystemClock
from tests.component.agent.node import RESOURCE, Agent, numa_devices
from tests.support.bound_pods import a_bound_pod
from tests.support.polling import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kubelet.admission import KubeletOfNode


def reported(node: "KubeletOfNode") -> list[list[int]]:
    return [[at.ID for at in device.topology.nodes] for device in node.plugins.devices[RESOURCE]]


@pytest.fixture
def hints(node: "KubeletOfNode") -> NumaHints:
    return NumaHints(
        PodResources(node.pod_resources.directory, SystemClock()),
        is_of_a_pool="ours.com/gpu".__eq__,
    )


async def test_it_is_told_none_and_all_as_hints_become_useful(
    node: "KubeletOfNode", folder: "Path", hints: NumaHints
):
    agent = Agent(node, folder, reports_numa_nodes=lambda: hints.are_useful)
    async with agent.running(numa_devices(0, 1)):
        await hints.read()
        assert reported(node) == [[], []]
        node.pod_resources.cpus = [0, 1]
        await hints.read()
        await until(lambda: reported(node) == [[0], [1]])
        node.pod_resources.cpus = []
        await hints.read()
        await until(lambda: reported(node) == [[], []])


async def test_they_are_useful_beside_memory_and_foreign_devices_with_numa_nodes(
    node: "KubeletOfNode", hints: NumaHints
):
    current = node.pod_resources
    current.manages_memory = True
    current.cpus = [0, 1]
    await hints.read()
    assert hints.aligned == ("cpu", "memory")
    current.manages_memory, current.cpus = False, []
    await hints.read()
    assert not hints.are_useful


async def test_a_kubelet_that_does_not_answer_changes_nothing(
    node: "KubeletOfNode", hints: NumaHints
):
    node.pod_resources.cpus = [0]
    await hints.read()
    await node.pod_resources.stop()
    await hints.read()
    assert hints.are_useful


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"gpu.deckhouse.io/other-pool", "ours.com/gpu"}, False),
        ({"example.com/nic"}, True),
        ({"cpu"}, True),
    ],
)
async def test_devices_of_our_own_pools_are_nothing_to_align_with(
    resources: set[str], *, want: bool
):
    class Kubelet:
        async def numa_resources(self) -> frozenset[str]:
            return frozenset(resources)

    hints = NumaHints(Kubelet(), is_of_a_pool="ours.com/gpu".__eq__)
    await hints.read()
    assert hints.are_useful is want


async def test_without_numa_nodes_a_policy_leaves_pods_their_devices(
    node: "KubeletOfNode", folder: "Path"
):
    """kubelet would take a device of NUMA node 0 for each of them."""
    node.aligns = True
    agent = Agent(node, folder, reports_numa_nodes=lambda: False)
    async with agent.running(numa_devices(0, 0, 1, 1)):
        for device in (3, 0, 2, 1):
            pod = a_bound_pod(f"p{device}", main={"main": 1}, assigned={"main": (f"GPU-{device}",)})
            assert await agent.admit(pod) == {"main": {f"GPU-{device}"}}
    assert agent.events == []
