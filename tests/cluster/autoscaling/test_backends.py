"""The other backends of Karpenter, unmodified, with its feature gates NodeOverlay, CapacityBuffer and StaticCapacity.

NodePools and NodeOverlays are those that `render nodepool` prints, and the server's rights those that `render rbac`
prints for these backends.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from api.kinds.autoscaling import ScalingBackend
from tests.cluster.autoscaling.real_cluster import NODE_CLASS
from tests.cluster.environment import binaries, karpenter
from tests.cluster.environment.server_process import with_image
from tests.support.scaling_stories import POOL_LABEL, ScalingPool, Sight, shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.cluster.autoscaling.real_cluster import RealScalingCluster
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.system.installation import GpuSystem

BACKENDS = [
    ScalingBackend.KARPENTER_NATIVE,
    ScalingBackend.CAPACITY_BUFFER,
    ScalingBackend.KARPENTER_STATIC,
]

STATIC_WITHIN_S = 180.0
"""For an empty static node to go: `idleAfter` of 30 s is looked at once a minute, and Karpenter drains the node."""

MakePool = Callable[..., Awaitable[ScalingPool]]


@pytest.fixture(scope="module")
def system(
    installed: "GpuSystem", kubectl: "Kubectl", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[GpuSystem]":
    """Our system with these backends, and the rights that go with them; both are withdrawn after the module."""
    settings = tmp_path_factory.mktemp("backends") / "settings.yaml"
    backends = [ScalingBackend.KARPENTER_SIGNAL.value, *(one.value for one in BACKENDS)]

    async def rights(named: list[str]) -> list[dict[str, Any]]:
        settings.write_text(
            yaml.safe_dump(with_image({"autoscaling": {"backends": named}})), encoding="utf-8"
        )
        found = yaml.safe_load_all(await installed.render("rbac", "--settings", str(settings)))
        return [one for one in found if one]

    async def enable() -> str:
        before, after = await rights(backends[:1]), await rights(backends)
        added = yaml.safe_dump_all([one for one in after if one not in before])
        await kubectl("apply", "--validate=strict", "-f", "-", stdin=added)
        await installed.reconfigure(autoscaling={"backends": backends})
        return added

    async def disable(added: str) -> None:
        await installed.check_rights()
        await installed.reconfigure(autoscaling={"backends": backends[:1]})
        await kubectl("delete", "-f", "-", stdin=added)

    added = asyncio.run(enable())
    yield installed
    asyncio.run(disable(added))


@pytest.fixture
async def make_pool(
    system: "GpuSystem", scaling_cluster: "RealScalingCluster", kubectl: "Kubectl", tmp_path: "Path"
) -> "AsyncIterator[MakePool]":
    """`await make_pool(name, backend, shapes, …)`: a pool, with what `render nodepool` prints for it.

    `without` is a kind of which nothing is applied; further arguments are fields of spec.autoscaling.
    """
    printed: list[str] = []

    async def make(
        name: str,
        backend: ScalingBackend,
        shapes: list[dict[str, Any]],
        *,
        without: str = "",
        **more: Any,
    ) -> ScalingPool:
        taint = {"key": f"pool.gpu.deckhouse.io/{name}", "effect": "NoSchedule"}
        spec = {"shapes": shapes, "backend": backend.value, "idleAfter": "30s", **more}
        body = {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUPool",
            "metadata": {"name": name},
            "spec": {
                "assignment": {"requireAnnotation": False},
                "nodeSelector": {"matchLabels": {POOL_LABEL: name}},
                "scheduling": {"taints": [taint]},
                "autoscaling": spec,
            },
        }
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(body), encoding="utf-8")
        node_class = "/".join((*karpenter.NODE_CLASS_KIND.values(), NODE_CLASS))
        options = ("--pool-file", str(file), "--node-class", node_class)
        objects = yaml.safe_load_all(await system.render("nodepool", *options))
        printed.append(yaml.safe_dump_all([one for one in objects if one["kind"] != without]))
        await kubectl("apply", "--validate=strict", "-f", "-", stdin=printed[-1])
        await kubectl("apply", "--validate=strict", "-f", str(file))
        return ScalingPool(scaling_cluster, name, node_pools=[name])

    yield make
    for one in printed:
        await kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=one)


async def uses(pool: ScalingPool, backend: ScalingBackend) -> None:
    """Wait until the pool's backend is in use, and its NodePools are found right."""

    def is_used(sight: Sight) -> bool:
        return (
            sight.scaling.backend is backend
            and sight.has_condition("BackendReady", "True")
            and sight.has_condition("NodePoolValid", "True")
        )

    await pool.until(f"backend {backend.value} is in use", is_used)


