"""Under each TopologyManager policy pods get what they were assigned, and none is rejected.

The node has two NUMA nodes, with four devices of the pool on each, an island of NVLinks.
"""

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from agent.kubelet.pod_resources import PodResources
from http_edge.system_clock import SystemClock
from tests.cluster.environment import pods, polling
from tests.cluster.node.environment import numa, paths
from tests.cluster.node.stories.devices import ISLAND
from tests.cluster.node.stories.pools import EVENTS, INVENTORIES
from tests.cluster.node.stories.test_assigned_devices import a_container, check
from tests.cluster.system.objects import devices_of, units_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from tests.cluster.environment.client import JsonObject
    from tests.cluster.node.stories.agents import Agent
    from tests.cluster.node.stories.pools import Pools

POLICIES: Final = {
    "best-effort": ("best-effort", "container"),
    "restricted": ("restricted", "container"),
    "single-numa-node": ("single-numa-node", "container"),
    "single-numa-node-of-pods": ("single-numa-node", "pod"),
}
PODS: Final = 60
PODS_IF_LONG: Final = 200
"""One takes a second, most of which the devices wait for kubelet to see that a container has ended."""
AT_ONCE: Final = 12
"""Pods that were created and have not ended: more than the devices serve at a time."""
SHAPES: Final = ((1,), (2,), (1, 1), (4,), (1,), (2, 2), (2,), (1, 2))
"""Devices of the pods' containers, in turn."""
TURNS: Final = 4
STATIC_PODS: Final = 20
STATIC_PODS_IF_LONG: Final = 200
SHORT_PODS: Final = 30
SHORT_PODS_IF_LONG: Final = 60
UNTIL_TERMINATED: Final = ["sh", "-c", "trap exit TERM; sleep 100000 & wait"]
"""Ends within its grace period, a second of each pod less."""
RESERVED_CPUS: Final = "0,1"
"""One of each NUMA node."""
REJECTED: Final = ("GPUDevicesSubstituted", "GPUDevicesRefused", "GPUAllocationMismatch")


@pytest.fixture
async def aligned(
    request: pytest.FixtureRequest, pools: "Pools", whole: str
) -> "AsyncIterator[Pools]":
    """The pools, on a kubelet with this policy."""
    policy, scope = POLICIES[request.param]
    async with pools.node.kubelet.aligning(policy, scope):
        await pools.node.wait_ready()
        await pools.offers(whole, 8)
        await _shows(
            pools,
            {
                "topologyManagerPolicy": policy,
                "topologyManagerScope": scope,
                "alignedResources": [],
            },
        )
        await _forget_ended_pods(pools)
        yield pools
        await pools.clear()
    await pools.node.wait_ready()
    await pools.offers(whole, 8)
    await _forget_ended_pods(pools)


@pytest.mark.parametrize("aligned", POLICIES, indirect=True)
async def test_many_pods_one_after_the_other_get_what_they_were_bound_with(
    aligned: "Pools", whole: str, agent: "Agent", request: pytest.FixtureRequest, *, is_long: bool
):
    pools, before = aligned, agent.process.logs()
    count = PODS_IF_LONG if is_long else PODS
    found = await _run_short_pods(
        pools, [_a_short_pod(pools, whole, number) for number in range(count)]
    )

    said = [json.loads(line) for line in agent.process.logs().removeprefix(before).splitlines()]
    outcomes = Counter(line.get("outcome") for line in said if line.get("resource") == whole)
    containers = sum(len(devices_of(item)) for item in found.values())
    assert {key: count for key, count in outcomes.items() if key} == {"promised": containers}
    assert [line for line in said if line["event"] == "call refused"] == []
    events = (await pools.api.get(EVENTS))["items"]
    assert [event["note"] for event in events if _is_of(event, pools, REJECTED)] == []
    policy, scope = POLICIES[request.node.callspec.params["aligned"]]
    if policy != "best-effort":
        assert [
            item["metadata"]["name"] for item in found.values() if _is_split(item, pools, scope)
        ] == []


