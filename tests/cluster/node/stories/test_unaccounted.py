"""Processes on devices that kubelet did not give to their pods, found by the cgroups of a real container runtime."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from agent.kubelet.pod_processes import pods_of_processes
from tests.cluster.environment import polling
from tests.cluster.system.objects import PREFIX, units_of

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject
    from tests.cluster.node.stories.agents import Agent
    from tests.cluster.node.stories.pools import Pools


def process_of(pod: "JsonObject") -> int:
    """Return a process of a running pod."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    owners = pods_of_processes(pids)
    return next(pid for pid, uid in owners.items() if uid == pod["metadata"]["uid"])


async def unaccounted(agent: "Agent") -> dict[tuple[str, str, str], float]:
    """Return device, pool and pod -> processes."""
    page = await agent.device_metrics()
    return {
        (sample.labels["UUID"], sample.labels["pool"], sample.labels["pod"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "gpu_process_unaccounted"
    }


async def test_process_of_a_pod_without_the_device_is_counted_and_its_pod_is_told(
    pools: "Pools", agent: "Agent", whole: str
):
    holder = await pools.run(pools.a_pod("holder", whole))
    thief = await pools.run(pools.node.a_pod("thief", ["sleep", "100000"]))
    await pools.reported(holder)
    (device,) = units_of(holder)
    other = next(uuid for uuid in pools.devices.uuids[:8] if uuid != device)
    pool = whole.removeprefix(PREFIX)
    driver = pools.devices.driver
    try:
        driver.run_process(device, await asyncio.to_thread(process_of, holder))
        driver.run_process(device, await asyncio.to_thread(process_of, thief))
        driver.run_process(other, os.getpid())

        async def are_counted() -> bool:
            found = await unaccounted(agent)
            assert found == {(device, pool, "thief"): 1, (other, pool, ""): 1}, f"{found}"
            return True

        await polling.eventually(are_counted, what="unaccounted processes", every=1)
        note = await pools.recorded("GPUProcessUnaccounted", "thief")
        assert f"device {device} of pool {pool}" in note
    finally:
        for uuid in (device, other):
            driver.end_processes(uuid)
