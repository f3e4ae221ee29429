"""The agents as they are installed: pods of our DaemonSets find devices, offer them, and outlive their own upgrade."""

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from api.names import MANAGED_LABEL
from tests.cluster.environment import nodes, pods, polling
from tests.cluster.node.stories.pools import Pools
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.installation import NAMESPACE, SAMPLE_EVERY_S
from tests.cluster.system.objects import POOLS, PREFIX, units_of

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.stories.devices import NodeDevices
    from tests.cluster.system.installation import GpuSystem

PRIVILEGED = ("gpu-node-agent", "gpu-node-validator")
OURS = f"/api/v1/namespaces/{NAMESPACE}/pods"


async def agents(pools: Pools, name: str, instance: str = "") -> list["JsonObject"]:
    """Return the pods of a DaemonSet of ours that are not going away."""
    selector = f"app.kubernetes.io/name={name}"
    if instance:
        selector += f",app.kubernetes.io/instance={instance}"
    found = (await pools.api.get(OURS, labelSelector=selector))["items"]
    return [item for item in found if "deletionTimestamp" not in item["metadata"]]


async def ready(pools: Pools, name: str, instance: str = "", *, other_than: str = "") -> str:
    """Wait for the one pod of a DaemonSet to be ready; return its uid."""

    async def is_ready() -> str:
        found = [
            agent
            for agent in await agents(pools, name, instance)
            if agent["metadata"]["uid"] != other_than
        ]
        assert len(found) == 1, f"{len(found)} pods of {name} {instance}"
        conditions = {
            item["type"]: item["status"] for item in found[0]["status"].get("conditions", [])
        }
        assert conditions.get("Ready") == "True", f"{found[0]['status']}"
        return str(found[0]["metadata"]["uid"])

    return str(await polling.eventually(is_ready, what=f"{name} {instance} ready"))


async def keep_coming(pools: Pools, resource: str, over: asyncio.Event) -> None:
    """Run one short pod after the other; each must end well but one, see `is_dropped`."""
    dropped = 0
    for number in itertools.count():
        if over.is_set() and number > 2:
            return
        name = f"short-{number}"
        await pools.create(pools.a_pod(name, resource, command=["sh", "-c", "test -n $GPU_UNITS"]))

        async def has_ended(name: str = name) -> bool:
            status = (await pools.get(name))["status"]
            assert status["phase"] != "Failed" or is_dropped(status), f"{name}: {status}"
            return status["phase"] in {"Failed", "Succeeded"}

        await polling.eventually(has_ended, what=f"{name} has ended", every=0.05)
        dropped += is_dropped((await pools.get(name))["status"])
        assert dropped <= 1


def is_dropped(status: "JsonObject") -> bool:
    """Say whether the pod came while kubelet had no plugin.

    Where two plugins of a resource overlap, the end of the older one makes kubelet drop the newer until that is
    registered again, some 20 ms later: a pod that kubelet admits just then is rejected.
    """
    return bool(status["phase"] == "Failed" and "no healthy devices present" in status["message"])


