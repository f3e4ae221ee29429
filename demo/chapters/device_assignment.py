"""The demo's first chapters: discovery of devices, and their assignment to pools."""

from typing import TYPE_CHECKING

from api.kinds.gpudevice import DeviceState
from api.names import ASSIGNMENT_ANNOTATION, RESOURCE_PREFIX
from demo.fleet import name_of
from demo.objects import (
    BIG_PRODUCT,
    DEVICES_PER_NODE,
    NODES,
    RESERVATION_TTL_S,
    SLICED_FROM,
    SLICED_NODE,
    SLICES,
    SLICES_PER_DEVICE,
    SMALL_PRODUCT,
    WHOLE,
    device_table,
    slices_pool,
    whole_pool,
)
from demo.run import DemoRun
from kube.resources import GPU_POOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool

SMALL_DEVICES = DEVICES_PER_NODE - SLICED_FROM
BIG_DEVICES = len(NODES) * DEVICES_PER_NODE - SMALL_DEVICES


async def discovery(run: DemoRun) -> None:
    """Let the other nodes join, and become ready."""
    joined = {inventory.metadata.name for inventory in await run.cluster.inventories()}
    joining = [node for node in NODES if node not in joined]
    run.title(
        f"Nodes {' and '.join(joining)} join in the same way, each with {DEVICES_PER_NODE} GPUs"
    )
    for node in joining:
        await run.cluster.join(node)
    expected = {
        name_of(gpu, node): gpu.product.replace(" ", "-")
        for node in NODES
        for gpu in device_table(node)
    }
    devices = await run.until(
        f"there are {len(expected)} GPUDevices with the right products",
        run.cluster.devices,
        lambda found: {name: item.status.product for name, item in found.items()} == expected,
    )
    run.say("  $ kubectl get gdev")
    _show(run, devices)
    run.check(
        f"{len(devices)} devices, none of them in a pool yet",
        holds=all(device.status.state is DeviceState.UNASSIGNED for device in devices.values()),
    )
    await run.until(
        "all nodes are ready for pooling",
        run.cluster.inventories,
        lambda found: {item.metadata.name for item in found if _is_ready(item)} == set(NODES),
    )
    run.claim("all nodes are ready for pooling: the GPU software passed three checks in a row")


async def manual_assignment(run: DemoRun) -> None:
    """Assign devices to a pool by hand, and show refused assignments."""
    gpus = device_table(SLICED_NODE)
    small = [name_of(gpu, SLICED_NODE) for gpu in gpus[SLICED_FROM:]]
    run.title(f"An operator creates the pool {SLICES}, and assigns four devices by annotation")
    run.say(f"  Its unit is a time slice: {SLICES_PER_DEVICE} pods share a device.")
    await run.cluster.client.create(GPU_POOLS, slices_pool())
    await run.until_pool("is known", SLICES, lambda pool: bool(pool.status.phase))
    for name in small:
        run.say(f"  $ kubectl annotate gdev {name} {ASSIGNMENT_ANNOTATION}={SLICES}")
        await run.cluster.assign(name, SLICES)
    await run.until(
        f"the four devices are in pool {SLICES}",
        run.cluster.devices,
        lambda found: sorted(small) == _in_pool(found, SLICES),
    )
    run.claim(f"these four devices, and no others, are in pool {SLICES}")
    other = name_of(gpus[0], SLICED_NODE)
    await _is_refused(run, other, SLICES, says=f'the device has "{BIG_PRODUCT}"')
    await _is_refused(run, other, "slice", says="pool not found")
    devices = await run.cluster.devices()
    run.check(
        f"device {other} is unchanged: in no pool, without an annotation",
        holds=devices[other].status.pool_ref is None and devices[other].assignment is None,
    )


async def assignment_by_product(run: DemoRun) -> None:
    """Let a pool select its devices by product, and show both pools."""
    run.title(f"A second pool, {WHOLE}, selects every {BIG_PRODUCT}, present and future")
    run.say("  Its unit is a whole device. The namespaces default and ml-team may use it.")
    await run.cluster.client.create(GPU_POOLS, whole_pool())
    sizes = {WHOLE: BIG_DEVICES, SLICES: SMALL_DEVICES * SLICES_PER_DEVICE}
    pools = [
        await run.until_pool(
            f"has {size} units, all available",
            name,
            lambda pool, size=size: _figures(pool) == (size, size),  # type: ignore[misc]  # bound at once
        )
        for name, size in sizes.items()
    ]
    run.say("  $ kubectl get gpool")
    heading = ("NAME", "MODE", "TOTAL", "USED", "HELD", "FREE", "LARGEST", "WAITING", "PHASE")
    run.table([heading, *map(_row, pools)])
    run.claim(
        f"{BIG_DEVICES} devices are {BIG_DEVICES} units, and {SMALL_DEVICES} devices {sizes[SLICES]}"
    )
    devices = await run.cluster.devices()
    run.check(
        f"no {SMALL_PRODUCT} is in pool {WHOLE}, no {BIG_PRODUCT} in pool {SLICES}",
        holds={(_pool_of(device), device.status.product) for device in devices.values()}
        == {(WHOLE, BIG_PRODUCT), (SLICES, SMALL_PRODUCT)},
    )
    for pool, count in ((WHOLE, SLICED_FROM), (SLICES, sizes[SLICES])):
        await run.until_allocatable(SLICED_NODE, pool, count)
        run.claim(f"node {SLICED_NODE} serves both; allocatable {RESOURCE_PREFIX}{pool}: {count}")
    run.say(
        f"  Reservations last {RESERVATION_TTL_S} s in pool {SLICES}, and 2 min in pool {WHOLE}."
    )


async def _is_refused(run: DemoRun, device: str, pool: str, *, says: str) -> None:
    run.say(f"  $ kubectl annotate gdev {device} {ASSIGNMENT_ANNOTATION}={pool}")
    what = f"an assignment of {device} to {pool}"
    await run.refused(what, run.cluster.assign(device, pool), says=says)


def _show(run: DemoRun, devices: "Mapping[str, GPUDevice]") -> None:
    picked = [name_of(device_table(node)[-1], node) for node in (NODES[0], SLICED_NODE)]
    rows = [
        (name, item.status.node_name, item.status.state.value, item.status.product)
        for name, item in devices.items()
        if name in picked
    ]
    run.table([("NAME", "NODE", "STATE", "PRODUCT"), *rows])
    run.say(f"  … and {len(devices) - len(rows)} more")


def _is_ready(inventory: "GPUNodeInventory") -> bool:
    return any(
        (condition.type, condition.status) == ("ReadyForPooling", "True")
        for condition in inventory.status.conditions or ()
    )


def _in_pool(devices: "Mapping[str, GPUDevice]", pool: str) -> list[str]:
    return sorted(name for name, item in devices.items() if _pool_of(item) == pool)


def _pool_of(device: "GPUDevice") -> str | None:
    ref = device.status.pool_ref
    return None if ref is None else ref.name


def _figures(pool: "GPUPool") -> tuple[int, int]:
    capacity = pool.status.capacity
    return capacity.total, capacity.available


def _row(pool: "GPUPool") -> tuple[str, ...]:
    capacity = pool.status.capacity
    figures = (
        capacity.total,
        capacity.used,
        capacity.reserved,
        capacity.available,
        capacity.largest_free,
        pool.status.waiting,
    )
    return (pool.name, pool.allocation.mode.value, *map(str, figures), pool.status.phase)
