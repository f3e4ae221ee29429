"""Everything that our server asks of an API server, in half a minute of virtual time.

From an empty cluster to cards that nodes tell of and pools that take them; then a chapter or several: pods
that are held, expired, woken and nominated; pods that are bound, by us and around us, with the lead lost and
taken again; nodes, cards and pools that change and go. Scheduler, kubelet and the nodes' agents are doubles
that come again when they are refused.
"""

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from certs.tls import client_context
from kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    NAMESPACES,
    PODS,
)
from manifests import constants
from simulator.apiserver.injection import InjectedError
from simulator.node import nfd
from simulator.node.kubelet import FakeKubelet, register_node
from simulator.scheduler.extender import ExtenderClient
from simulator.scheduler.scheduler import FakeScheduler
from tests.component.server.story import (
    DEVICES,
    POOLS,
    WHOLE_DEVICES,
    Story,
    a_device,
    device_of,
    eventually,
)
from tests.support.loop_clock import ServerClock
from tests.support.running_server import a_cluster, a_server

CROWD: Final = 40
"""So many waiting pods that the tail of the queue is nominated."""
SERVED: Final = ("s0", "s1")
"""Pods that kube-scheduler has bound."""

Chapter = Callable[[Story], Awaitable[None]]


async def pods_wait(story: Story) -> None:
    """Many, which are nominated, and then one whose hold expires, twice."""
    names = [f"c{number}" for number in range(CROWD)]
    for name in names:
        await story.add_pod(name, "slow")
    await eventually(story.is_anybody_nominated)
    for name in names:
        await story.remove_pod(name)
    for count in (1, 2):
        await story.add_pod("late", "slow")
        await eventually(functools.partial(story.has_event, "GPUReservationExpired", count=count))
        await eventually(lambda: story.is_woken("late"))
        await story.remove_pod("late")


async def pods_come_and_the_lead_goes(story: Story) -> None:
    """Bound as they should be, with a lost answer, and by a stranger; certificate and lead are lost."""
    for name in SERVED:
        await story.add_pod(name, "whole")
    await eventually(lambda: story.is_bound(*SERVED))
    await story.add_pod("lost", "whole", "nobody")
    await eventually(lambda: story.is_sent("lost"))
    await eventually(story.is_looked_at)
    await eventually(lambda: story.bind("lost"))
    await story.add_pod("stolen", "slow")
    await story.steal_node("stolen")
    await eventually(lambda: story.has_event("GPUPodUnaccounted"))
    await story.spoil_secret()
    await eventually(story.has_whole_secret)
    before = await story.term()
    await story.cluster.give_lease_to("somebody else")
    await eventually(functools.partial(story.has_term_after, before))
    await story.until_ready()


async def what_there_is_changes(story: Story) -> None:
    """A pool cannot have what another one has; a card fails and comes back; an older version made objects
    the Node's; a card, a node and a pool go; a pool is cut anew.
    """
    rival = {**POOLS["whole"], "access": {"namespaces": ["nowhere"]}}
    await story.add_pool("rival", **rival)
    await eventually(lambda: story.is_said(GPU_POOLS, "rival", "Conflict"))
    await story.remove(GPU_POOLS, "rival")
    broken = dataclasses.replace(WHOLE_DEVICES[1], fault="Xid 79")
    await story.report("n1", [WHOLE_DEVICES[0], broken, *DEVICES[2:]])
    await eventually(lambda: story.is_in_state(broken, "Faulted"))
    await story.report("n1", DEVICES)
    await eventually(lambda: story.is_in_state(broken, "Assigned"))
    for resource, name in ((GPU_DEVICES, device_of(broken)), (GPU_NODE_INVENTORIES, "n1")):
        await story.give_to_node(resource, name)
        await eventually(functools.partial(story.is_nobodys, resource, name))
    await story.report("n1", DEVICES[1:])
    await eventually(lambda: story.is_gone(GPU_DEVICES, device_of(WHOLE_DEVICES[0])))
    await story.report("n1", DEVICES)
    await register_node(story.cluster.client, "n2", {})
    await story.report("n2", [a_device("far", 0, "NVIDIA L4")])
    await eventually(lambda: story.is_said(GPU_NODE_INVENTORIES, "n2", "ReadyForPooling"))
    await story.remove_node("n2")
    await eventually(lambda: story.is_gone(GPU_NODE_INVENTORIES, "n2"))
    await story.remove(GPU_POOLS, "slow")
    await eventually(lambda: story.is_gone(GPU_POOLS, "slow"))
    await story.add_pool("slow")
    await eventually(story.has_all_devices)
    await story.add_pod("guest", "whole")
    await eventually(lambda: story.is_bound("guest"))
    await story.cut("whole", mode="TimeSlice", slicesPerDevice=2)
    await eventually(lambda: story.is_gone(PODS, "guest"))
    await eventually(lambda: story.has_mode("whole", "TimeSlice"))
    await story.cut("whole", mode="Exclusive", slicesPerDevice=None)


@asynccontextmanager
async def a_story(folder: Path, *faults: InjectedError) -> AsyncIterator[Story]:
    """A cluster with two pools that have their cards, a server, kube-scheduler, a kubelet and agents of nodes;
    these requests fail.

    In every story the first Binding of the pod `lost` is cut off: it is read what became of it.
    """
    clock = ServerClock()
    async with a_cluster(folder) as cluster:
        await cluster.install()
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, nfd.node_feature_crd())
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": nfd.NAMESPACE}}
        await cluster.client.create(NAMESPACES, namespace)
        cluster.api.faults.reset_before("POST", "/lost/binding$")
        for fault in faults:
            cluster.api.faults.add(fault)
        running = a_server(
            cluster,
            clock=clock,
            leadership={},
            inventory={"node_gone_s": 2},
            tls={"ip_addresses": ["127.0.0.1"], "check_every_s": 2.0},
            bootstrap={"period_s": 1.0},
            health={"period_s": 1.0},
        )
        async with running as server, asyncio.TaskGroup() as group:
            story = Story(cluster, server, clock)
            await story.add_node()
            agents = group.create_task(story.keep_reporting())
            await story.until_ready()
            for name in POOLS:
                await story.add_pool(name)
            await eventually(story.annotate_the_sliced_device)
            await eventually(story.has_all_devices)
            bundle = await cluster.bundle()
            url = f"{server.url}{constants.EXTENDER_PREFIX}"
            async with ExtenderClient(
                url, client_context(bundle.trust_pem, bundle.client)
            ) as extender:
                doubles = [
                    agents,
                    group.create_task(FakeScheduler(cluster.client, extender, clock).run()),
                    group.create_task(FakeKubelet(cluster.client, clock).run()),
                ]
                yield story
                for double in doubles:
                    double.cancel()
