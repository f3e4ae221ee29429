"""`driver.upgrade`: what must hold before a node takes pods again, or before a driver is unloaded."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from api.driver_upgrade import UPGRADE_RECORD_ANNOTATION, UPGRADE_STATE_LABEL
from api.foreign.core import Taint
from kube.errors import NotFound, UnexpectedStatus
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from tests.component.reconciler.upgrade_run import UpgradeRun, an_upgrade_run
from tests.component.reconciler.upgraded_nodes import NAMESPACE, STEP_S, TEAM, Json, is_driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("label", ["", "upgrade-done"])
async def test_node_whose_agent_is_not_ready_stays_out_of_service(label: str):
    """Its validation ends in vain; the state that is left is then also changed by hand."""
    async with an_upgrade_run(1) as run:
        run.agentless.add("n0")
        await run.roll_out(2)
        await run.step()
        await run.until("upgrade-failed")
        for _ in range(3):
            await run.step()
        if label:
            patch = {"metadata": {"labels": {UPGRADE_STATE_LABEL: label}}}
            await run.client.merge_patch(NODES, patch, name="n0")
            await run.step()
        assert await run.states() == {"n0": "upgrade-failed"}
        assert {"cordoned", "withheld"} <= await run.marks("n0")
        run.agentless.clear()
        await run.until("upgrade-done")
        assert await run.marks("n0") == set()


@pytest.mark.parametrize("has_failed", [False, True])
async def test_node_whose_agent_has_no_pod_yet_stays_out_of_service(has_failed: bool):
    """The DaemonSet's controller is slow, or a quota or a webhook refuses its pod."""
    async with an_upgrade_run(1) as run:
        run.unstaffed.add("n0")
        await run.roll_out(2)
        await run.step()
        await run.until("upgrade-failed" if has_failed else "validation-required")
        for _ in range(10):
            await run.step()
        assert await run.states() != {"n0": "upgrade-done"}
        assert {"cordoned", "withheld"} <= await run.marks("n0")
        text = (await run.node("n0"))["metadata"]["annotations"][UPGRADE_RECORD_ANNOTATION]
        assert not has_failed or "node agent DaemonSet agent is not ready" in text
        run.unstaffed.clear()
        await run.until("upgrade-done")
        assert await run.marks("n0") == set()


@pytest.mark.parametrize("has_user", [True, False])
async def test_pods_leave_before_a_driver_of_another_configuration_follows_one_that_only_restarts(
    has_user: bool,
):
    """The revision with that configuration comes while the driver pod of the one before ends: nothing has left yet."""
    async with an_upgrade_run(1) as run:
        if has_user:
            await run.add_pod("n0")
        await run.roll_out(2, digest="d1")
        while not any(
            pod["metadata"].get("deletionTimestamp")
            for pod in await run.pods(NAMESPACE)
            if is_driver(pod)
        ):
            await asyncio.sleep(STEP_S)
            await run.run_pass()
        await run.roll_out(3, digest="d3")
        await asyncio.sleep(STEP_S)
        await run.run_pass()
        assert "nvidia.com/gpu.deploy.driver" in await run.marks("n0")
        await run.until(
            "upgrade-done"
        )  # fails where the driver is unloaded while something holds it
        assert await run.driver_revisions() == {"n0": "r3"}
        assert await run.pods(TEAM) == []
        assert await run.marks("n0") == set()


TAINT = {"key": "pool.gpu.deckhouse.io/elastic", "effect": "NoSchedule"}
TOLERATED = {"tolerations": [{"operator": "Exists"}]}


async def taint(run: UpgradeRun) -> Json:
    await run.client.merge_patch(NODES, {"spec": {"taints": [TAINT]}}, name="n0")
    return TOLERATED


async def taint_of_a_pool(run: UpgradeRun) -> Json:
    run.pool_taints = [Taint(**TAINT)]
    return TOLERATED


async def no_label(run: UpgradeRun) -> Json:
    run.driver_spec = {"nodeSelector": {"zone": "b"}}
    return {}


async def no_capacity(run: UpgradeRun) -> Json:
    """A DaemonSet of others takes what the new driver pod requests more than the old one."""
    status = {"allocatable": {"cpu": "2"}}
    await run.client.merge_patch(NODES, {"status": status}, name="n0", subresource="status")
    await run.add_pod("n0", owner="DaemonSet", resource="cpu", app="other")
    run.driver_spec = {"resources": {"requests": {"cpu": "1500m"}}}
    return {}


