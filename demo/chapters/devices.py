"""The demo's first chapters: cards are found, and come into pools."""

from typing import TYPE_CHECKING

from api.kinds.gpudevice import DeviceState
from api.names import ASSIGNMENT_ANNOTATION, RESOURCE_PREFIX
from demo.objects import (
    BIG_PRODUCT,
    DEVICES_PER_NODE,
    HOLD_S,
    NODES,
    SLICED_FROM,
    SLICED_NODE,
    SLICES,
    SLICES_PER_DEVICE,
    SMALL_PRODUCT,
    WHOLE,
    device_of,
    device_table,
    slices_pool,
    whole_pool,
)
from demo.story import Story
from kube.resources import GPU_POOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool

SMALL_DEVICES = DEVICES_PER_NODE - SLICED_FROM
BIG_DEVICES = len(NODES) * DEVICES_PER_NODE - SMALL_DEVICES


async def nodes_tell(story: Story) -> None:
    """Let nodes tell of their cards, and become ready."""
    story.title(f"{len(NODES)} nodes join, and tell of their {DEVICES_PER_NODE} GPU cards each")
    for agent in story.cluster.agents.values():
        await agent.report()
    wanted = {
        device_of(gpu, node): gpu.product.replace(" ", "-")
        for node in NODES
        for gpu in device_table(node)
    }
    devices = await story.until(
        f"there are {len(wanted)} devices, of the products that the cards are",
        story.cluster.devices,
        lambda found: {name: one.status.product for name, one in found.items()} == wanted,
    )
    story.say(
        "  An agent on each node writes what it finds; from that comes a GPUDevice for each card:"
    )
    story.say("  $ kubectl get gdev")
    _show(story, devices)
    story.check(
        f"{len(devices)} devices, of which no pool has any yet",
        holds=all(one.status.state is DeviceState.UNASSIGNED for one in devices.values()),
    )
    await story.until(
        "all nodes are ready for pooling",
        story.cluster.inventories,
        lambda found: {one.metadata.name for one in found if _is_ready(one)} == set(NODES),
    )
    story.claim(
        "all nodes are ready for pooling: what GPUs need there looked well three times in a row"
    )


async def by_annotation(story: Story) -> None:
    """Put cards into a pool by hand, and show what is refused."""
    gpus = device_table(SLICED_NODE)
    small = [device_of(gpu, SLICED_NODE) for gpu in gpus[SLICED_FROM:]]
    story.title(f"An operator makes the pool {SLICES}, and puts four cards into it by annotation")
    story.say(f"  One unit of it is a time slice: {SLICES_PER_DEVICE} pods take turns on a card.")
    await story.cluster.client.create(GPU_POOLS, slices_pool())
    await story.until_pool("is known", SLICES, lambda pool: bool(pool.status.phase))
    for name in small:
        story.say(f"  $ kubectl annotate gdev {name} {ASSIGNMENT_ANNOTATION}={SLICES}")
        await story.cluster.assign(name, SLICES)
    await story.until(
        f"the four cards are in pool {SLICES}",
        story.cluster.devices,
        lambda found: sorted(small) == _in_pool(found, SLICES),
    )
    story.claim(f"these four cards, and no others, are in pool {SLICES}")
    other = device_of(gpus[0], SLICED_NODE)
    await _is_refused(story, other, SLICES, says=f'the device has "{BIG_PRODUCT}"')
    await _is_refused(story, other, "slice", says="pool not found")
    devices = await story.cluster.devices()
    story.check(
        f"device {other} is where it was: in no pool, without an annotation",
        holds=devices[other].status.pool_ref is None and devices[other].assignment is None,
    )


async def by_product(story: Story) -> None:
    """Let a pool take its cards by itself, and show both pools as users see them."""
    story.title(f"A second pool, {WHOLE}, takes every {BIG_PRODUCT} by itself, now and later")
    story.say("  One unit of it is a whole card. The namespaces default and ml-team may use it.")
    await story.cluster.client.create(GPU_POOLS, whole_pool())
    sizes = {WHOLE: BIG_DEVICES, SLICES: SMALL_DEVICES * SLICES_PER_DEVICE}
    pools = [
        await story.until_pool(
            f"has {size} units, all of them available",
            name,
            lambda pool, size=size: _figures(pool) == (size, size),  # type: ignore[misc]  # bound at once
        )
        for name, size in sizes.items()
    ]
    story.say("  $ kubectl get gpool")
    heading = ("NAME", "MODE", "TOTAL", "USED", "AVAILABLE", "PHASE")
    story.table([heading, *map(_row, pools)])
    story.claim(
        f"{BIG_DEVICES} cards are {BIG_DEVICES} units, and {SMALL_DEVICES} cards {sizes[SLICES]}"
    )
    devices = await story.cluster.devices()
    story.check(
        f"no {SMALL_PRODUCT} is in pool {WHOLE}, no {BIG_PRODUCT} in pool {SLICES}",
        holds={(_pool_of(one), one.status.product) for one in devices.values()}
        == {(WHOLE, BIG_PRODUCT), (SLICES, SMALL_PRODUCT)},
    )
    for pool, count in ((WHOLE, SLICED_FROM), (SLICES, sizes[SLICES])):
        await story.until_offered(SLICED_NODE, pool, count)
        story.claim(
            f"node {SLICED_NODE}, which serves both, offers pods {RESOURCE_PREFIX}{pool}: {count}"
        )
    story.say(
        f"  What is held for a pod of {SLICES} is held for {HOLD_S} s; in {WHOLE}, for 2 min."
    )


async def _is_refused(story: Story, device: str, pool: str, *, says: str) -> None:
    story.say(f"  $ kubectl annotate gdev {device} {ASSIGNMENT_ANNOTATION}={pool}")
    what = f"an assignment of {device} to {pool}"
    await story.refused(what, story.cluster.assign(device, pool), says=says)


def _show(story: Story, devices: "Mapping[str, GPUDevice]") -> None:
    shown = [device_of(device_table(node)[-1], node) for node in (NODES[0], SLICED_NODE)]
    rows = [
        (name, one.status.node_name, one.status.state.value, one.status.product)
        for name, one in devices.items()
        if name in shown
    ]
    story.table([("NAME", "NODE", "STATE", "PRODUCT"), *rows])
    story.say(f"  … and {len(devices) - len(rows)} more")


def _is_ready(inventory: "GPUNodeInventory") -> bool:
    return any(
        (one.type, one.status) == ("ReadyForPooling", "True")
        for one in inventory.status.conditions or ()
    )


def _in_pool(devices: "Mapping[str, GPUDevice]", pool: str) -> list[str]:
    return sorted(name for name, one in devices.items() if _pool_of(one) == pool)


def _pool_of(device: "GPUDevice") -> str | None:
    ref = device.status.pool_ref
    return None if ref is None else ref.name


def _figures(pool: "GPUPool") -> tuple[int, int]:
    capacity = pool.status.capacity
    return capacity.total, capacity.available


def _row(pool: "GPUPool") -> tuple[str, ...]:
    capacity = pool.status.capacity
    figures = (capacity.total, capacity.used, capacity.available)
    return (pool.name, pool.allocation.mode.value, *map(str, figures), pool.status.phase)
