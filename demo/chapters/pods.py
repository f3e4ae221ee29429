"""The demo's chapters about pods: admitted, held, placed, bound; refused, waiting, given up."""

from api.annotations import decode_devices, decode_reservation
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, RESOURCE_PREFIX
from demo.objects import HOLD_S, SLICES, WHOLE, a_pod
from demo.story import Story, UntrueError, device_of, units_of
from kube.resources import PODS
from telemetry.reasons import EventReason, RefusalReason


async def whole_devices(story: Story) -> None:
    """Admit, hold, place and bind a pod that wants every card of a node."""
    story.title(f"A pod asks for 8 whole cards: limits: {{{RESOURCE_PREFIX}{WHOLE}: 8}}")
    await story.cluster.create_pod(a_pod("train", WHOLE, 8))
    pod = await story.pod("train")
    note = decode_reservation(pod.metadata.annotation(RESERVATION_ANNOTATION))
    if note is None or note.expires_at is None:
        raise UntrueError("pod train was admitted with a hold")
    story.say(
        f"  admitted: 8 cards of node {note.node} are held for it until {note.expires_at:%H:%M:%S} UTC"
    )
    story.say(
        f"  kube-scheduler, known as {pod.spec.scheduler_name} to it, asks where it fits, and has it bound"
    )
    pod = await story.bind("train")
    story.check("it was bound where its cards were held", holds=pod.spec.node_name == note.node)
    story.check(
        "it got the very cards that were held for it",
        holds=decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) == note.devices,
    )


async def time_slices(story: Story) -> None:
    """Bind two pods that share cards, one with two containers."""
    story.title("Time slices: pods share cards, but a container's slices lie on different ones")
    await story.cluster.create_pod(a_pod("notebook", SLICES, 2))
    await story.cluster.create_pod(a_pod("pipeline", SLICES, 1, containers=("load", "infer")))
    notebook, pipeline = await story.bind("notebook"), await story.bind("pipeline")
    devices = {device_of(unit) for unit in units_of(notebook)}
    story.check("the two slices of pod notebook lie on two cards", holds=len(devices) == 2)
    story.check(
        "pod pipeline shares a card with it",
        holds=not devices.isdisjoint(device_of(unit) for unit in units_of(pipeline)),
    )
    given = decode_devices(pipeline.metadata.annotation(DEVICES_ANNOTATION)) or {}
    story.check(
        "each container of pod pipeline has a slice of its own",
        holds={name: len(units) for name, units in given.items()} == {"load": 1, "infer": 1},
    )


async def refusals(story: Story) -> None:
    """Show what users are told when they ask for what they cannot have."""
    story.title("What is refused, and what the user reads")
    both = a_pod("greedy", WHOLE, 1)
    both["spec"]["containers"][0]["resources"]["limits"][f"{RESOURCE_PREFIX}{SLICES}"] = "1"
    homework = a_pod("homework", WHOLE, 1, namespace="students")
    cases = (
        ("two pools in one pod", both, RefusalReason.MIXED_POOLS),
        ("a namespace that may not use the pool", homework, RefusalReason.ACCESS_DENIED),
        ("more than any node has", a_pod("huge", WHOLE, 9), RefusalReason.EXCEEDS_CAPACITY),
        ("a pool that does not exist", a_pod("typo", "hole", 1), RefusalReason.POOL_NOT_FOUND),
    )
    for what, body, reason in cases:
        story.say(f"  {what}:")
        await story.refused(what, story.cluster.create_pod(body), says=f" {reason.value}: ")


async def exhaustion(story: Story) -> None:
    """Fill the pool; a further pod waits, and runs as soon as a card is free."""
    story.title("The pool is exhausted: a pod waits, and runs as soon as cards are free")
    for name, units in (("train-2", 8), ("train-3", 4)):
        await story.cluster.create_pod(a_pod(name, WHOLE, units))
        await story.bind(name)
    await waits(story, "patient", 2)
    since = story.cluster.clock.monotonic()
    await story.finish("train")
    await story.bind("patient")
    story.say(f"  {story.cluster.clock.monotonic() - since:.1f} s later it runs")


async def waits(story: Story, name: str, devices: int) -> None:
    """Create a pod for which there are too few whole cards; show that it waits, and what it is told."""
    warnings = await story.cluster.create_pod(a_pod(name, WHOLE, devices))
    story.waited.append(name)
    if not warnings:
        raise UntrueError("who creates a pod that has to wait is warned")
    story.say(f"  created: {name}, which asks for {devices} cards. Warning:")
    story.quote(warnings[0])
    verdict = await story.until(
        f"kube-scheduler finds no node for pod {name}",
        lambda: story.cluster.why_unscheduled(name),
        bool,
    )
    story.say(f"  kubectl describe pod {name}:")
    story.quote(verdict)
    story.check("it waits", holds=not (await story.pod(name)).spec.node_name)


async def expiry(story: Story) -> None:
    """Let a hold run out in the open."""
    story.title("A hold expires: nobody schedules this pod, so its slices are given back")
    body = a_pod("forgotten", SLICES, 3)
    body["spec"]["schedulerName"] = "a-scheduler-that-does-not-run"
    await story.cluster.create_pod(body)
    story.waited.append("forgotten")
    await _shows_reserved(story, 3)
    story.say(f"  waiting for the {HOLD_S} s to pass …")
    await _shows_reserved(story, 0)
    story.say("  event on the pool:")
    await story.told(EventReason.RESERVATION_EXPIRED, SLICES)
    await story.cluster.client.delete(PODS, "forgotten", namespace="default")
    await story.until(
        "pod forgotten is gone", lambda: story.cluster.pod("forgotten"), lambda pod: pod is None
    )
    story.say("  its user gives up, and deletes it")


async def _shows_reserved(story: Story, count: int) -> None:
    await story.until_pool(
        f"shows {count} reserved units",
        SLICES,
        lambda pool: pool.status.capacity.reserved == count,
    )
    story.say(f"  reserved in pool {SLICES}: {count}")
