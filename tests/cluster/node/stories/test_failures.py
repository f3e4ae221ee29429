"""What breaks on a node, under pods that run and pods that wait: nothing fails that need not."""

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec

from api.names import NodeName
from api.nodefiles import node_devices_file
from inventory.identity import device_name
from tests.cluster.environment import client, nodes, pods, polling
from tests.cluster.node.stories.pools import Pools
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.installation import NAMESPACE, SAMPLE_EVERY_S
from tests.cluster.system.objects import DEVICES, DEVICES_KEY, units_of

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.agents import Agent
    from tests.cluster.node.stories.devices import NodeDevices

GPU_RESET, NODE_REBOOT = 1, 2
"""nvmlDeviceGpuRecoveryAction_t."""
CLEAN_S = 3 * SAMPLE_EVERY_S
"""After so long a device is well again."""
BACK_WITHIN_S = 10.0


def restarts(pod: "JsonObject") -> int:
    (status,) = pod["status"]["containerStatuses"]
    return int(status["restartCount"])


async def bound(pools: Pools, resource: str, *names: str) -> list["JsonObject"]:
    """Create pods of one device each, and wait until they are bound."""
    await pools.create(*(pools.a_pod(name, resource) for name in names))
    return [
        await pods.wait_for_pod(pools.api, pools.namespace, name, pods.is_bound) for name in names
    ]


async def test_the_agent_is_killed_under_running_pods(pools: Pools, whole: str, agent: "Agent"):
    before = await pools.run(pools.a_pod("before", whole, 2))
    agent.kill9()

    async def knows() -> bool:
        status = await pools.api.status(f"{nodes.NODES}/{pools.node.name}")
        return str(status.get("allocatable", {}).get(whole)) == "0"

    await polling.eventually(knows, what="kubelet has noticed")
    await agent.start()
    await pools.offers(whole, 8)
    after = await pools.run(pools.a_pod("after", whole, 2))

    assert not set(units_of(before)) & set(units_of(after))
    await check(pools, before, "main")
    await check(pools, after, "main")
    assert restarts(await pools.get("before")) == 0
    await pools.reported(after)


async def test_kubelet_restarts_while_pods_wait_for_it(pools: Pools, whole: str, agent: "Agent"):
    """Waiting pods come in another order than they were bound, and each gets its own."""
    (runs,) = await bound(pools, whole, "runs")
    await pools.running("runs")
    await pools.node.kubelet.stop()
    waiting = [f"waits-{number}" for number in range(6)]
    for name in reversed(waiting):
        await bound(pools, whole, name)
    await pools.node.kubelet.start()

    for name in waiting:
        await check(pools, await pools.running(name), "main")
    await check(pools, runs, "main")
    assert restarts(await pools.get("runs")) == 0


async def test_kubelet_is_killed_and_comes_back(pools: Pools, whole: str, agent: "Agent"):
    before = await pools.run(pools.a_pod("before", whole, 2))
    pools.node.kubelet.kill9()
    await pools.node.kubelet.start()
    await pools.node.wait_ready()
    await pools.offers(whole, 8)
    after = await pools.run(pools.a_pod("after", whole, 2))

    assert not set(units_of(before)) & set(units_of(after))
    await check(pools, before, "main")
    await check(pools, after, "main")


async def test_containerd_restarts_under_running_pods(pools: Pools, whole: str):
    before = await pools.run(pools.a_pod("before", whole, 2))
    await pools.node.containerd.restart()
    await pools.node.wait_ready()
    after = await pools.run(pools.a_pod("after", whole, 2))

    await check(pools, before, "main")
    await check(pools, after, "main")
    assert restarts(await pools.get("before")) == 0


async def test_a_device_fails_under_a_pod(pools: Pools, devices: "NodeDevices"):
    resource = await pools.make(10, 11)
    pod = await pools.run(pools.a_pod("victim", resource))
    (unit,) = units_of(pod)
    devices.driver.ask_for(unit, NODE_REBOOT)
    devices.driver.emit_xid(unit, 79)

    async def is_unhealthy() -> bool:
        statuses = (await pools.get("victim"))["status"].get("containerStatuses", [])
        current = json.dumps([status.get("allocatedResourcesStatus") for status in statuses])
        assert "Unhealthy" in current, current
        return True

    await polling.eventually(is_unhealthy, what="the pod's status says that its device is not well")
    await pools.recorded("GPUDeviceFaulted", "victim")
    await pools.offers_of(resource, 1)
    assert (await pools.get("victim"))["status"]["phase"] == "Running"
    # The other device goes on: a pod gets it, and no pod gets the failed one.
    await pools.create(pools.a_pod("waits", resource))
    await restart_driver(pools, devices)
    await pools.offers_of(resource, 2)
    await check(pools, await pools.running("waits"), "main")


