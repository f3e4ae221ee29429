"""`driver.upgrade`: what must hold before a node takes pods again, or before a driver is unloaded."""

import pytest

from api.driver_upgrade import UPGRADE_STATE_LABEL
from kube.resources import NODES
from tests.component.reconciler.upgrade_run import an_upgrade_run

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
