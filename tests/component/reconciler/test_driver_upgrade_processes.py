"""`driver.upgrade`: what node agents find with the driver open keeps it, whatever a pod requests (gpu-operator#2570)."""

import asyncio

import pytest

from api.kinds.gpunodeinventory import DriverProcess
from tests.component.reconciler.upgrade_run import UpgradeRun, an_upgrade_run
from tests.component.reconciler.upgraded_nodes import NAMESPACE, TEAM

pytestmark = pytest.mark.looptime
CPU = "cpu"


async def the_pod(run: UpgradeRun, name: str) -> DriverProcess:
    (uid,) = [
        item["metadata"]["uid"] for item in await run.pods(TEAM) if item["metadata"]["name"] == name
    ]
    return DriverProcess(command="python3", namespace=TEAM, pod=name, uid=uid)


async def test_pod_without_a_device_that_has_the_driver_open_leaves_first():
    async with an_upgrade_run() as run:
        user, idle = [await run.add_pod("n0", resource=CPU) for _ in range(2)]
        run.found["n0"] = [await the_pod(run, user)]
        await run.roll_out(2)
        await run.until("pod-deletion-required")
        await run.step()
        staying = [
            pod for pod in await run.pods(TEAM) if "deletionTimestamp" not in pod["metadata"]
        ]
        assert [item["metadata"]["name"] for item in staying] == [idle]
        assert run.reports.by_node()["n0"].message == f"evicts {TEAM}/{user}"


async def test_driver_stays_until_processes_of_a_pod_that_is_gone_have_ended():
    async with an_upgrade_run() as run:
        name = await run.add_pod("n0", resource=CPU)
        run.found["n0"] = [await the_pod(run, name)]
        await run.roll_out(2)
        await run.until("pod-deletion-required")
        for _ in range(10):
            await run.step()
        entry = run.reports.by_node()["n0"]
        assert await run.pods(TEAM) == []
        assert (entry.state, entry.reason) == ("pod-deletion-required", "PodsTerminating")
        assert f"{TEAM}/{name}" in entry.message
        assert await run.driver_revisions() == {"n0": "r1"}
        run.found.clear()
        await run.until("upgrade-done")
        assert await run.driver_revisions() == {"n0": "r2"}


async def test_process_in_no_pod_is_named_and_keeps_the_driver_until_it_ends():
    async with an_upgrade_run() as run:
        run.found["n0"] = [DriverProcess(command="nvtop", pid=70)]
        await run.roll_out(2)
        await run.until("upgrade-failed")
        await run.run_pass()
        entry = run.reports.by_node()["n0"]
        assert entry.reason == "DriverHeld"
        assert "process 70 (nvtop), in no pod: stop it on the node" in entry.message
        assert await run.driver_revisions() == {"n0": "r1"}
        assert await run.marks("n0") == set(), "the old driver serves"
        run.found.clear()
        await asyncio.sleep(600)
        await run.until("upgrade-done")
        assert await run.driver_revisions() == {"n0": "r2"}


async def test_process_that_comes_once_the_pods_are_gone_keeps_the_agent_and_the_driver():
    async with an_upgrade_run() as run:
        await run.roll_out(2)
        await run.until("pod-restart-required")
        run.found["n0"] = [DriverProcess(command="nvidia-smi")]
        await run.until("upgrade-failed")
        assert await run.driver_revisions() == {"n0": "r1"}
        assert any("agent" in pod["metadata"]["name"] for pod in await run.pods(NAMESPACE))


async def test_pod_of_a_daemon_set_without_a_deploy_label_is_named():
    async with an_upgrade_run() as run:
        name = await run.add_pod("n0", owner="DaemonSet", resource=CPU)
        run.found["n0"] = [await the_pod(run, name)]
        await run.roll_out(2)
        await run.until("upgrade-failed")
        await run.run_pass()
        cause = f"{TEAM}/{name}, of a DaemonSet without a deploy label"
        assert cause in run.reports.by_node()["n0"].message
        assert len(await run.pods(TEAM)) == 1
        assert await run.driver_revisions() == {"n0": "r1"}


async def test_nodes_on_which_nothing_is_found_go_first():
    async with an_upgrade_run(2, maxParallelUpgrades=1) as run:
        run.found["n0"] = [DriverProcess(command="nvtop", pid=70)]
        await run.roll_out(2)
        await run.until("cordon-required", node="n1")
        assert (await run.states())["n0"] == "upgrade-required"
