"""A device is free when its node says so: pods deleted by force, and pods that their users called ended."""

import asyncio
from typing import TYPE_CHECKING

from agent.kubelet.pod_processes import pods_with_processes
from api.names import PodUid
from tests.cluster.environment import client, pods, polling
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.node.stories.test_failures import bind_by_hand
from tests.cluster.system.objects import units_of

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.node.stories.pools import Pools

TURNS = 5


def a_pod_that_ignores_sigterm(
    pools: "Pools", name: str, resource: str, units: int = 1
) -> "JsonObject":
    """Its grace period is an hour."""
    return pools.a_pod(name, resource, units, terminationGracePeriodSeconds=3600)


async def delete_by_force(pools: "Pools", name: str) -> None:
    path = f"{pods.collection(pools.namespace)}/{name}"
    await pools.api.delete(path, options={"gracePeriodSeconds": 0})


async def runs_alone(pools: "Pools", name: str, before: "JsonObject") -> "JsonObject":
    """Wait until the pod has processes; the one before it must have none by then."""
    after = await pools.get(name)
    uids = [PodUid(pod["metadata"]["uid"]) for pod in (before, after)]

    async def is_there() -> bool:
        found = await asyncio.to_thread(pods_with_processes, uids)
        assert found != set(uids), f"{name} runs beside the pod before it"
        return uids[1] in found

    async def has_not_failed() -> bool:
        phase = (await pools.get(name)).get("status", {}).get("phase")
        assert phase != "Failed", f"{await pools.get(name)}"
        return await is_there()

    await polling.eventually(has_not_failed, what=f"{name} runs", every=0.02)
    return await pools.running(name)


async def test_what_was_deleted_by_force_is_given_to_nobody_while_it_runs(
    pools: "Pools", whole: str
):
    before = await pools.run(a_pod_that_ignores_sigterm(pools, "turn-0", whole, 8))
    for turn in range(1, TURNS + 1):
        await pools.reported(before)
        name = f"turn-{turn}"
        await pools.create(a_pod_that_ignores_sigterm(pools, name, whole, 8))
        await pods.wait_for_pod(pools.api, pools.namespace, name, pods.is_unschedulable)
        await delete_by_force(pools, before["metadata"]["name"])
        before = await runs_alone(pools, name, before)
        await check(pools, before, "main")
    await delete_by_force(pools, before["metadata"]["name"])


async def test_a_pod_that_is_bound_to_them_all_the_same_waits_for_the_processes(
    pools: "Pools", control_plane: "ControlPlane"
):
    """Nobody was told: the plugin alone stands between the pods."""
    resource = await pools.make(10)
    before = await pools.run(a_pod_that_ignores_sigterm(pools, "before", resource))
    (unit,) = units_of(before)
    await delete_by_force(pools, "before")
    await bind_by_hand(pools, control_plane, "after", resource, unit)

    after = await runs_alone(pools, "after", before)
    await check(pools, after, "main")


async def test_what_a_pod_has_that_its_user_called_ended_is_given_to_nobody(
    pools: "Pools", control_plane: "ControlPlane"
):
    resource = await pools.make(10, 11)
    victim = await pools.run(pools.a_pod("victim", resource))
    await pools.reported(victim)
    (unit,) = units_of(victim)
    await pools.run(pools.a_pod("other", resource))
    # A node may write this of its pods; so may a user who has the right to pods/status.
    kubeconfig = control_plane.kubeconfig(f"system:node:{pools.node.name}", groups=["system:nodes"])
    path = f"{pods.collection(pools.namespace)}/victim"
    async with client.open_client(kubeconfig) as node:
        await node.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
    await pools.create(pools.a_pod("thief", resource))
    await pods.wait_for_pod(pools.api, pools.namespace, "thief", pods.is_unschedulable)

    await pools.delete("other")
    thief = await pools.running("thief")
    assert units_of(thief) != [unit]
    await check(pools, thief, "main")
    uid = PodUid(victim["metadata"]["uid"])
    assert await asyncio.to_thread(pods_with_processes, [uid]) == {uid}
    # Nor is it given by the plugin, where kubelet believes the phase.
    await pools.delete("thief")
    await bind_by_hand(pools, control_plane, "late", resource, unit)
    await pools.running("late")
    assert (await pools.seen("late")).units not in ([], [unit])
