"""Stories of nodes that do not come as asked for, of processes that end, and of nodes that go."""

import asyncio
import functools
from collections.abc import Callable
from typing import Final

from api.foreign.core import Pod
from api.foreign.karpenter import REGISTERED_LABEL
from api.names import SCALE_REQUEST_LABEL
from kube.resources import NODE_CLAIMS, NODE_POOLS, NODES, PODS
from manifests import constants
from tests.support.scaling_stories import (
    Json,
    Measurement,
    ScalingCluster,
    ScalingPool,
    Story,
    insist,
    shape,
)


def is_registered(measured: Measurement) -> bool:
    """Say whether Karpenter has registered a node: it leaves an instance alone that it never did."""
    return any(node.metadata.label(REGISTERED_LABEL) for node in measured.nodes)


async def no_capacity_for_the_first_shape(cluster: ScalingCluster) -> None:
    """The first shape fails for lack of capacity: the next one is asked for at once."""
    pool = ScalingPool(cluster, "scarce")
    scarce = await pool.create_node_pool("scarce", "gpu-1x")
    plenty = await pool.create_node_pool("plenty", "gpu-2x")
    await cluster.set_capacity(scarce, is_available=False)
    await pool.create(
        [
            shape("first", 1, "gpu-1x", nodePool=scarce),
            shape("next", 2, "gpu-2x", nodePool=plenty),
        ]
    )
    await pool.create_pod("scarce-a")
    measured = await pool.until_bound("scarce-a")
    assert measured.instance_types() == ["gpu-2x"]
    await pool.until_reported("GPUNodeFailed", "scarce")
    await pool.until(
        "the shape rests",
        lambda seen: any(item.name == "first" for item in seen.scaling.shapes or ()),
    )
    await cluster.set_capacity(scarce, is_available=True)
    await pool.ends_clean()


async def a_node_without_devices(cluster: ScalingCluster) -> None:
    """A node that never tells of devices is deleted after a quarter of an hour, and the next shape serves."""
    pool = ScalingPool(cluster, "bare")
    bare = await pool.create_node_pool("bare", "gpu-1x")
    good = await pool.create_node_pool("good", "gpu-2x")
    await cluster.set_nodes(bare, devices_after_s=None)
    await pool.create(
        [shape("first", 1, "gpu-1x", nodePool=bare), shape("next", 2, "gpu-2x", nodePool=good)]
    )
    await pool.create_pod("bare-a")
    await pool.until("a node is there", lambda seen: len(seen.nodes) == 1)
    await pool.until_reported("GPUNodeWithoutDevices", within_s=16.5 * 60)
    measured = await pool.until_bound("bare-a", within_s=45 * 60)
    assert "gpu-2x" in measured.instance_types()
    await pool.ends_clean(within_s=20 * 60)


async def a_node_lost_before_its_devices(cluster: ScalingCluster) -> None:
    """The NodeClaim goes between registration and devices: another node comes."""
    pool = ScalingPool(cluster, "lost")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await cluster.set_nodes(node_pool, devices_after_s=None)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("lost-a")
    measured = await pool.until("a node is registered", is_registered)
    await cluster.set_nodes(node_pool, devices_after_s=0.5)
    name = measured.claims[0].metadata.name
    await insist(functools.partial(cluster.client.delete, NODE_CLAIMS, name))
    measured = await pool.until_bound("lost-a", within_s=600)
    assert name not in [claim.metadata.name for claim in measured.claims]
    await pool.ends_clean()


async def demand_that_vanishes_before_the_launch(cluster: ScalingCluster) -> None:
    """The pod is deleted while nothing is launched: its signal goes, too."""
    pool = ScalingPool(cluster, "early")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await cluster.set_capacity(node_pool, is_available=False)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("early-a")
    await pool.until("a node is asked for", lambda seen: len(seen.signals) == 1)
    await pool.delete_pods("early-a")
    await pool.until("nothing is asked for", lambda seen: not seen.signals and not seen.claims)
    await cluster.set_capacity(node_pool, is_available=True)
    await pool.ends_clean()


async def demand_that_vanishes_after_the_launch(cluster: ScalingCluster) -> None:
    """The pod is deleted while its node comes: the node is taken over, serves another pod, and goes when empty."""
    pool = ScalingPool(cluster, "late")
    # The empty node stays for as long as a reading of it takes on a busy machine.
    node_pool = await pool.create_node_pool("any", "gpu-1x", consolidate_after="90s")
    await cluster.set_nodes(node_pool, devices_after_s=3.0)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("late-a")
    measured = await pool.until("a node is there", lambda seen: len(seen.nodes) == 1)
    await pool.delete_pods("late-a")
    await pool.until(
        "the node is ready", lambda seen: seen.units == 1 and not seen.with_startup_taint
    )
    await pool.create_pod("late-b")
    after = await pool.until_bound("late-b")
    assert [node.metadata.uid for node in after.nodes] == [
        node.metadata.uid for node in measured.nodes
    ]
    await pool.ends_clean(within_s=300)


