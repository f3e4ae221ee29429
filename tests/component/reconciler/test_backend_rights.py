"""The rights of the removed backends of autoscaling: every request is allowed by them, and every one is used."""

from collections.abc import Awaitable, Callable

import pytest

from api.kinds.autoscaling import ScalingBackend
from api.names import SCALING_POOL_LABEL
from kube.resources import CAPACITY_BUFFERS, NODE_POOLS
from manifests.constants import DEFAULT_NAMESPACE
from manifests.install.server_policy import OwnObjects
from reconciler.scaling.removed_backends import NO_POOL, SPEC
from server.rbac import BACKEND_RULES, build_backend_roles
from tests.component.reconciler.scaling_run import ALL, POOL, TWO, ScalingRun, a_scaling_run
from tests.support.rights import Right, allows, asked_by, granted_by, our_rights

pytestmark = pytest.mark.looptime


async def asked(run: ScalingRun, key: str) -> set[Right]:
    """Clean up once, and return what the process asked the API server for."""
    await run.observe()
    run.api.requests.clear()
    await SPEC.build(run.context)(key)
    return {right for request in run.api.requests for right in asked_by(request)}


async def static(run: ScalingRun) -> set[Right]:
    await run.set_spec(autoscaling={"backend": "karpenter-static", "shapes": [TWO]})
    await run.admin.merge_patch(NODE_POOLS, {"spec": {"replicas": 1}}, name=POOL)
    return await asked(run, POOL)


async def buffers(run: ScalingRun) -> set[Right]:
    body = {
        "apiVersion": CAPACITY_BUFFERS.api_version,
        "kind": CAPACITY_BUFFERS.kind,
        "metadata": {
            "name": "scale-a",
            "namespace": DEFAULT_NAMESPACE,
            "labels": {SCALING_POOL_LABEL: POOL},
        },
        "spec": {"replicas": 1},
    }
    await run.admin.create(CAPACITY_BUFFERS, body)
    return await asked(run, NO_POOL)


STORIES: dict[ScalingBackend, Callable[[ScalingRun], Awaitable[set[Right]]]] = {
    ScalingBackend.KARPENTER_STATIC: static,
    ScalingBackend.CAPACITY_BUFFER: buffers,
}


@pytest.mark.parametrize("backend", BACKEND_RULES, ids=lambda item: item.value)
async def test_rights_of_a_backend_are_those_that_it_uses(backend: ScalingBackend):
    granted: set[Right] = set().union(
        *(
            granted_by(role)
            for role in build_backend_roles(OwnObjects(), backend)
            if role["kind"] in {"ClusterRole", "Role"}
        )
    )
    async with a_scaling_run() as run:
        run.start(scaling_backends=ALL)
        found = await STORIES[backend](run)
    forbidden = {
        right for right in found if not any(allows(item, right) for item in granted | our_rights())
    }
    unused = {item for item in granted if not any(allows(item, right) for right in found)}
    assert (forbidden, unused) == (set(), set())
