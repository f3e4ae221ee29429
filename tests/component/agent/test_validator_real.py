"""The steps `driver` and `cuda` on a real device, where the machine has one: nothing on it is changed."""

from pathlib import Path

import pytest

from agent.validator.checked_node import CheckedNode
from agent.validator.cuda_check import CudaCheck
from agent.validator.driver_check import DriverCheck
from http_edge.system_clock import SystemClock
from tests.support.validated_node import text_of


@pytest.fixture
def node(driver_library: Path) -> CheckedNode:
    return CheckedNode()


async def test_the_driver_passes(node: CheckedNode):
    assert text_of(await DriverCheck(node, SystemClock()).run()).startswith("driver ")


async def test_memory_of_every_idle_device_is_copied_to_and_from(node: CheckedNode):
    if node.cuda_library() is None:
        pytest.skip("this machine has NVIDIA's driver without libcuda")
    assert text_of(await CudaCheck(node, SystemClock()).run()).startswith("copied on ")