async def an_empty_node_goes(cluster: ScalingCluster) -> None:
    """A node whose pod has ended goes within a minute after its time; the next pod gets a new one."""
    pool = ScalingPool(cluster, "empty")
    node_pool = await pool.create_node_pool("any", "gpu-1x", consolidate_after="30s")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("empty-a")
    await pool.until_bound("empty-a")
    await cluster.finish("empty-a")
    await pool.until("the node is gone", lambda seen: not seen.nodes, within_s=90)
    await pool.create_pod("empty-b")
    await pool.until_bound("empty-b")
    await pool.ends_clean(within_s=120)


async def drift_under_running_pods(cluster: ScalingCluster) -> None:
    """A changed NodePool makes its node drift: Karpenter knows no node for its pod, and keeps it until it has ended."""
    pool = ScalingPool(cluster, "drift")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("drift-a")
    before = await pool.until_bound("drift-a")
    template = {"spec": {"template": {"metadata": {"labels": {"stories.example/new": "yes"}}}}}
    await insist(
        functools.partial(cluster.client.merge_patch, NODE_POOLS, template, name=node_pool)
    )
    await asyncio.sleep(30)
    after = await pool.measured()
    assert [node.metadata.uid for node in after.nodes] == [
        node.metadata.uid for node in before.nodes
    ]
    await cluster.finish("drift-a")
    await pool.until("the node is gone", lambda seen: not seen.nodes)
    await pool.ends_clean()


async def a_node_that_goes_under_a_reservation(cluster: ScalingCluster) -> None:
    """Karpenter takes a node that a gated pod was about to get: the pod gets another one."""
    pool = ScalingPool(cluster, "leaving")
    node_pool = await pool.create_node_pool("any", "gpu-1x", consolidate_after="1h")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("leaving-a")
    await pool.until_bound("leaving-a")
    await asyncio.sleep(
        8
    )  # until its request is over: one that ends before counts as a failure of the shape
    measured = await pool.measured()
    await pool.create_pod("leaving-b")
    await pool.until("the second waits", lambda seen: seen.gated == ["leaving-b"])
    (old,) = measured.claims
    await insist(functools.partial(cluster.client.delete, NODE_CLAIMS, old.metadata.name))
    measured = await pool.until_bound("leaving-b", within_s=180)
    assert (
        measured.pods["leaving-b"].spec.node_name
        != measured.pods.get("leaving-a", Pod()).spec.node_name
    )
    await pool.consolidate(node_pool, "0s")
    await pool.ends_clean(within_s=120)


STEPS: Final[dict[str, Callable[[Measurement], bool]]] = {
    "gated": lambda seen: bool(seen.gated),
    "signalled": lambda seen: bool(seen.signals),
    "claimed": lambda seen: bool(seen.claims),
    "registered": is_registered,
    "devices": lambda seen: seen.units > 0,
    "untainted": lambda seen: bool(seen.nodes) and not seen.with_startup_taint,
    "ungated": lambda seen: bool(seen.pods) and not seen.gated,
    "bound": lambda seen: bool(seen.bound),
}
"""Each step of a scale-up, by what the API server then shows."""


async def the_server_is_killed_at_every_step(cluster: ScalingCluster) -> None:
    """Whenever our server ends, the next one goes on: one NodeClaim, the pod runs, nothing is left over."""
    for step, is_there in STEPS.items():
        pool = ScalingPool(cluster, f"killed-{step}")
        node_pool = await pool.create_node_pool("any", "gpu-1x")
        await cluster.set_nodes(node_pool, devices_after_s=1.0)
        await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
        await pool.create_pod(f"killed-{step}-a")
        await pool.until(step, is_there)
        await cluster.kill_server()
        measured = await pool.until_bound(f"killed-{step}-a", within_s=180)
        assert len(measured.claims) == 1, measured
        await pool.ends_clean()


async def karpenter_is_killed(cluster: ScalingCluster) -> None:
    """Karpenter ends after a NodeClaim, before its Node: the next one goes on with it."""
    pool = ScalingPool(cluster, "restarted")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("restarted-a")
    await pool.until("there is a NodeClaim", lambda seen: len(seen.claims) == 1)
    await cluster.kill_karpenter()
    measured = await pool.until_bound("restarted-a", within_s=180)
    assert len(measured.claims) == 1
    await pool.ends_clean()


async def a_node_pool_that_cannot_serve(cluster: ScalingCluster) -> None:
    """A NodePool that is missing, or lacks the requirement, is named on the pod and the pool; it is used once it is right."""
    pool = ScalingPool(cluster, "wrong")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=pool.node_pool_name("any"))])
    await pool.create_pod("wrong-a")
    await pool.until_reported(
        "GPUNodeRequestBlocked", f'there is no NodePool "{pool.node_pool_name("any")}"'
    )
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    listed: Json = {"spec": {"template": {"spec": {"requirements": []}}}}
    await pool.until_bound("wrong-a", within_s=180)
    await pool.delete_pods("wrong-a")
    await pool.until("the node is gone", lambda seen: not seen.nodes)
    await insist(functools.partial(cluster.client.merge_patch, NODE_POOLS, listed, name=node_pool))
    await pool.until("the fault is seen", lambda seen: seen.has_condition("NodePoolValid", "False"))
    await pool.create_pod("wrong-b")
    await pool.until_reported("GPUNodeRequestBlocked", SCALE_REQUEST_LABEL)
    measured = await pool.measured()
    assert not measured.signals
    await pool.ends_clean()