async def karpenter_adds_nodes_for_waiting_pods_itself(make_pool: MakePool) -> None:
    """Six pods of a device on nodes of four: two NodeClaims of Karpenter's own, and no signal."""
    pool = await make_pool("native", ScalingBackend.KARPENTER_NATIVE, [shape("four", 4, "gpu-4x")])
    await uses(pool, ScalingBackend.KARPENTER_NATIVE)
    names = await pool.create_pods(6)
    assert (await pool.sight()).gated == []
    sight = await pool.until_bound(*names)
    assert len(sight.claims) == 2
    assert await pool.events("GPUNodeRequested") == []
    await pool.until("no startup taint is left", lambda seen: not seen.with_startup_taint)
    await pool.consolidate(pool.name, "0s")
    await pool.ends_clean()


async def without_an_overlay_pods_get_their_nodes_by_signals(make_pool: MakePool) -> None:
    pool = await make_pool(
        "lesser",
        ScalingBackend.KARPENTER_NATIVE,
        [shape("one", 1, "gpu-1x")],
        without="NodeOverlay",
    )
    sight = await pool.until(
        "another backend is in use",
        lambda seen: seen.scaling.backend is ScalingBackend.KARPENTER_SIGNAL,
    )
    (condition,) = [one for one in sight.scaling.conditions or () if one.type == "BackendReady"]
    assert (condition.status, condition.reason) == ("False", "NodeOverlayNotReady")
    await pool.create_pod("lesser-a")
    await pool.until_bound("lesser-a")
    await pool.until_told("GPUNodeRequested")
    await pool.consolidate(pool.name, "0s")
    await pool.ends_clean()


async def a_capacity_buffer_keeps_warm_units(make_pool: MakePool) -> None:
    """A pod takes the warm node at once, and the next one comes; all go when none is needed."""
    pool = await make_pool(
        "buffer", ScalingBackend.CAPACITY_BUFFER, [shape("one", 1, "gpu-1x")], warmUnits=1
    )
    await uses(pool, ScalingBackend.CAPACITY_BUFFER)
    sight = await pool.until(
        "a unit is free",
        lambda seen: seen.pool.status.capacity.available == 1 and not seen.with_startup_taint,
    )
    assert len(sight.claims) == 1
    await pool.create_pod("buffer-a")
    assert (await pool.sight()).gated == []
    await pool.until_bound("buffer-a")
    sight = await pool.until(
        "another one is free",
        lambda seen: (seen.units, seen.pool.status.capacity.available) == (2, 1),
    )
    assert len(sight.claims) == 2
    assert await pool.events("GPUNodeRequested") == []
    await pool.patch({"spec": {"autoscaling": {"warmUnits": 0}}})
    await pool.consolidate(pool.name, "0s")
    await pool.ends_clean()


