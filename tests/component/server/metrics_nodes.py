"""The part of the metrics' run that is about nodes: their devices, their software, and who reads it.

What came of it stands in the API server's objects: the gauges are compared with these.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from api.kinds.gpudevice import DeviceState, GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.meta import Condition
from api.names import ASSIGNMENT_ANNOTATION, NodeName
from http_edge.system_clock import SystemClock
from inventory.health.recovery import RecoveryAction
from inventory.identity import device_name
from kube.resources import (
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    NAMESPACES,
    NODE_FEATURES,
    PODS,
)
from simulator.node import nfd
from simulator.node.kubelet import register_node
from telemetry.conditions import DeviceCondition, InventoryCondition, PoolCondition
from tests.component.server.metrics_run import MetricsRun
from tests.support.dcgm import Exporter, an_exporter, device_lines
from tests.support.metric_samples import exported
from tests.support.node_features import address_of, agent_device, agent_feature, uuid_of
from tests.support.operands import an_operand_pod
from tests.support.polling import until, until_async

SOFTWARE_NAMESPACE = "gpu-operator"
IMPATIENT: Final[Any] = {
    "bootstrap": {"period_s": 0.1, "namespaces": [SOFTWARE_NAMESPACE]},
    "health": {"period_s": 0.1, "scrape_period_s": 0.2},
}
"""Settings of a server that looks often."""
N2 = NodeName("n2")
NAMES = [device_name(N2, address_of(number)) for number in range(2)]

Figures = Mapping[tuple[str, ...], float]


@asynccontextmanager
async def a_node_publishes_its_devices(run: MetricsRun) -> AsyncIterator[Exporter]:
    """One device goes into a pool, the other fails; the exporter breaks, and the agent goes."""
    client = run.cluster.client
    await register_node(client, N2, {}, labels={"nvidia.com/gpu.memory": "lots"})
    namespace = {"metadata": {"name": SOFTWARE_NAMESPACE}}
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **namespace})
    async with an_exporter(device_lines(uuid_of(N2, 0))) as exporter:
        ports = [{"name": "metrics", "containerPort": exporter.port}]
        app = "nvidia-dcgm-exporter"
        pod = an_operand_pod(app, name=app, node=N2, ip=exporter.host, ports=ports)
        status = pod.pop("status")
        await client.create(PODS, pod)
        await client.merge_patch(
            PODS, {"status": status}, name=app, namespace=SOFTWARE_NAMESPACE, subresource="status"
        )
        await agent_publishes(run, health="Healthy")
        await until_async(lambda: is_ready_for_pooling(run))
        # A patch that meets another write is decided about twice, and so counted twice.
        await run.cluster.until_stable()
        annotations = {ASSIGNMENT_ANNOTATION: "slow"}
        await client.merge_patch(
            GPU_DEVICES, {"metadata": {"annotations": annotations}}, name=NAMES[0]
        )
        run.admission["patched", "mutate-gpudevices"] += 1
        run.admission["allowed", "validate-gpudevices"] += 1
        await until_async(lambda: is_in_state(run, NAMES[0], DeviceState.ASSIGNED))
        await agent_publishes(run, health="Unhealthy")
        await until_async(lambda: is_in_state(run, NAMES[1], DeviceState.FAULTED))
        await client.delete(NODE_FEATURES, f"gpu-control-plane-agent-{N2}", namespace=nfd.NAMESPACE)
        await until(lambda: exporter.asked > 1)
        exporter.status, read = 500, exporter.asked
        await until(lambda: exporter.asked > read)
        run.scrapes["read",] = read
        yield exporter


async def agent_publishes(run: MetricsRun, *, health: str) -> None:
    """The agent of the node writes what it sees; the health is that of the second device."""
    devices = [agent_device(N2, 0), agent_device(N2, 1, health=health)]
    feature = agent_feature(N2, devices, heartbeat=SystemClock().utc_now())
    await run.cluster.client.apply(NODE_FEATURES, feature, field_manager="agent")


async def is_ready_for_pooling(run: MetricsRun) -> bool:
    found = (await run.cluster.client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)).items
    ready = InventoryCondition.READY_FOR_POOLING.value
    return any(
        item.metadata.name == N2 and ready in true_of(item.status.conditions) for item in found
    )


async def is_in_state(run: MetricsRun, name: str, state: DeviceState) -> bool:
    return (await run.cluster.client.get(GPU_DEVICES, GPUDevice, name)).status.state is state


# --- what stands in the API server -----------------------------------------------------------------


async def nodes_and_pools_are_exported(run: MetricsRun) -> None:
    """Every gauge of nodes, devices and pools says what their objects say."""

    async def differing() -> dict[str, tuple[Figures, Figures]]:
        expected = await as_objects_say(run)
        return {
            name: (figures, want)
            for name, want in expected.items()
            if (figures := exported(name)) != want
        }

    async def is_equal() -> bool:
        return not await differing()

    try:
        await until_async(is_equal)
    except TimeoutError:
        left = await differing()
        assert not left, f"shown, and what it should be: {left}"


async def as_objects_say(run: MetricsRun) -> dict[str, Figures]:
    """Return by gauge and label values, in order of label names, what should be shown."""
    client = run.cluster.client
    devices = (await client.list_(GPU_DEVICES, GPUDevice)).items
    inventories = (await client.list_(GPU_NODE_INVENTORIES, GPUNodeInventory)).items
    pools = (await client.list_(GPU_POOLS, GPUPool)).items
    return of_devices(devices) | of_inventories(inventories) | of_pools(pools, devices)


def of_devices(devices: list[GPUDevice]) -> dict[str, Figures]:
    healthy, stale = DeviceCondition.HEALTHY.value, DeviceCondition.STALE.value
    faults: Counter[tuple[str, ...]] = Counter(
        {(action.value,): 0 for action in RecoveryAction if action is not RecoveryAction.NONE}
    )
    faults.update(
        (condition.reason,)
        for device in devices
        for condition in device.status.conditions or ()
        if (condition.type, condition.status) == (healthy, "False")
    )
    return {
        "gpu_inventory_devices_total": Counter((item.node,) for item in devices),
        "gpu_inventory_devices_state": Counter(
            (item.node, item.status.state.value) for item in devices
        ),
        "gpu_device_faulted_total": dict(faults),
        "gpu_device_info": {
            (
                item.name,
                item.node,
                item.status.pool_ref.name if item.status.pool_ref is not None else "",
                item.status.product,
                item.status.uuid,
            ): 1
            for item in devices
            if item.status.uuid
        },
        "gpu_device_stale_total": {
            (): sum(stale in true_of(item.status.conditions) for item in devices)
        },
    }


def of_inventories(inventories: list[GPUNodeInventory]) -> dict[str, Figures]:
    ready = InventoryCondition.READY_FOR_POOLING.value
    of_facts = {
        InventoryCondition.MANAGED_DISABLED.value,
        InventoryCondition.INVENTORY_INCOMPLETE.value,
    }
    true = {
        inventory.metadata.name: true_of(inventory.status.conditions) for inventory in inventories
    }
    return {
        "gpu_node_inventory_condition": {
            (condition.type, inventory.metadata.name): condition.status == "True"
            for inventory in inventories
            for condition in inventory.status.conditions or ()
        },
        "gpu_bootstrap_condition": {
            (type_, node): 1 for node, types in true.items() for type_ in types - of_facts
        },
        "gpu_bootstrap_ready": {(node,): ready in types for node, types in true.items()},
        "gpu_bootstrap_node_phase": {
            (inventory.metadata.name, inventory.status.phase.value): 1
            for inventory in inventories
            if inventory.status.phase is not None
        },
    }


def of_pools(pools: list[GPUPool], devices: list[GPUDevice]) -> dict[str, Figures]:
    slots: Counter[tuple[str, ...]] = Counter()
    assigned: Counter[tuple[str, ...]] = Counter({(pool.name,): 0 for pool in pools})
    for device in devices:
        if device.status.pool_ref is not None:
            slots[device.node, device.status.pool_ref.name] += device.status.units.capacity
            assigned[device.status.pool_ref.name,] += 1
    return {
        "gpupool_assignments": dict(assigned),
        "gpupool_node_slots": slots,
        "gpupool_condition": {
            (type_.value, pool.name): type_.value in true_of(pool.status.conditions)
            for pool in pools
            for type_ in PoolCondition
        },
    }


def true_of(conditions: Iterable[Condition] | None) -> set[str]:
    return {condition.type for condition in conditions or () if condition.status == "True"}