@pytest.mark.parametrize("aligned", ["single-numa-node"], indirect=True)
async def test_pods_that_ended_are_replaced_on_a_full_node_again_and_again(
    aligned: "Pools", whole: str, agent: "Agent"
):
    pools = aligned
    names = [f"pair-{number}" for number in range(4)]
    for name in names:
        await check(pools, await pools.run(pools.a_pod(name, whole, 2)), "main")

    before = agent.process.logs()
    for turn in range(TURNS):
        gone = names[turn % 4]
        freed = units_of(await pools.get(gone))
        names[turn % 4] = f"turn-{turn}"
        await pools.create(pools.a_pod(names[turn % 4], whole, 2))
        await pods.wait_for_pod(pools.api, pools.namespace, names[turn % 4], pods.is_unschedulable)
        await pools.delete(gone)
        replaced = await pools.running(names[turn % 4])
        assert sorted(units_of(replaced)) == sorted(freed)
        await check(pools, replaced, "main")

    said = [json.loads(line) for line in agent.process.logs().removeprefix(before).splitlines()]
    calls = [line["event"] for line in said if line.get("resource") == whole]
    # kubelet has nothing to align with the devices, is told no NUMA nodes, and asks each time.
    assert (calls.count("allocated"), calls.count("devices selected")) == (TURNS, TURNS)


@pytest.fixture
async def beside_cpus(
    request: pytest.FixtureRequest, pools: "Pools", whole: str
) -> "AsyncIterator[Pools]":
    """The pools, on a kubelet with this policy that gives CPUs of their own to Guaranteed pods."""
    policy, scope = POLICIES[request.param]
    node = pools.node
    kubelet = PodResources(node.pod_resources_directory, SystemClock())
    static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": RESERVED_CPUS}
    async with node.kubelet.aligning(policy, scope, **static):
        await node.wait_ready()
        await pools.offers(whole, 8)

        async def is_reported() -> bool:
            return whole in await kubelet.numa_resources()

        await polling.eventually(is_reported, what="kubelet is told NUMA nodes")
        await _shows(
            pools,
            {
                "topologyManagerPolicy": policy,
                "topologyManagerScope": scope,
                "alignedResources": ["cpu"],
            },
        )
        await _forget_ended_pods(pools)
        yield pools
        await pools.clear()
        await kubelet.close()
    await node.wait_ready()
    await pools.offers(whole, 8)
    await _forget_ended_pods(pools)


@pytest.mark.parametrize("beside_cpus", POLICIES, indirect=True)
async def test_beside_static_cpus_pods_get_what_they_were_bound_with_near_their_cpus(
    beside_cpus: "Pools", whole: str, agent: "Agent", *, is_long: bool
):
    """One pod after the other; the oldest ones end where no NUMA node has capacity for the next one."""
    pools, before = beside_cpus, agent.process.logs()
    running: dict[str, list[str]] = {}
    containers = 0
    for number in range(STATIC_PODS_IF_LONG if is_long else STATIC_PODS):
        shape, name = SHAPES[number % len(SHAPES)], f"static-{number}"
        while not _has_capacity(pools, running.values(), sum(shape)):
            oldest = next(iter(running))
            await pools.delete(oldest)
            del running[oldest]
        found = await pools.run(_a_guaranteed_pod(pools, name, whole, shape))
        running[name] = units_of(found)
        containers += len(shape)
        for container, units in devices_of(found).items():
            seen = await pools.seen(name, container)
            assert sorted(seen.units) == sorted(units)
            cpus = _cpus_of(found["metadata"]["uid"], container)
            assert len(cpus) == len(units)
            assert {numa.numa_node_of_cpu(cpu) for cpu in cpus} == {
                _numa_node_of(pools, unit) for unit in units
            }

    said = [json.loads(line) for line in agent.process.logs().removeprefix(before).splitlines()]
    of_pool = [line for line in said if line.get("resource") == whole]
    outcomes = Counter(line["outcome"] for line in of_pool if "outcome" in line)
    # Where as many devices of the NUMA node are free as the container wants, kubelet takes them unasked.
    assert outcomes.keys() <= {"promised"}, dict(outcomes)
    assert [line["event"] for line in of_pool].count("allocated") == containers
    events = (await pools.api.get(EVENTS))["items"]
    assert [event["note"] for event in events if _is_of(event, pools, REJECTED)] == []


@pytest.mark.parametrize("beside_cpus", ["single-numa-node"], indirect=True)
async def test_beside_static_cpus_no_pod_of_many_short_ones_is_rejected(
    beside_cpus: "Pools", whole: str, *, is_long: bool
):
    """Pods end while others are bound, so that kubelet may give one other devices than it was bound with."""
    count = SHORT_PODS_IF_LONG if is_long else SHORT_PODS
    short = [_a_short_guaranteed_pod(beside_cpus, whole, number) for number in range(count)]
    await _run_short_pods(beside_cpus, short)


