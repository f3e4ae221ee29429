"""The demo's chapters about what changes while pods run: a card fails, a pool is cut anew."""

from typing import TYPE_CHECKING

from api.kinds.gpudevice import DeviceState
from demo.chapters.pods import waits
from demo.objects import (
    DEVICES_PER_NODE,
    FINER_SLICES_PER_DEVICE,
    SLICED_FROM,
    SLICED_NODE,
    SLICES,
    SLICES_PER_DEVICE,
    WHOLE,
    a_pod,
)
from demo.story import Story, UntrueError, device_of, units_of
from telemetry.conditions import PoolCondition
from telemetry.reasons import EventReason, RefusalReason

if TYPE_CHECKING:
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool

FAULT = "Xid 79"


async def fault(story: Story) -> None:
    """Let a card fail under a pod, and come back."""
    story.title(
        f"A card fails under pod patient: {FAULT}, NVIDIA's code for one that fell off the bus"
    )
    pod = await story.pod("patient")
    node, uuid = pod.spec.node_name, units_of(pod)[0]
    device = await _device_of(story, uuid)
    await story.cluster.agents[node].report_fault(uuid, FAULT)
    await _is_in_state(story, device, DeviceState.FAULTED)
    story.claim(f"device {device} is Faulted; events on it and on the pod:")
    await story.told(EventReason.DEVICE_FAULTED, device, says=FAULT)
    await story.told(EventReason.DEVICE_FAULTED, "patient", says=FAULT)
    story.check(
        "pod patient was left alone", holds=(await story.pod("patient")).status.phase == "Running"
    )
    await story.until_offered(node, WHOLE, DEVICES_PER_NODE - 1)
    story.claim(
        f"node {node} offers {DEVICES_PER_NODE - 1} of its {DEVICES_PER_NODE} cards to pods"
    )
    # Not all six: kube-scheduler counts a faulty card that a pod has both as missing and as used.
    await story.cluster.create_pod(a_pod("train-4", WHOLE, DEVICES_PER_NODE - 3))
    await story.bind("train-4")
    await story.finish("patient")
    pool = await story.until_pool(
        "has two cards left, and a faulted one",
        WHOLE,
        lambda pool: (pool.status.capacity.available, pool.status.capacity.unhealthy) == (2, 1),
    )
    capacity = pool.status.capacity
    story.claim(
        f"of {capacity.total} cards {capacity.used} are used, {capacity.available} are available,"
        f" {capacity.unhealthy} is unhealthy: no pod gets it"
    )
    await waits(story, "careful", 3)
    since = story.cluster.clock.monotonic()
    await story.cluster.agents[node].report_fault(uuid, "")
    story.say("  an administrator has reset the card; it has to look well three times in a row")
    await _is_in_state(story, device, DeviceState.ASSIGNED)
    story.claim(f"device {device} is back:")
    await story.told(EventReason.DEVICE_RECOVERED, device)
    careful = await story.bind("careful")
    story.say(f"  {story.cluster.clock.monotonic() - since:.1f} s after the reset it runs")
    story.check("among its cards is the one that had failed", holds=uuid in units_of(careful))


async def reslicing(story: Story) -> None:
    """Change how cards are cut, while pods run on them."""
    story.title(
        f"Slices of half the size: {FINER_SLICES_PER_DEVICE} a card instead of {SLICES_PER_DEVICE},"
        " while pods run"
    )
    finer = f'{{"spec":{{"allocation":{{"slicesPerDevice":{FINER_SLICES_PER_DEVICE}}}}}}}'
    story.say(f"  $ kubectl patch gpool {SLICES} --type merge -p '{finer}'")
    await story.cluster.change_pool(
        SLICES, {"allocation": {"slicesPerDevice": FINER_SLICES_PER_DEVICE}}
    )
    await story.until_pool("is in maintenance", SLICES, _is_in_maintenance)
    story.claim("the pool is in maintenance, until nobody uses a slice of the old size:")
    await story.told(EventReason.MAINTENANCE, SLICES)
    story.say("  a new pod is refused:")
    await story.refused(
        "a pod while its pool is in maintenance",
        story.cluster.create_pod(a_pod("early", SLICES, 1)),
        says=f" {RefusalReason.POOL_IN_MAINTENANCE.value}: ",
    )
    phases = {(await story.pod(name)).status.phase for name in ("notebook", "pipeline")}
    story.check("pods notebook and pipeline still run, as they were", holds=phases == {"Running"})
    await story.finish("notebook", "pipeline")
    total = (DEVICES_PER_NODE - SLICED_FROM) * FINER_SLICES_PER_DEVICE
    await story.until_pool(
        f"has {total} units, and is not in maintenance",
        SLICES,
        lambda pool: not _is_in_maintenance(pool) and pool.status.capacity.available == total,
    )
    await story.until_offered(SLICED_NODE, SLICES, total)
    story.claim(
        f"it is in effect: {total} units, all available, and node {SLICED_NODE} offers them:"
    )
    await story.told(EventReason.POOL_RECONFIGURED, SLICES)
    workers = tuple(f"worker-{number}" for number in range(FINER_SLICES_PER_DEVICE))
    await story.cluster.create_pod(a_pod("swarm", SLICES, 1, containers=workers))
    slices = units_of(await story.bind("swarm"))
    story.check(
        f"the {len(slices)} containers of pod swarm share one card, which had {SLICES_PER_DEVICE}"
        " slices before",
        holds=len(set(slices)) == len(workers) and len({device_of(unit) for unit in slices}) == 1,
    )


async def _device_of(story: Story, uuid: str) -> str:
    for name, device in (await story.cluster.devices()).items():
        if device.status.uuid == uuid:
            return name
    raise UntrueError(f"there is a device for card {uuid}")


async def _is_in_state(story: Story, name: str, state: DeviceState) -> "GPUDevice":
    return await story.until(
        f"device {name} is {state.value}",
        lambda: story.cluster.device(name),
        lambda device: device.status.state is state,
    )


def _is_in_maintenance(pool: "GPUPool") -> bool:
    return any(
        (one.type, one.status) == (PoolCondition.MAINTENANCE.value, "True")
        for one in pool.status.conditions or ()
    )
