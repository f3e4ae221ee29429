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
from demo.story import Narrator
from kube.resources import GPU_POOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool

SMALL_DEVICES = DEVICES_PER_NODE - SLICED_FROM
BIG_DEVICES = len(NODES) * DEVICES_PER_NODE - SMALL_DEVICES


async def discovery(story: Narrator) -> None:
    """Let the other nodes join, and become ready."""
    joined = {inventory.metadata.name for inventory in await story.cluster.inventories()}
    joining = [node for node in NODES if node not in joined]
    story.title(
        f"Nodes {' and '.join(joining)} join in the same way, each with {DEVICES_PER_NODE} GPUs"
    )
    for node in joining:
        await story.cluster.join(node)
    expected = {
        name_of(gpu, node): gpu.product.replace(" ", "-")
        for node in NODES
        for gpu in device_table(node)
    }
    devices = await story.until(
        f"there are {len(expected)} GPUDevices with the right products",
        story.cluster.devices,
        lambda found: {name: item.status.product for name, item in found.items()} == expected,
    )
    story.say("  $ kubectl get gdev")
    _show(story, devices)
    story.check(
        f"{len(devices)} devices, none of them in a pool yet",
        holds=all(device.status.state is DeviceState.UNASSIGNED for device in devices.values()),
    )
    await story.until(
        "all nodes are ready for pooling",
        story.cluster.inventories,
        lambda found: {item.metadata.name for item in found if _is_ready(item)} == set(NODES),
    )
    story.claim("all nodes are ready for pooling: the GPU software passed three checks in a row")


async def manual_assignment(story: Narrator) -> None:
    """Assign devices to a pool by hand, and show refused assignments."""
    gpus = device_table(SLICED_NODE)
    small = [name_of(gpu, SLICED_NODE) for gpu in gpus[SLICED_FROM:]]
    story.title(f"An operator creates the pool {SLICES}, and assigns four devices by annotation")
    story.say(f"  Its unit is a time slice: {SLICES_PER_DEVICE} pods share a device.")
    await story.cluster.client.create(GPU_POOLS, slices_pool())
    await story.until_pool("is known", SLICES, lambda pool: bool(pool.status.phase))
    for name in small:
        story.say(f"  $ kubectl annotate gdev {name} {ASSIGNMENT_ANNOTATION}={SLICES}")
        await story.cluster.assign(name, SLICES)
    await story.until(
        f"the four devices are in pool {SLICES}",
        story.cluster.devices,
        lambda found: sorted(small) == _in_pool(found, SLICES),
    )
    story.claim(f"these four devices, and no others, are in pool {SLICES}")
    other = name_of(gpus[0], SLICED_NODE)
    await _is_refused(story, other, SLICES, says=f'the device has "{BIG_PRODUCT}"')
    await _is_refused(story, other, "slice", says="pool not found")
    devices = await story.cluster.devices()
    story.check(
        f"device {other} is unchanged: in no pool, without an annotation",
        holds=devices[other].status.pool_ref is None and devices[other].assignment is None,
    )


async def assignment_by_product(story: Narrator) -> None:
    """Let a pool select its devices by product, and show both pools."""
    story.title(f"A second pool, {WHOLE}, selects every {BIG_PRODUCT}, present and future")
    story.say("  Its unit is a whole device. The namespaces default and ml-team may use it.")
    await story.cluster.client.create(GPU_POOLS, whole_pool())
    sizes = {WHOLE: BIG_DEVICES, SLICES: SMALL_DEVICES * SLICES_PER_DEVICE}
    pools = [
        await story.until_pool(
            f"has {size} units, all available",
            name,
            lambda pool, size=size: _figures(pool) == (size, size),  # type: ignore[misc]  # bound at once
        )
        for name, size in sizes.items()
    ]
    story.say("  $ kubectl get gpool")
    heading = ("NAME", "MODE", "TOTAL", "USED", "HELD", "FREE", "LARGEST", "WAITING", "PHASE")
    story.table([heading, *map(_row, pools)])
    story.claim(
        f"{BIG_DEVICES} devices are {BIG_DEVICES} units, and {SMALL_DEVICES} devices {sizes[SLICES]}"
    )
    devices = await story.cluster.devices()
    story.check(
        f"no {SMALL_PRODUCT} is in pool {WHOLE}, no {BIG_PRODUCT} in pool {SLICES}",
        holds={(_pool_of(device), device.status.product) for device in devices.values()}
        == {(WHOLE, BIG_PRODUCT), (SLICES, SMALL_PRODUCT)},
    )
    for pool, count in ((WHOLE, SLICED_FROM), (SLICES, sizes[SLICES])):
        await story.until_allocatable(SLICED_NODE, pool, count)
        story.claim(f"node {SLICED_NODE} serves both; allocatable {RESOURCE_PREFIX}{pool}: {count}")
    story.say(
        f"  Reservations last {RESERVATION_TTL_S} s in pool {SLICES}, and 2 min in pool {WHOLE}."
    )


async def _is_refused(story: Narrator, device: str, pool: str, *, says: str) -> None:
    story.say(f"  $ kubectl annotate gdev {device} {ASSIGNMENT_ANNOTATION}={pool}")
    what = f"an assignment of {device} to {pool}"
    await story.refused(what, story.cluster.assign(device, pool), says=says)


def _show(story: Narrator, devices: "Mapping[str, GPUDevice]") -> None:
    picked = [name_of(device_table(node)[-1], node) for node in (NODES[0], SLICED_NODE)]
    rows = [
        (name, item.status.node_name, item.status.state.value, item.status.product)
        for name, item in devices.items()
        if name in picked
    ]
    story.table([("NAME", "NODE", "STATE", "PRODUCT"), *rows])
    story.say(f"  … and {len(devices) - len(rows)} more")


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
