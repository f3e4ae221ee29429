"""The demo's chapters about pods: admission, reservation, placement, binding; refusal, waiting, expiry."""

from api.annotations import decode_devices, decode_reservation
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, RESOURCE_PREFIX
from demo.objects import RESERVATION_TTL_S, SLICES, WHOLE, a_pod
from demo.run import DemoRun, UntrueError, device_of, units_of
from kube.resources import PODS
from telemetry.reasons import EventReason, RefusalReason


async def whole_devices(run: DemoRun) -> None:
    """Admit and bind a pod that requests all devices of a node."""
    run.title(f"A pod requests 8 whole devices: limits: {{{RESOURCE_PREFIX}{WHOLE}: 8}}")
    await run.cluster.create_pod(a_pod("train", WHOLE, 8))
    pod = await run.pod("train")
    note = decode_reservation(pod.metadata.annotation(RESERVATION_ANNOTATION))
    if note is None or note.expires_at is None:
        raise UntrueError("pod train was admitted with a reservation")
    run.say(
        f"  admitted: 8 devices of node {note.node} are reserved until {note.expires_at:%H:%M:%S} UTC"
    )
    run.say(
        f"  kube-scheduler (profile {pod.spec.scheduler_name}) calls the extender to filter and bind"
    )
    pod = await run.bind("train")
    run.check("it is bound to the node of its reservation", holds=pod.spec.node_name == note.node)
    run.check(
        "its devices are the reserved ones",
        holds=decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) == note.devices,
    )


async def time_slices(run: DemoRun) -> None:
    """Bind two pods that share devices, one with two containers."""
    run.title("Time slices: pods share devices; slices of one container are on different devices")
    await run.cluster.create_pod(a_pod("notebook", SLICES, 2))
    await run.cluster.create_pod(a_pod("pipeline", SLICES, 1, containers=("load", "infer")))
    notebook, pipeline = await run.bind("notebook"), await run.bind("pipeline")
    devices = {device_of(unit) for unit in units_of(notebook)}
    run.check("the two slices of pod notebook are on two devices", holds=len(devices) == 2)
    run.check(
        "pod pipeline shares a device with it",
        holds=not devices.isdisjoint(device_of(unit) for unit in units_of(pipeline)),
    )
    given = decode_devices(pipeline.metadata.annotation(DEVICES_ANNOTATION)) or {}
    run.check(
        "each container of pod pipeline has a slice of its own",
        holds={name: len(units) for name, units in given.items()} == {"load": 1, "infer": 1},
    )


async def refusals(run: DemoRun) -> None:
    """Show the messages that users get for impossible requests."""
    run.title("Refused pods, and the messages to their users")
    both = a_pod("greedy", WHOLE, 1)
    both["spec"]["containers"][0]["resources"]["limits"][f"{RESOURCE_PREFIX}{SLICES}"] = "1"
    homework = a_pod("homework", WHOLE, 1, namespace="students")
    cases = (
        ("two pools in one pod", both, RefusalReason.MIXED_POOLS),
        ("a namespace without access to the pool", homework, RefusalReason.ACCESS_DENIED),
        ("more units than any node has", a_pod("huge", WHOLE, 9), RefusalReason.EXCEEDS_CAPACITY),
        ("a pool that does not exist", a_pod("typo", "hole", 1), RefusalReason.POOL_NOT_FOUND),
    )
    for what, body, reason in cases:
        run.say(f"  {what}:")
        await run.refused(what, run.cluster.create_pod(body), says=f" {reason.value}: ")


async def exhaustion(run: DemoRun) -> None:
    """Fill the pool; a further pod waits, and runs once devices are free."""
    run.title("The pool is exhausted: a pod waits, and runs as soon as devices are free")
    for name, units in (("train-2", 8), ("train-3", 4)):
        await run.cluster.create_pod(a_pod(name, WHOLE, units))
        await run.bind(name)
    await create_pending_pod(run, "patient", 2)
    since = run.cluster.clock.monotonic()
    await run.finish("train")
    await run.bind("patient")
    run.say(f"  it runs {run.cluster.clock.monotonic() - since:.1f} s later")


async def create_pending_pod(run: DemoRun, name: str, devices: int) -> None:
    """Create a pod without enough free devices; show that it stays Pending, and the messages."""
    warnings = await run.cluster.create_pod(a_pod(name, WHOLE, devices))
    run.waited.append(name)
    if not warnings:
        raise UntrueError(f"the creation of pod {name} returns a warning")
    run.say(f"  created: {name}, which requests {devices} devices. Warning:")
    run.quote(warnings[0])
    message = await run.until(
        f"kube-scheduler finds no node for pod {name}",
        lambda: run.cluster.why_unscheduled(name),
        bool,
    )
    run.say(f"  kubectl describe pod {name}:")
    run.quote(message)
    run.check("it stays Pending", holds=not (await run.pod(name)).spec.node_name)


async def expiry(run: DemoRun) -> None:
    """Show a reservation that expires."""
    run.title("A reservation expires: no scheduler runs for this pod, so its units become free")
    body = a_pod("forgotten", SLICES, 3)
    body["spec"]["schedulerName"] = "a-scheduler-that-does-not-run"
    await run.cluster.create_pod(body)
    run.waited.append("forgotten")
    await _until_reserved(run, 3)
    run.say(f"  waiting {RESERVATION_TTL_S} s …")
    await _until_reserved(run, 0)
    run.say("  Event on the pool:")
    await run.show_event(EventReason.RESERVATION_EXPIRED, SLICES)
    await run.cluster.client.delete(PODS, "forgotten", namespace="default")
    await run.until(
        "pod forgotten is gone", lambda: run.cluster.pod("forgotten"), lambda pod: pod is None
    )
    run.say("  its user deletes the pod")


async def _until_reserved(run: DemoRun, count: int) -> None:
    await run.until_pool(
        f"shows {count} reserved units",
        SLICES,
        lambda pool: pool.status.capacity.reserved == count,
    )
    run.say(f"  reserved in pool {SLICES}: {count}")