async def replicas_of_a_static_node_pool_follow_its_pods(make_pool: MakePool) -> None:
    """Three pods of a device on nodes of two: two replicas, of which one goes when its pods have ended."""
    pool = await make_pool("static", ScalingBackend.KARPENTER_STATIC, [shape("two", 2, "gpu-2x")])
    await uses(pool, ScalingBackend.KARPENTER_STATIC)
    names = await pool.create_pods(3)
    sight = await pool.until_bound(*names)
    assert len(sight.claims) == 2
    nodes = [sight.pods[name].spec.node_name for name in names]
    (alone,) = [name for name, node in zip(names, nodes, strict=True) if nodes.count(node) == 1]
    await pool.delete_pods(alone)
    sight = await pool.until(
        "the empty node goes", lambda seen: len(seen.nodes) == 1, within_s=STATIC_WITHIN_S
    )
    assert {pod.spec.node_name for pod in sight.pods.values()} == {sight.nodes[0].metadata.name}
    await pool.ends_clean(within_s=STATIC_WITHIN_S)


STORIES = (
    karpenter_adds_nodes_for_waiting_pods_itself,
    without_an_overlay_pods_get_their_nodes_by_signals,
    a_capacity_buffer_keeps_warm_units,
    replicas_of_a_static_node_pool_follow_its_pods,
)


async def test_nodes_come_and_go_by_each_backend(make_pool: MakePool):
    """Side by side: most of the time goes to Karpenter's."""
    async with asyncio.TaskGroup() as group:
        for story in STORIES:
            group.create_task(story(make_pool), name=story.__name__)


NO_GATES = karpenter.GATES.replace("true", "false")


@pytest.fixture
def without_gates(
    control_plane: "ControlPlane",
    karpenter_process: karpenter.Karpenter,
    progress: Callable[[str], None],
) -> "Callable[[], AbstractAsyncContextManager[None]]":
    """`async with without_gates():` Karpenter has none of its feature gates, and has them again after it."""

    @asynccontextmanager
    async def replaced() -> "AsyncIterator[None]":
        program, _ = binaries.find_karpenter(progress)
        other = karpenter.Karpenter(
            control_plane, program, name="karpenter-no-gates", gates=NO_GATES
        )
        await karpenter_process.stop()
        try:
            await other.start()
            yield
        finally:
            other.process.kill9()
            await karpenter_process.start()

    return replaced


def says(reason: str) -> Callable[[Sight], bool]:
    """Return whether BackendReady has this reason."""
    return lambda seen: any(
        (one.type, one.reason) == ("BackendReady", reason) for one in seen.scaling.conditions or ()
    )


async def test_gates_that_are_off_are_reported_and_found_on_again(
    make_pool: MakePool, without_gates: "Callable[[], AbstractAsyncContextManager[None]]"
):
    """Karpenter says of neither that its gate is off. Signals give the warm unit, which the buffer asks for no more."""
    async with without_gates():
        buffer = await make_pool(
            "ungated", ScalingBackend.CAPACITY_BUFFER, [shape("one", 1, "gpu-1x")], warmUnits=1
        )
        static = await make_pool(
            "constant", ScalingBackend.KARPENTER_STATIC, [shape("two", 2, "gpu-2x")]
        )
        (name,) = await static.create_pods(1)
        await buffer.until(
            "the buffer is not served", says("CapacityBuffersNotServed"), within_s=180
        )
        await static.until("replicas are not served", says("StaticCapacityNotServed"), within_s=180)
        assert (await static.sight()).claims == ()
        sight = await buffer.until(
            "a unit is free", lambda seen: seen.pool.status.capacity.available == 1
        )
        assert len(sight.claims) == 1
        assert await buffer.events("GPUScalingMisconfigured") != []
    await buffer.until("the buffer is served", says("Ready"), within_s=180)
    await static.until_bound(name)
    await static.until("replicas are served", says("Ready"))
    sight = await buffer.sight()
    assert (len(sight.claims), sight.pool.status.capacity.available) == (1, 1)
    await static.delete_pods(name)
    await buffer.patch({"spec": {"autoscaling": {"warmUnits": 0}}})
    await buffer.consolidate(buffer.name, "0s")
    async with asyncio.TaskGroup() as group:
        group.create_task(buffer.ends_clean())
        group.create_task(static.ends_clean(within_s=STATIC_WITHIN_S))