async def test_a_device_is_out_for_as_long_as_its_driver_asks_for_a_reset(
    pools: Pools, devices: "NodeDevices"
):
    resource = await pools.make(10, 11)
    device = devices.devices[11]
    # A contained error needs nothing of the device: it stays, as the next Xid proves.
    devices.driver.emit_xid(device.uuid, 94)
    await pools.offers_of(resource, 2)
    devices.driver.ask_for(device.uuid, GPU_RESET)
    devices.driver.emit_xid(device.uuid, 119)
    file = pools.node.run_directory / node_devices_file.DEVICES_FILE

    def is_out() -> bool:
        found = msgspec.json.decode(file.read_bytes(), type=node_devices_file.NodeDevices).devices
        reasons = {item.uuid: item.reason for item in found}
        assert reasons[device.uuid] == "Xid119", f"{reasons}"
        return True

    await polling.eventually(is_out, what="the device is out", within=1.0, every=0.02)
    await pools.offers_of(resource, 1)
    name = device_name(NodeName(pools.node.name), device.address.lower()[4:])

    async def becomes(status: str, reason: str) -> None:
        async def is_so() -> bool:
            current = (await pools.api.conditions(f"{DEVICES}/{name}")).get("Healthy", {})
            assert (current.get("status"), current.get("reason")) == (status, reason), f"{current}"
            return True

        await polling.eventually(is_so, what=f"Healthy is {status}")

    await becomes("False", "GPUReset")
    devices.driver.reset(device.uuid)
    async with asyncio.timeout(CLEAN_S + BACK_WITHIN_S):
        await becomes("True", "Healthy")
        await pools.offers_of(resource, 2)
    assert (await pools.api.status(f"{DEVICES}/{name}"))["lastXid"]["code"] == 119


async def test_an_idle_device_that_needs_a_reset_comes_back_without_hands(
    pools: Pools, devices: "NodeDevices"
):
    """Its neighbours by NVLink are reset with it: those in the other pool wait for nobody here."""
    resource = await pools.make(10, 11, repair="Idle")
    pod = await pools.run(pools.a_pod("trains", resource))
    (unit,) = units_of(pod)
    devices.driver.ask_for(unit, GPU_RESET)
    devices.driver.emit_xid(unit, 119)
    await pools.offers_of(resource, 1)
    device = next(item for item in devices.devices if item.uuid == unit)
    name = device_name(NodeName(pools.node.name), device.address.lower()[4:])

    async def reaches(*steps: str) -> None:
        async def does() -> bool:
            repair = (await pools.api.status(f"{DEVICES}/{name}")).get("repair", {})
            assert repair.get("step") in steps, f"{repair}"
            return True

        await polling.eventually(does, what=f"the step {steps}", every=0.05)

    await reaches("Draining")
    assert devices.driver.read()[f"gpu.{device.minor}.field.230"] == str(GPU_RESET)
    await pools.delete("trains")
    await reaches("Testing", "Repaired")
    await reaches("Repaired")
    await pools.offers_of(resource, 2)


async def test_a_device_falls_off_the_bus_and_comes_back(pools: Pools, devices: "NodeDevices"):
    resource = await pools.make(10, 11)
    device = devices.devices[11]
    devices.driver.lose(device.uuid)
    await pools.offers_of(resource, 1)
    devices.driver.find(device.uuid)
    await pools.offers_of(resource, 2)


async def test_a_driver_that_hangs_stops_nobody(pools: Pools, whole: str, devices: "NodeDevices"):
    devices.driver.hang()
    try:
        await pools.degraded("DriverHangs")
        await check(pools, await pools.run(pools.a_pod("meanwhile", whole, 2)), "main")
    finally:
        devices.driver.unhang()
    await pools.degraded("AsExpected")