async def a_pod_that_no_shape_has(cluster: ScalingCluster) -> None:
    """A pod with a node selector that no node will have gets no node, and is told so."""
    pool = ScalingPool(cluster, "picky")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    requirement = [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]}]
    one = shape("one", 1, "gpu-1x", nodePool=node_pool)
    one["requirements"] += requirement
    await pool.create([one])
    selector = {"topology.kubernetes.io/zone": "zone-b"}
    await pool.create_pod("picky-a", nodeSelector=selector)
    await pool.until_reported("GPUNodeRequestBlocked", "NoShape")
    assert not (await pool.measured()).signals
    await pool.create_pod("picky-b", nodeSelector={"topology.kubernetes.io/zone": "zone-a"})
    await pool.until_bound("picky-b")
    await pool.ends_clean()


async def a_pool_deleted_while_a_node_comes(cluster: ScalingCluster) -> None:
    """Signals and gates go with the pool; the node goes when it is empty."""
    pool = ScalingPool(cluster, "deleted")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await cluster.set_nodes(node_pool, devices_after_s=5.0)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("deleted-a")
    await pool.until("a node is there", lambda seen: len(seen.nodes) == 1)
    await pool.delete()
    await pool.until_left("no signal, no gate", lambda left: not left.signals and not left.gated)
    await pool.delete_pods("deleted-a")
    await pool.until_left("no node", lambda left: not left.nodes and not left.claims)
    await pool.delete_node_pools()


async def a_pool_closed_while_a_node_comes(cluster: ScalingCluster) -> None:
    """A pool in maintenance asks for nothing; afterwards its pods get their nodes."""
    pool = ScalingPool(cluster, "closed")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create(
        [shape("one", 1, "gpu-1x", nodePool=node_pool)],
        allocation={"mode": "TimeSlice", "slicesPerDevice": 2},
    )
    await pool.create_pods(2)
    await pool.until_bound("closed-p0", "closed-p1")
    await cluster.set_capacity(node_pool, is_available=False)
    await pool.create_pod("closed-a")
    await pool.until("a node is asked for", lambda seen: len(seen.signals) == 1)
    await pool.patch({"spec": {"allocation": {"slicesPerDevice": 4}}})
    await pool.until("nothing is asked for", lambda seen: not seen.signals)
    await cluster.set_capacity(node_pool, is_available=True)
    for name in ("closed-p0", "closed-p1"):
        await cluster.finish(name)
    await pool.until_bound("closed-a", within_s=240)
    await pool.ends_clean(within_s=180)


async def a_signal_that_is_tampered_with(cluster: ScalingCluster) -> None:
    """A signal that is deleted by hand comes again; one whose labels were changed is replaced."""
    pool = ScalingPool(cluster, "tampered")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await cluster.set_capacity(node_pool, is_available=False)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("tampered-a")
    measured = await pool.until("a node is asked for", lambda seen: len(seen.signals) == 1)
    first = measured.signals[0].metadata
    delete = functools.partial(cluster.client.delete, PODS, first.name, grace_period_s=0)
    await insist(functools.partial(delete, namespace=constants.DEFAULT_NAMESPACE))
    await cluster.set_capacity(node_pool, is_available=True)
    await pool.until_bound("tampered-a", within_s=300)
    await pool.ends_clean()


async def a_foreign_node_claim(cluster: ScalingCluster) -> None:
    """A NodeClaim with our label that no signal caused is told of, and breaks nothing."""
    pool = ScalingPool(cluster, "foreign")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("foreign-a")
    await pool.until_bound("foreign-a")
    node = (await pool.measured()).nodes[0]
    label = {"metadata": {"labels": {SCALE_REQUEST_LABEL: "foreign-of-nobody"}}}
    await insist(
        functools.partial(cluster.client.merge_patch, NODES, label, name=node.metadata.name)
    )
    await pool.create_pod("foreign-b")
    await pool.until_bound("foreign-b")
    await pool.ends_clean()


TROUBLE: Final[tuple[Story, ...]] = (
    no_capacity_for_the_first_shape,
    a_node_without_devices,
    a_node_lost_before_its_devices,
    demand_that_vanishes_before_the_launch,
    demand_that_vanishes_after_the_launch,
    an_empty_node_goes,
    drift_under_running_pods,
    a_node_that_goes_under_a_reservation,
    the_server_is_killed_at_every_step,
    karpenter_is_killed,
    a_node_pool_that_cannot_serve,
    a_pod_that_no_shape_has,
    a_pool_deleted_while_a_node_comes,
    a_pool_closed_while_a_node_comes,
    a_signal_that_is_tampered_with,
    a_foreign_node_claim,
)