async def test_pods_of_our_daemonsets_serve_a_pool_from_its_first_device_to_its_last_pod(
    pools: Pools, kubectl: "Kubectl"
):
    agent = await ready(pools, "gpu-node-agent")
    resource = await pools.make(*range(4))
    name = resource.removeprefix(PREFIX)
    plugin = await ready(pools, "gpu-device-plugin", name)
    first = await pools.run(pools.a_pod("first", resource, 2))
    await check(pools, first, "main")
    await pools.reported(first)

    # Neither of them writes to its root, and the plugin has no capability and no device file of a GPU.
    (current,) = await agents(pools, "gpu-device-plugin", name)
    (container,) = current["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in container["securityContext"]

    # An upgrade of both, under a pod that runs, and while others come and go.
    for daemon_set in ("gpu-node-agent", f"gpu-device-plugin-{name}"):
        await kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{daemon_set}")
    async with asyncio.TaskGroup() as group:
        over = asyncio.Event()
        group.create_task(keep_coming(pools, resource, over))
        await ready(pools, "gpu-node-agent", other_than=agent)
        await ready(pools, "gpu-device-plugin", name, other_than=plugin)
        await pools.offers_of(resource, 4)
        over.set()
    second = await pools.run(pools.a_pod("second", resource, 2))

    assert not set(units_of(first)) & set(units_of(second))
    await check(pools, first, "main")
    await check(pools, second, "main")
    (status,) = (await pools.get("first"))["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    await pools.reported(second)


async def test_a_plugin_that_is_killed_is_started_again_and_no_pod_is_lost(pools: Pools):
    resource = await pools.make(0, 1)
    name = resource.removeprefix(PREFIX)
    await ready(pools, "gpu-device-plugin", name)
    first = await pools.run(pools.a_pod("first", resource))
    (before,) = await agents(pools, "gpu-device-plugin", name)
    await pools.api.delete(f"{OURS}/{before['metadata']['name']}", gracePeriodSeconds="0")
    await ready(pools, "gpu-device-plugin", name, other_than=before["metadata"]["uid"])
    await polling.eventually(
        lambda: is_registered_again(pools, resource),
        what=f"the next plugin of {name} is registered",
    )
    await pools.offers_of(resource, 2)
    second = await pools.run(pools.a_pod("second", resource))

    assert units_of(first) != units_of(second)
    await check(pools, first, "main")
    await check(pools, second, "main")


@pytest.mark.parametrize("way", ["Devices", "Environment"])
async def test_other_ways_to_hand_out(
    pools: Pools, devices: "NodeDevices", installed_as_pods: "GpuSystem", image_name: str, way: str
):
    # NVIDIA's container runtime is not here, and the validator demands it where it is to hand out.
    validator = {"enabled": way == "Devices"}
    await installed_as_pods.reconfigure(
        device_plugin={"image": image_name, "hand_out": way},
        bootstrap={"period_s": SAMPLE_EVERY_S, "validator": validator},
    )
    try:
        await check_way(pools, devices, way)
    finally:
        await installed_as_pods.reconfigure(
            device_plugin={"image": image_name}, bootstrap={"period_s": SAMPLE_EVERY_S}
        )


async def check_way(pools: Pools, devices: "NodeDevices", way: str) -> None:
    resource = await pools.make(0, 1, 2)
    pod = await pools.run(pools.a_pod("two", resource, 2))
    seen = await pools.seen("two")

    assert seen.units == sorted(units_of(pod))
    if way == "Devices":
        assert seen.files == pools.files_of(units_of(pod))
        assert seen.visible == "void"
        library = "/usr/local/nvidia/lib64/libnvidia-cfg.so.1"
        said = await pools.node.exec(pools.namespace, "two", ["cat", library])
        assert said == "a library of the driver"
    else:
        # NVIDIA's container runtime would do the rest, and is not here.
        assert seen.files == []
        assert sorted(seen.visible.split(",")) == sorted(units_of(pod))


async def test_a_node_that_opts_out_has_neither_agent_nor_validator_and_its_pods_live_on(
    pools: Pools,
):
    resource = await pools.make(0, 1)
    plugin = await ready(pools, "gpu-device-plugin", resource.removeprefix(PREFIX))
    await pools.run(pools.a_pod("first", resource))
    path = f"{nodes.NODES}/{pools.node.name}"
    await pools.api.patch(path, {"metadata": {"labels": {MANAGED_LABEL: "false"}}})

    async def have_left() -> bool:
        for name in PRIVILEGED:
            assert not await agents(pools, name), name
        pool = await pools.api.status(f"{POOLS}/{resource.removeprefix(PREFIX)}")
        # The device in use is in the pool until its pod ends.
        return bool(pool["capacity"]["total"] == 1)

    try:
        await polling.eventually(have_left, what="agent and validator have left the node")
        (status,) = (await pools.get("first"))["status"]["containerStatuses"]
        assert ("running" in status["state"], status["restartCount"]) == (True, 0)
        assert plugin == await ready(pools, "gpu-device-plugin", resource.removeprefix(PREFIX))
    finally:
        await pools.api.patch(path, {"metadata": {"labels": {MANAGED_LABEL: None}}})
    for name in PRIVILEGED:
        await ready(pools, name)
    await pools.offers(resource, 2)
    await pools.run(pools.a_pod("second", resource))


async def test_a_pool_that_goes_takes_its_plugin_with_it(pools: Pools):
    resource = await pools.make(2)
    name = resource.removeprefix(PREFIX)
    await ready(pools, "gpu-device-plugin", name)
    await pools.run(pools.a_pod("last", resource))
    await pools.clear()

    async def is_gone() -> bool:
        return not await agents(pools, "gpu-device-plugin", name)

    await polling.eventually(is_gone, what=f"the plugin of {name} is gone")
    assert not await pods_left(pools)


async def is_registered_again(pools: Pools, resource: str) -> bool:
    """Check that kubelet has a plugin from after the end of the killed one.

    The killed one may end after its successor registered; kubelet then has no healthy device until the
    successor registers again, and the Node does not show that.
    """
    lines = [line for line in pools.node.kubelet.logs().splitlines() if f'"{resource}"' in line]
    ended = [number for number, item in enumerate(lines) if "ListAndWatch ended" in item]
    return bool(ended) and any("Registered client" in line for line in lines[ended[-1] :])


async def pods_left(pools: Pools) -> list[str]:
    found = (await pools.api.get(pods.collection(pools.namespace)))["items"]
    return [item["metadata"]["name"] for item in found]
