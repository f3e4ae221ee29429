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
from demo.run import DemoRun, UntrueError, device_of, units_of
from telemetry.conditions import PoolCondition
from telemetry.reasons import EventReason, RefusalReason

if TYPE_CHECKING:
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool

FAULT = "Xid 79"


async def fault(run: DemoRun) -> None:
    """Let a device fail under a pod, and recover."""
    run.title(
        f"A device fails under pod patient: {FAULT}, NVIDIA's code for a GPU that fell off the bus"
    )
    pod = await run.pod("patient")
    node, uuid = pod.spec.node_name, units_of(pod)[0]
    device = await _device_of(run, uuid)
    await run.cluster.agents[node].report_fault(uuid, FAULT)
    await _is_in_state(run, device, DeviceState.FAULTED)
    run.claim(f"device {device} is Faulted; Events on the device and on the pod:")
    await run.show_event(EventReason.DEVICE_FAULTED, device, says=FAULT)
    await run.show_event(EventReason.DEVICE_FAULTED, "patient", says=FAULT)
    run.check(
        "pod patient keeps running", holds=(await run.pod("patient")).status.phase == "Running"
    )
    await run.until_allocatable(node, WHOLE, DEVICES_PER_NODE - 1)
    run.claim(f"node {node} has {DEVICES_PER_NODE - 1} allocatable of {DEVICES_PER_NODE} devices")
    # Not all six: kube-scheduler counts a faulted device in use both as missing and as used.
    await run.cluster.create_pod(a_pod("train-4", WHOLE, DEVICES_PER_NODE - 3))
    await run.bind("train-4")
    await run.finish("patient")
    pool = await run.until_pool(
        "has two available devices and a faulted one",
        WHOLE,
        lambda pool: (pool.status.capacity.available, pool.status.capacity.unhealthy) == (2, 1),
    )
    capacity = pool.status.capacity
    run.claim(
        f"of {capacity.total} devices {capacity.used} are used, {capacity.available} are available,"
        f" {capacity.unhealthy} is unhealthy and gets no new pod"
    )
    await create_pending_pod(run, "careful", 3)
    since = run.cluster.clock.monotonic()
    await run.cluster.agents[node].report_fault(uuid, "")
    run.say("  an administrator resets the device; it must pass three health checks in a row")
    await _is_in_state(run, device, DeviceState.ASSIGNED)
    run.claim(f"device {device} has recovered:")
    await run.show_event(EventReason.DEVICE_RECOVERED, device)
    careful = await run.bind("careful")
    run.say(f"  it runs {run.cluster.clock.monotonic() - since:.1f} s after the reset")
    run.check("one of its devices is the recovered one", holds=uuid in units_of(careful))


async def reslicing(run: DemoRun) -> None:
    """Change the number of time slices while pods run on them."""
    run.title(
        f"Time slices of half the size: {FINER_SLICES_PER_DEVICE} per device instead of"
        f" {SLICES_PER_DEVICE}, while pods run"
    )
    finer = f'{{"spec":{{"allocation":{{"slicesPerDevice":{FINER_SLICES_PER_DEVICE}}}}}}}'
    run.say(f"  $ kubectl patch gpool {SLICES} --type merge -p '{finer}'")
    await run.cluster.change_pool(
        SLICES, {"allocation": {"slicesPerDevice": FINER_SLICES_PER_DEVICE}}
    )
    await run.until_pool("is in maintenance", SLICES, _is_in_maintenance)
    run.claim("the pool is in maintenance until no pod uses a slice of the old size:")
    await run.show_event(EventReason.MAINTENANCE, SLICES)
    run.say("  a new pod is refused:")
    await run.refused(
        "a pod while its pool is in maintenance",
        run.cluster.create_pod(a_pod("early", SLICES, 1)),
        says=f" {RefusalReason.POOL_IN_MAINTENANCE.value}: ",
    )
    phases = {(await run.pod(name)).status.phase for name in ("notebook", "pipeline")}
    run.check("pods notebook and pipeline keep running", holds=phases == {"Running"})
    await run.finish("notebook", "pipeline")
    total = (DEVICES_PER_NODE - SLICED_FROM) * FINER_SLICES_PER_DEVICE
    await run.until_pool(
        f"has {total} units, and is not in maintenance",
        SLICES,
        lambda pool: not _is_in_maintenance(pool) and pool.status.capacity.available == total,
    )
    await run.until_allocatable(SLICED_NODE, SLICES, total)
    run.claim(
        f"the new allocation is in effect: {total} units, all allocatable on node {SLICED_NODE}:"
    )
    await run.show_event(EventReason.POOL_RECONFIGURED, SLICES)
    workers = tuple(f"worker-{number}" for number in range(FINER_SLICES_PER_DEVICE))
    await run.cluster.create_pod(a_pod("swarm", SLICES, 1, containers=workers))
    slices = units_of(await run.bind("swarm"))
    run.check(
        f"the {len(slices)} containers of pod swarm share one device, which had"
        f" {SLICES_PER_DEVICE} slices before",
        holds=len(set(slices)) == len(workers) and len({device_of(unit) for unit in slices}) == 1,
    )


async def _device_of(run: DemoRun, uuid: str) -> str:
    for name, device in (await run.cluster.devices()).items():
        if device.status.uuid == uuid:
            return name
    raise UntrueError(f"there is a GPUDevice with UUID {uuid}")


async def _is_in_state(run: DemoRun, name: str, state: DeviceState) -> "GPUDevice":
    return await run.until(
        f"device {name} is {state.value}",
        lambda: run.cluster.device(name),
        lambda device: device.status.state is state,
    )


def _is_in_maintenance(pool: "GPUPool") -> bool:
    return any(
        (condition.type, condition.status) == (PoolCondition.MAINTENANCE.value, "True")
        for condition in pool.status.conditions or ()
    )
