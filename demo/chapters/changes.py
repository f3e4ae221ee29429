"""The demo's chapters about changes under running pods: a failing device, a new allocation."""

from typing import TYPE_CHECKING

from api.kinds.gpudevice import DeviceState
from demo.chapters.pods import create_pending_pod
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
from demo.story import Narrator, UntrueError, device_of, units_of
from telemetry.conditions import PoolCondition
from telemetry.reasons import EventReason, RefusalReason

if TYPE_CHECKING:
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool

FAULT = "Xid 79"


async def fault(story: Narrator) -> None:
    """Let a device fail under a pod, and recover."""
    story.title(
        f"A device fails under pod patient: {FAULT}, NVIDIA's code for a GPU that fell off the bus"
    )
    pod = await story.pod("patient")
    node, uuid = pod.spec.node_name, units_of(pod)[0]
    device = await _device_of(story, uuid)
    await story.cluster.agents[node].report_fault(uuid, FAULT)
    await _is_in_state(story, device, DeviceState.FAULTED)
    story.claim(f"device {device} is Faulted; Events on the device and on the pod:")
    await story.show_event(EventReason.DEVICE_FAULTED, device, says=FAULT)
    await story.show_event(EventReason.DEVICE_FAULTED, "patient", says=FAULT)
    story.check(
        "pod patient keeps running", holds=(await story.pod("patient")).status.phase == "Running"
    )
    await story.until_allocatable(node, WHOLE, DEVICES_PER_NODE - 1)
    story.claim(f"node {node} has {DEVICES_PER_NODE - 1} allocatable of {DEVICES_PER_NODE} devices")
    # Not all six: kube-scheduler counts a faulted device in use both as missing and as used.
    await story.cluster.create_pod(a_pod("train-4", WHOLE, DEVICES_PER_NODE - 3))
    await story.bind("train-4")
    await story.finish("patient")
    pool = await story.until_pool(
        "has two available devices and a faulted one",
        WHOLE,
        lambda pool: (pool.status.capacity.available, pool.status.capacity.unhealthy) == (2, 1),
    )
    capacity = pool.status.capacity
    story.claim(
        f"of {capacity.total} devices {capacity.used} are used, {capacity.available} are available,"
        f" {capacity.unhealthy} is unhealthy and gets no new pod"
    )
    await create_pending_pod(story, "careful", 3)
    since = story.cluster.clock.monotonic()
    await story.cluster.agents[node].report_fault(uuid, "")
    story.say("  an administrator resets the device; it must pass three health checks in a row")
    await _is_in_state(story, device, DeviceState.ASSIGNED)
    story.claim(f"device {device} has recovered:")
    await story.show_event(EventReason.DEVICE_RECOVERED, device)
    careful = await story.bind("careful")
    story.say(f"  it runs {story.cluster.clock.monotonic() - since:.1f} s after the reset")
    story.check("one of its devices is the recovered one", holds=uuid in units_of(careful))


async def reslicing(story: Narrator) -> None:
    """Change the number of time slices while pods run on them."""
    story.title(
        f"Time slices of half the size: {FINER_SLICES_PER_DEVICE} per device instead of"
        f" {SLICES_PER_DEVICE}, while pods run"
    )
    finer = f'{{"spec":{{"allocation":{{"slicesPerDevice":{FINER_SLICES_PER_DEVICE}}}}}}}'
    story.say(f"  $ kubectl patch gpool {SLICES} --type merge -p '{finer}'")
    await story.cluster.change_pool(
        SLICES, {"allocation": {"slicesPerDevice": FINER_SLICES_PER_DEVICE}}
    )
    await story.until_pool("is in maintenance", SLICES, _is_in_maintenance)
    story.claim("the pool is in maintenance until no pod uses a slice of the old size:")
    await story.show_event(EventReason.MAINTENANCE, SLICES)
    story.say("  a new pod is refused:")
    await story.refused(
        "a pod while its pool is in maintenance",
        story.cluster.create_pod(a_pod("early", SLICES, 1)),
        says=f" {RefusalReason.POOL_IN_MAINTENANCE.value}: ",
    )
    phases = {(await story.pod(name)).status.phase for name in ("notebook", "pipeline")}
    story.check("pods notebook and pipeline keep running", holds=phases == {"Running"})
    await story.finish("notebook", "pipeline")
    total = (DEVICES_PER_NODE - SLICED_FROM) * FINER_SLICES_PER_DEVICE
    await story.until_pool(
        f"has {total} units, and is not in maintenance",
        SLICES,
        lambda pool: not _is_in_maintenance(pool) and pool.status.capacity.available == total,
    )
    await story.until_allocatable(SLICED_NODE, SLICES, total)
    story.claim(
        f"the new allocation is in effect: {total} units, all allocatable on node {SLICED_NODE}:"
    )
    await story.show_event(EventReason.POOL_RECONFIGURED, SLICES)
    workers = tuple(f"worker-{number}" for number in range(FINER_SLICES_PER_DEVICE))
    await story.cluster.create_pod(a_pod("swarm", SLICES, 1, containers=workers))
    slices = units_of(await story.bind("swarm"))
    story.check(
        f"the {len(slices)} containers of pod swarm share one device, which had"
        f" {SLICES_PER_DEVICE} slices before",
        holds=len(set(slices)) == len(workers) and len({device_of(unit) for unit in slices}) == 1,
    )


async def _device_of(story: Narrator, uuid: str) -> str:
    for name, device in (await story.cluster.devices()).items():
        if device.status.uuid == uuid:
            return name
    raise UntrueError(f"there is a GPUDevice with UUID {uuid}")


async def _is_in_state(story: Narrator, name: str, state: DeviceState) -> "GPUDevice":
    return await story.until(
        f"device {name} is {state.value}",
        lambda: story.cluster.device(name),
        lambda device: device.status.state is state,
    )


def _is_in_maintenance(pool: "GPUPool") -> bool:
    return any(
        (condition.type, condition.status) == (PoolCondition.MAINTENANCE.value, "True")
        for condition in pool.status.conditions or ()
    )
