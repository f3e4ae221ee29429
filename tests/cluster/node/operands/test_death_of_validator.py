"""A validator that is killed in any of its steps: its files are right, and the node becomes valid again."""

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.environment import polling
from tests.cluster.node.environment import paths
from tests.cluster.node.operands.operand_pods import PODS, OperandPods, container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices

    Json = dict[str, Any]

VALIDATIONS = Path("/run/nvidia/validations")
FILES = ["cuda-ready", "driver-ready", "plugin-ready", "toolkit-ready"]
SPECIFICATION = "gpu.deckhouse.io-gpu.json"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


def files() -> list[str]:
    return sorted(path.name for path in VALIDATIONS.iterdir()) if VALIDATIONS.exists() else []


@contextlib.contextmanager
def every_step_fails(devices: "NodeDevices") -> "Iterator[dict[str, Callable[[], None]]]":
    """Let each step fail; yields what mends each, in the order of the steps."""
    specification = paths.USUAL_CDI / SPECIFICATION
    # No runtime resolves a device that two files of one directory have.
    double = specification.with_name(f"double-{specification.name}")
    shutil.copy2(specification, double)
    devices.driver.fail("cuInit", NO_DEVICE, times=-1)
    devices.driver.unload_driver()
    try:
        yield {
            "driver": devices.driver.restart_driver,
            "toolkit": double.unlink,
            "cuda": devices.driver.heal,
        }
    finally:
        double.unlink(missing_ok=True)
        devices.driver.heal()
        devices.driver.restart_driver()


async def test_a_validator_that_is_killed_in_any_step_starts_with_it_again(
    operands: OperandPods,
    node: "RealNode",
    devices: "NodeDevices",
):
    pod = await operands.ready("validator")
    assert files() == FILES
    with every_step_fails(devices) as mends:
        await operands.api.delete(f"{PODS}/{pod['metadata']['name']}")
        pod = await operands.the("validator", other_than=pod["metadata"]["uid"])
        passed: list[str] = []
        for step, mend in mends.items():
            pod = await killed_and_running(operands, node, pod, f"{step}-validation")
            assert files() == passed
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            await operands.api.delete(f"{PODS}/{name}")
            pod = await operands.the("validator", other_than=uid)
            pod = await running(operands, pod, f"{step}-validation")
            assert files() == passed
            mend()
            passed = sorted([*passed, f"{step}-ready"])
    pod = await operands.ready("validator")
    assert files() == FILES

    # While it watches the units of the pools.
    pod = await killed_and_running(operands, node, pod, "validator")
    ready = await operands.ready("validator")
    assert ready["metadata"]["uid"] == pod["metadata"]["uid"]
    assert files() == FILES


async def running(
    operands: OperandPods, pod: "Json", name: str, *, restarts: int | None = None
) -> "Json":
    """Wait until a container of the pod runs, after so many restarts if given; return the pod."""

    async def is_running() -> "Json":
        found = await operands.api.get(f"{PODS}/{pod['metadata']['name']}")
        current = container(found, name)
        assert current.get("state", {}).get("running"), f"{current}"
        assert restarts is None or current["restartCount"] >= restarts, f"{current}"
        return found

    return await polling.eventually(is_running, what=f"{name} runs")


async def killed_and_running(
    operands: OperandPods, node: "RealNode", pod: "Json", name: str
) -> "Json":
    """Kill a container of the pod once it runs; return the pod when it runs again."""
    current = container(await running(operands, pod, name), name)
    identity = current["containerID"].removeprefix("containerd://")
    await node.containerd.ctr("tasks", "kill", "--signal", "SIGKILL", identity)
    return await running(operands, pod, name, restarts=current["restartCount"] + 1)