async def test_a_pod_is_killed_for_memory_and_runs_again_on_the_same_devices(
    pools: Pools, whole: str
):
    pod = pools.a_pod("hungry", whole, 2, restartPolicy="Always")
    (container,) = pod["spec"]["containers"]
    container["resources"]["limits"]["memory"] = "64Mi"
    # The first life fills its memory, the second one stays.
    fill = "[ -e /seen/once ] || { touch /seen/once; exec dd if=/dev/zero of=/dev/null bs=512M count=1; }; sleep 100000"
    container["command"] = ["sh", "-c", fill]
    container["volumeMounts"] = [{"name": "seen", "mountPath": "/seen"}]
    pod["spec"]["volumes"] = [{"name": "seen", "emptyDir": {}}]
    await pools.create(pod)

    async def came_back() -> bool:
        statuses = (await pools.get("hungry"))["status"].get("containerStatuses") or [{}]
        status = statuses[0]
        ended = status.get("lastState", {}).get("terminated", {})
        assert ended.get("reason") == "OOMKilled", f"{status}"
        return bool(status["state"].get("running"))

    await polling.eventually(came_back, what="a second life after OOMKilled")
    await check(pools, await pools.get("hungry"), "main")


async def test_a_node_is_drained(pools: Pools, whole: str, kubectl: "Kubectl", node: "RealNode"):
    await pools.run(pools.a_pod("leaves", whole, 2))
    try:
        await kubectl(
            "drain", node.name, "--force", "--delete-emptydir-data", "--ignore-daemonsets"
        )
        await pods.wait_for_pod_gone(pools.api, pools.namespace, "leaves")
        await pools.create(pools.a_pod("waits", whole, 2))
        await pods.wait_for_pod(pools.api, pools.namespace, "waits", pods.is_unschedulable)
    finally:
        await kubectl("uncordon", node.name)
    await check(pools, await pools.running("waits"), "main")


async def test_an_assignment_that_cannot_be_kept_is_told_and_the_allocation_state_follows(
    pools: Pools, whole: str, control_plane: "ControlPlane"
):
    """The same device is assigned twice, by a user who has the server's own rights."""
    holds = await pools.run(pools.a_pod("holds", whole))
    (held,) = units_of(holds)
    await bind_by_hand(pools, control_plane, "late", whole, held)
    late = await pools.running("late")

    seen = await pools.seen("late")
    assert len(seen.units) == 1
    assert seen.units != [held]
    assert units_of(late) == [held], "the annotation stays as it was"
    assert held in await pools.recorded("GPUDevicesSubstituted", "late")
    await pools.recorded("GPUAllocationMismatch", "late")
    # What it really has is given to nobody else: all that is left is.
    others = await pools.run(pools.a_pod("others", whole, 6))
    assert not set(units_of(others)) & {held, *seen.units}
    await check(pools, others, "main")


async def test_a_pod_for_which_nothing_is_left_is_refused_and_shares_nothing(
    pools: Pools, control_plane: "ControlPlane"
):
    resource = await pools.make(10, 11)
    holds = await pools.run(pools.a_pod("holds", resource))
    (held,) = units_of(holds)
    other = next(device.uuid for device in pools.devices.devices[10:] if device.uuid != held)
    # The other device is assigned to a pod that kubelet has not seen yet; then one too many comes.
    await pools.node.kubelet.stop()
    await bound(pools, resource, "first")
    await bind_by_hand(pools, control_plane, "one-too-many", resource, other)
    await pools.node.kubelet.start()
    phases: dict[str, str] = {}

    async def are_stable() -> bool:
        for name in ("first", "one-too-many"):
            phases[name] = (await pools.get(name))["status"]["phase"]
        assert sorted(phases.values()) == ["Failed", "Running"], f"{phases}"
        return True

    await polling.eventually(are_stable, what="one runs, one is refused")
    (refused,) = [name for name, phase in phases.items() if phase == "Failed"]
    assert (await pools.get(refused))["status"]["reason"] == "UnexpectedAdmissionError"


async def restart_driver(pools: Pools, devices: "NodeDevices") -> None:
    """Unload the driver and load it again; the node says so in between."""
    devices.driver.unload_driver()
    await pools.degraded("DriverNotLoaded")
    devices.driver.restart_driver()
    await pools.degraded("AsExpected")


async def bind_by_hand(
    pools: Pools, control_plane: "ControlPlane", name: str, resource: str, unit: str
) -> None:
    """Bind a pod as our server would, with a device of our choice."""
    await pools.create(pools.a_pod(name, resource, schedulerName="nobody"))
    path = f"{pods.collection(pools.namespace)}/{name}"
    kubeconfig = await control_plane.service_account_kubeconfig(NAMESPACE, "gpu-control-plane")
    async with client.open_client(kubeconfig) as server:
        await server.create(
            f"{path}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": name,
                    "annotations": {DEVICES_KEY: json.dumps({"main": [unit]})},
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": pools.node.name},
            },
        )