@pytest.mark.parametrize(
    ("obstacle", "name"),
    [
        (taint, "taint pool.gpu.deckhouse.io/elastic:NoSchedule"),
        (taint_of_a_pool, "taint pool.gpu.deckhouse.io/elastic:NoSchedule"),
        (no_label, "for driver the node has not label zone=b"),
        (no_capacity, "its pod requests 1500m of cpu, and DaemonSets and static pods leave 1000m"),
    ],
)
async def test_a_node_keeps_its_driver_as_long_as_another_one_would_not_come(
    obstacle: "Callable[[UpgradeRun], Awaitable[Json]]", name: str
):
    async with an_upgrade_run(1) as run:
        await run.serve_policy()
        run.policy()
        user = await run.add_pod("n0")
        cure = await obstacle(run)
        await run.roll_out(2)
        for _ in range(10):
            await run.step()
        assert (await run.states(), await run.marks("n0")) == ({"n0": "upgrade-required"}, set())
        assert await run.driver_revisions() == {"n0": "r1"}
        assert user in {pod["metadata"]["name"] for pod in await run.pods(TEAM)}
        (entry,) = run.reports.entries()
        assert entry.reason == "DriverKeptAway"
        assert name in entry.message
        assert sum(name in event.note for event in run.recorder.taken()) == 1
        run.driver_spec, run.pool_taints = cure, []
        await run.roll_out(3)
        await run.until("upgrade-done")
        assert await run.driver_revisions() == {"n0": "r3"}


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_pod_without_devices_that_ends_with_a_cache_mounted_does_not_stay(is_broken: bool):
    """kubelet cannot unmount its cache while the agent is away: until the new driver is ready, or has failed."""
    async with an_upgrade_run(1) as run:
        pod = await run.add_pod("n0", resource="cpu", has_cache=True, app="other")
        run.broken = {"n0"} if is_broken else set()
        await run.roll_out(2)
        while "RestartingDriver" not in [entry.reason for entry in run.reports.entries()]:
            await run.step()
        await run.client.delete(PODS, pod, namespace=TEAM)
        await run.step()
        assert len(await run.pods(TEAM)) == 1
        await run.until("upgrade-failed" if is_broken else "validation-required")
        for _ in range(4):
            await run.step()
        assert await run.pods(TEAM) == []
        run.broken.clear()
        await run.until("upgrade-done")
        assert await run.marks("n0") == set()


async def test_a_taint_that_comes_in_the_middle_is_named_where_the_driver_pod_is_missed():
    async with an_upgrade_run(1) as run:
        await run.roll_out(2)
        while "RestartingDriver" not in [entry.reason for entry in run.reports.entries()]:
            await run.step()
        await taint(run)
        await run.step()
        (entry,) = run.reports.entries()
        assert (entry.state, entry.reason) == ("pod-restart-required", "NoDriverPod")
        assert f"{TAINT['key']}:NoSchedule" in entry.message
        await run.until("upgrade-failed")
        (entry,) = run.reports.entries()
        assert entry.reason == "DriverRestartTimedOut"
        assert f"{TAINT['key']}:NoSchedule" in entry.message
        await run.client.merge_patch(NODES, {"spec": {"taints": None}}, name="n0")
        await run.until("upgrade-done")
        assert await run.marks("n0") == set()


@pytest.mark.parametrize("path", ["/resourceclaims/", "/nodes/n0$"])
async def test_a_404_that_names_no_object_ends_the_pass(path: str):
    """A proxy answers so; a claim or a node that is taken for absent would have its driver unloaded, or be forgotten."""
    async with an_upgrade_run(1) as run:
        await run.serve_claims()
        await run.add_claiming_pod("n0", driver="gpu.nvidia.com")
        await run.roll_out(2)
        await run.step()
        labels = dict.fromkeys((await run.node("n0"))["metadata"]["labels"])
        if path == "/nodes/n0$":
            await run.client.merge_patch(NODES, {"metadata": {"labels": labels}}, name="n0")
        run.api.faults.fail("GET", path, 404, times=100)
        with pytest.raises(UnexpectedStatus):
            await run.until("upgrade-failed", steps=5)
        assert await run.driver_revisions() == {"n0": "r1"}


async def test_a_claim_of_a_kind_that_is_not_served_in_this_version_ends_the_pass():
    async with an_upgrade_run(1) as run:
        await run.serve_claims()
        await run.add_claiming_pod("n0", driver="gpu.nvidia.com")
        await run.client.delete(CUSTOM_RESOURCE_DEFINITIONS, "resourceclaims.resource.k8s.io")
        await run.roll_out(2)
        with pytest.raises(NotFound):
            await run.until("upgrade-failed", steps=5)
        assert await run.driver_revisions() == {"n0": "r1"}


async def test_pods_stay_where_the_revision_that_follows_has_the_same_configuration():
    async with an_upgrade_run(1) as run:
        pod = await run.add_pod("n0")
        await run.roll_out(2, digest="d1")
        await run.step()
        await run.until("pod-restart-required")
        await run.run_pass()
        await run.roll_out(3, digest="d1")
        await run.step()
        await run.until("upgrade-done")
        assert await run.driver_revisions() == {"n0": "r3"}
        assert [item["metadata"]["name"] for item in await run.pods(TEAM)] == [pod]


async def test_a_node_whose_clock_is_behind_gets_its_driver_and_loses_one_validator_at_most():
    async with an_upgrade_run(1) as run:
        run.kubelet_lag_s = 300.0
        await run.roll_out(2, digest="d1")
        await run.step()
        seen: set[str] = set()
        for _ in range(40):
            await run.step()
            names = {pod["metadata"]["name"] for pod in await run.pods(NAMESPACE)}
            seen |= {name for name in names if name.startswith("validator")}
        assert await run.states() == {"n0": "upgrade-done"}
        assert len(seen) <= 2