def _has_capacity(pools: "Pools", used: "Collection[list[str]]", units: int) -> bool:
    """Whether a NUMA node has so many devices that no pod has."""
    taken = Counter(_numa_node_of(pools, entry) for item in used for entry in item)
    return any(taken[node] + units <= ISLAND for node in range(numa.NODES))


def _a_guaranteed_pod(
    pools: "Pools", name: str, resource: str, shape: tuple[int, ...]
) -> "JsonObject":
    """Return a pod whose containers have as many CPUs of their own as devices."""
    pod = pools.a_pod(name, resource, shape[0])
    pod["spec"]["containers"] += [
        a_container(f"other-{at}", resource, units) for at, units in enumerate(shape[1:])
    ]
    for container, units in zip(pod["spec"]["containers"], shape, strict=True):
        container["command"] = UNTIL_TERMINATED
        container["resources"]["limits"] |= {"cpu": str(units), "memory": "16Mi"}
    return pod


def _a_short_guaranteed_pod(pools: "Pools", resource: str, number: int) -> "JsonObject":
    pod = _a_guaranteed_pod(pools, f"short-{number}", resource, SHAPES[number % len(SHAPES)])
    pod["spec"]["restartPolicy"] = "Never"
    for container in pod["spec"]["containers"]:
        container["command"] = ["sleep", "0.2"]
    return pod


def _cpus_of(uid: str, container: str) -> list[int]:
    """Return the CPUs that kubelet has given to a container alone."""
    state = json.loads((paths.KUBELET_ROOT / "cpu_manager_state").read_text(encoding="utf-8"))
    return [
        cpu
        for part in state["entries"][uid][container].split(",")
        for first, _, last in [part.partition("-")]
        for cpu in range(int(first), int(last or first) + 1)
    ]


def _numa_node_of(pools: "Pools", unit: str) -> int:
    return {device.uuid: device.minor // ISLAND for device in pools.devices.devices}[unit]


async def _forget_ended_pods(pools: "Pools") -> None:
    """Until its first pod kubelet counts what pods had that ended while it was away."""
    await pools.run(pools.node.a_pod("first"))
    await pools.delete("first")


def _a_short_pod(pools: "Pools", resource: str, number: int) -> "JsonObject":
    shape = SHAPES[number % len(SHAPES)]
    command = ["sleep", "0.2"]
    pod = pools.a_pod(f"short-{number}", resource, shape[0], command=command, restartPolicy="Never")
    for units in shape[1:]:
        pod["spec"]["containers"].append(
            a_container("second", resource, units) | {"command": command}
        )
    return pod


async def _run_short_pods(pools: "Pools", waiting: "list[JsonObject]") -> "dict[str, JsonObject]":
    """Run the pods, some at a time, until all have ended, and none was rejected; return them by name."""
    count = len(waiting)
    found: dict[str, JsonObject] = {}

    async def all_ended() -> bool:
        listed = (await pools.api.get(pods.collection(pools.namespace)))["items"]
        found.update({item["metadata"]["name"]: item for item in listed})
        phases = Counter(item.get("status", {}).get("phase") for item in found.values())
        assert not phases["Failed"], [
            item["status"] for item in found.values() if _has_failed(item)
        ]
        under_way = len(found) - phases["Succeeded"]
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(waiting), AT_ONCE - under_way)):
                group.create_task(pools.create(waiting.pop(0)))
        assert phases["Succeeded"] == count, dict(phases)
        return True

    await polling.eventually(all_ended, what=f"{count} pods ended", within=6 * count, every=0.25)
    return found


def _is_split(pod: "JsonObject", pools: "Pools", scope: str) -> bool:
    """Whether the devices of a container, or of the pod, are on both NUMA nodes."""
    node_of = {device.uuid: device.minor // ISLAND for device in pools.devices.devices}
    assigned = devices_of(pod)
    sets = [units_of(pod)] if scope == "pod" else list(assigned.values())
    return any(len({node_of[unit] for unit in units}) > 1 for units in sets)


def _has_failed(pod: "JsonObject") -> bool:
    return bool(pod.get("status", {}).get("phase") == "Failed")


def _is_of(event: "JsonObject", pools: "Pools", reasons: "tuple[str, ...]") -> bool:
    is_here = event["regarding"].get("namespace") == pools.namespace
    return is_here and event["reason"] in reasons


async def _shows(pools: "Pools", expected: "JsonObject") -> None:
    async def does() -> bool:
        status = await pools.api.status(f"{INVENTORIES}/{pools.node.name}")
        assert status.get("kubelet") == expected, f"{status.get('kubelet')}"
        return True

    await polling.eventually(does, what="the settings of kubelet in the inventory")
