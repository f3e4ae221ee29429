"""Pods that have one name, one after the other: each allocation is reported for the pod that has it."""

import asyncio

import pytest

from tests.component.agent.allocations.reporting_node import (
    ReportingNode,
    a_node_pod,
)

pytestmark = pytest.mark.looptime


async def test_an_answer_about_the_pod_before_of_this_name_is_not_believed(
    node: ReportingNode,
) -> None:
    """The watch shows the new pod while kubelet still speaks of the old one."""
    async with node.running():
        node.kubelet.give("web-0", main="G1")
        node.pods.upsert(a_node_pod("web-0", "old"))
        await asyncio.sleep(1)
        node.pods.discard(a_node_pod("web-0", "old"))
        node.pods.upsert(a_node_pod("web-0", "new"))
        await asyncio.sleep(0.5)
        assert await node.said() == {}
        node.kubelet.give("web-0", main="G2")
        await asyncio.sleep(3)
        assert await node.said() == {"new/main": "G2"}


async def test_of_two_pods_of_one_name_kubelet_is_asked_about_the_later_one(
    node: ReportingNode,
) -> None:
    """The first was deleted by force, and the watch has not said so yet."""
    async with node.running():
        node.pods.upsert(a_node_pod("web-0", "old"))
        node.pods.upsert(a_node_pod("web-0", "new"))
        node.kubelet.give("web-0", main="G2")
        await asyncio.sleep(30)
        assert await node.said() == {"new/main": "G2"}
        assert node.kubelet.counts() == {"web-0": 1}


async def test_a_pod_that_changes_while_kubelet_answers_is_asked_about_again(
    node: ReportingNode,
) -> None:
    def replaced() -> None:
        node.kubelet.in_between = None
        node.pods.discard(a_node_pod("web-0", "old"))
        node.pods.upsert(a_node_pod("web-0", "new"))
        node.kubelet.give("web-0", main="G2")

    async with node.running():
        node.kubelet.give("web-0", main="G1")
        node.kubelet.in_between = replaced
        node.pods.upsert(a_node_pod("web-0", "old"))
        await asyncio.sleep(0.5)
        assert await node.said() == {"new/main": "G2"}
