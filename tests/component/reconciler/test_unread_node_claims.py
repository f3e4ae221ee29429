"""A NodeClaim, NodePool or signal that this version cannot read: what was asked for counts as on its way, and no second node is asked for."""

import asyncio

import pytest

from kube.unread_objects import UnreadObject
from tests.component.reconciler.scaling_run import POOL, a_scaling_run

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("kind", ["node_claims", "node_pools", "scale_signals"])
async def test_no_second_node_is_asked_for_beside_a_claim_that_cannot_be_read(kind: str):
    async with a_scaling_run() as run:
        await run.add_pods("a")
        await run.run_pass()
        (asked,) = await run.ids()
        await run.launch(asked)
        await run.run_pass()
        run.notes()
        run.start()
        for _ in range(4):
            await run.observe()
            getattr(run.stores, kind).replace_unread([UnreadObject("", "unread", "u")])
            run.stores.node_claims.replace_all([])
            await run.reconcile(POOL)
            await asyncio.sleep(60)
        assert await run.ids() == [asked]
        assert run.notes() == []
