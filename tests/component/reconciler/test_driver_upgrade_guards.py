"""`driver.upgrade`: what must hold before a node takes pods again, or before a driver is unloaded."""

import asyncio

import pytest

from api.driver_upgrade import UPGRADE_RECORD_ANNOTATION, UPGRADE_STATE_LABEL
from kube.errors import NotFound, UnexpectedStatus
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from tests.component.reconciler.upgrade_run import (
    NAMESPACE,
    STEP_S,
    TEAM,
    an_upgrade_run,
    is_driver,
)

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
