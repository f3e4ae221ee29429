"""The rights of each backend of autoscaling: every request is allowed by them, and every one is used."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api.kinds.autoscaling import ScalingBackend
from manifests.install.server_policy import OwnObjects
from server.rbac import BACKEND_RULES, build_backend_roles
from tests.component.reconciler.scaling_run import POOL, TWO, ScalingRun, a_scaling_run
from tests.component.reconciler.test_karpenter_static import ALL, set_replicas
from tests.support.rights import Right, allows, asked_by, granted_by, our_rights

pytestmark = pytest.mark.looptime


async def asked(run: ScalingRun) -> set[Right]:
    """Plan once, and return what the process asked the API server for."""
    await run.observe()
    run.api.requests.clear()
    await run.reconcile(POOL)
    await asyncio.sleep(2.0)
    await run.reconcile(POOL)
    return {right for one in run.api.requests for right in asked_by(one)}


async def set_scaling(run: ScalingRun, backend: ScalingBackend, **more: Any) -> None:
    await run.set_spec(autoscaling={"backend": backend.value, "shapes": [TWO], **more})


async def native(run: ScalingRun) -> set[Right]:
    await set_scaling(run, ScalingBackend.KARPENTER_NATIVE)
    return await asked(run)


async def static(run: ScalingRun) -> set[Right]:
    await set_scaling(run, ScalingBackend.KARPENTER_STATIC)
    await set_replicas(run, 0)
    await run.add_pods("a")
    return await asked(run)


async def buffers(run: ScalingRun) -> set[Right]:
    found = set()
    for units in (3, 0):
        await set_scaling(run, ScalingBackend.CAPACITY_BUFFER, warmUnits=units)
        found |= await asked(run)
        await asyncio.sleep(20.0)
    return found


STORIES: dict[ScalingBackend, Callable[[ScalingRun], Awaitable[set[Right]]]] = {
    ScalingBackend.KARPENTER_NATIVE: native,
    ScalingBackend.KARPENTER_STATIC: static,
    ScalingBackend.CAPACITY_BUFFER: buffers,
}


@pytest.mark.parametrize("backend", BACKEND_RULES, ids=lambda one: one.value)
async def test_rights_of_a_backend_are_those_that_it_uses(backend: ScalingBackend):
    granted: set[Right] = set().union(
        *(
            granted_by(one)
            for one in build_backend_roles(OwnObjects(), backend)
            if one["kind"] in {"ClusterRole", "Role"}
        )
    )
    async with a_scaling_run() as run:
        run.start(autoscaling=ALL)
        found = await STORIES[backend](run)
    forbidden = {
        right for right in found if not any(allows(one, right) for one in granted | our_rights())
    }
    unused = {one for one in granted if not any(allows(one, right) for right in found)}
    assert (forbidden, unused) == (set(), set())
