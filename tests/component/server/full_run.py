"""Runs that make every kind of request of the server, in half a minute of virtual time.

A run begins with an empty cluster, in which nodes publish devices and pools take them. Scenarios follow: pods
that wait, with reservations that expire, requeues and nominations; pods that are bound by the scheduler and past
it, with the leadership lost and taken again; nodes, devices and pools that change and go. Scheduler, kubelet and
node agents are doubles that retry what is refused.
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
from simulator.scheduler.extender_client import ExtenderClient
from simulator.scheduler.fake import FakeScheduler
from tests.component.server.cluster_run import (
    DEVICES,
    POOLS,
    WHOLE_DEVICES,
    ClusterRun,
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

Scenario = Callable[[ClusterRun], Awaitable[None]]


async def pods_wait(run: ClusterRun) -> None:
    """Many pods are nominated, then the reservation of one pod expires twice."""
    names = [f"c{number}" for number in range(CROWD)]
    for name in names:
        await run.add_pod(name, "slow")
    await eventually(run.is_anybody_nominated)
    for name in names:
        await run.remove_pod(name)
    for count in (1, 2):
        await run.add_pod("late", "slow")
        await eventually(functools.partial(run.has_event, "GPUReservationExpired", count=count))
        await eventually(lambda: run.is_woken("late"))
        await run.remove_pod("late")


async def pods_come_and_the_lead_goes(run: ClusterRun) -> None:
    """Pods are bound by the scheduler, with a lost response, and past the scheduler; certificate and leadership are lost."""
    for name in SERVED:
        await run.add_pod(name, "whole")
    await eventually(lambda: run.is_bound(*SERVED))
    await run.add_pod("lost", "whole", "nobody")
    await eventually(lambda: run.is_sent("lost"))
    await eventually(run.is_checked)
    await eventually(lambda: run.bind("lost"))
    await run.add_pod("stolen", "slow")
    await run.steal_node("stolen")
    await eventually(lambda: run.has_event("GPUPodUnaccounted"))
    await run.spoil_secret()
    await eventually(run.has_whole_secret)
    before = await run.term()
    await run.cluster.give_lease_to("somebody else")
    await eventually(functools.partial(run.has_term_after, before))
    await run.until_ready()


async def what_there_is_changes(run: ClusterRun) -> None:
    """A second pool conflicts; a device fails and recovers; objects have the owner of an older version; a
    device, a node and a pool go; the allocation of a pool changes.
    """
    rival = {**POOLS["whole"], "access": {"namespaces": ["nowhere"]}}
    await run.add_pool("rival", **rival)
    await eventually(lambda: run.is_said(GPU_POOLS, "rival", "Conflict"))
    await run.remove(GPU_POOLS, "rival")
    broken = dataclasses.replace(WHOLE_DEVICES[1], fault="Xid 79")
    await run.report("n1", [WHOLE_DEVICES[0], broken, *DEVICES[2:]])
    await eventually(lambda: run.is_in_state(broken, "Faulted"))
    await run.report("n1", DEVICES)
    await eventually(lambda: run.is_in_state(broken, "Assigned"))
    for resource, name in ((GPU_DEVICES, device_of(broken)), (GPU_NODE_INVENTORIES, "n1")):
        await run.give_to_node(resource, name)
        await eventually(functools.partial(run.is_nobodys, resource, name))
    await run.report("n1", DEVICES[1:])
    await eventually(lambda: run.is_gone(GPU_DEVICES, device_of(WHOLE_DEVICES[0])))
    await run.report("n1", DEVICES)
    await register_node(run.cluster.client, "n2", {})
    await run.report("n2", [a_device("far", 0, "NVIDIA L4")])
    await eventually(lambda: run.is_said(GPU_NODE_INVENTORIES, "n2", "ReadyForPooling"))
    await run.remove_node("n2")
    await eventually(lambda: run.is_gone(GPU_NODE_INVENTORIES, "n2"))
    await run.remove(GPU_POOLS, "slow")
    await eventually(lambda: run.is_gone(GPU_POOLS, "slow"))
    await run.add_pool("slow")
    await eventually(run.has_all_devices)
    await run.add_pod("guest", "whole")
    await eventually(lambda: run.is_bound("guest"))
    await run.cut("whole", mode="TimeSlice", slicesPerDevice=2)
    await eventually(lambda: run.is_gone(PODS, "guest"))
    await eventually(lambda: run.has_mode("whole", "TimeSlice"))
    await run.cut("whole", mode="Exclusive", slicesPerDevice=None)


@asynccontextmanager
async def a_run(folder: Path, *faults: InjectedError) -> AsyncIterator[ClusterRun]:
    """Yield a cluster with two pools that have their devices, a server, kube-scheduler, a kubelet and node agents;
    these requests fail.

    In every run the connection of the first Binding of the pod `lost` is cut, so the server reads the pod.
    """
    clock = ServerClock()
    async with a_cluster(folder) as cluster:
        await cluster.install()
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, nfd.node_feature_crd())
        await cluster.install_karpenter()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": nfd.NAMESPACE}}
        await cluster.client.create(NAMESPACES, namespace)
        await cluster.install_scheduler()
        await cluster.install_service()
        cluster.api.faults.reset_before("POST", "/lost/binding$")
        for fault in faults:
            cluster.api.faults.add(fault)
        running = a_server(
            cluster,
            clock=clock,
            leadership={},
            inventory={"node_gone_s": 2},
            listen={"advertised_address": "127.0.0.1"},
            tls={"ip_addresses": ["127.0.0.1"], "check_every_s": 2.0},
            bootstrap={"period_s": 1.0},
            health={"period_s": 1.0},
        )
        async with running as server, asyncio.TaskGroup() as group:
            run = ClusterRun(cluster, server, clock)
            await run.add_node()
            agents = group.create_task(run.keep_reporting())
            await run.until_ready()
            for name in POOLS:
                await run.add_pool(name)
            await eventually(run.annotate_the_sliced_device)
            await eventually(run.has_all_devices)
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
                yield run
                for double in doubles:
                    double.cancel()
