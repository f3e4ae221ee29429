"""The validator's DaemonSet on a real kubelet: its steps pass one after the other, and a failure says its cause."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.environment import polling
from tests.cluster.node.daemonsets.test_daemonsets import OURS, agents, ready

if TYPE_CHECKING:
    from tests.cluster.node.stories.devices import NodeDevices
    from tests.cluster.node.stories.pools import Pools
    from tests.cluster.system.installation import GpuSystem

NAME = "gpu-node-validator"
VALIDATIONS = Path("/run/nvidia/validations")
INVENTORIES = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"
FILES = ["cuda-ready", "driver-ready", "plugin-ready", "toolkit-ready"]


def files() -> list[str]:
    return sorted(path.name for path in VALIDATIONS.iterdir()) if VALIDATIONS.exists() else []


async def test_a_node_is_validated_and_a_missing_driver_is_named(
    pools: "Pools", devices: "NodeDevices", installed_as_pods: "GpuSystem"
):
    """The server applies it by default."""
    first = await ready(pools, NAME)
    assert files() == FILES
    text = (VALIDATIONS / "driver-ready").read_text(encoding="utf-8")
    assert "NVIDIA_DRIVER_ROOT=/run/nvidia/driver" in text

    async def is_visible() -> bool:
        current = await operand(pools)
        return bool(current.get("ready"))

    await polling.eventually(is_visible, what="the operand is shown")

    devices.driver.unload_driver()
    try:
        (pod,) = await agents(pools, NAME)
        await pools.api.delete(f"{OURS}/{pod['metadata']['name']}")

        async def is_explained() -> bool:
            current = await operand(pools)
            assert "init container driver-validation has not succeeded" in current.get(
                "message", ""
            )
            return "NVML: Driver Not Loaded" in current["message"]

        await polling.eventually(is_explained, what="the cause is shown", within=120)
        assert files() == []
    finally:
        devices.driver.restart_driver()
    await ready(pools, NAME, other_than=first)
    assert files() == FILES


async def operand(pools: "Pools") -> dict[str, Any]:
    status = await pools.api.status(f"{INVENTORIES}/{pools.node.name}")
    found = [item for item in status.get("operands", []) if item["name"] == "validator"]
    assert found, f"no validator in {status}"
    current: dict[str, Any] = found[0]
    return current
