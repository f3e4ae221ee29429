"""The demo's chapters about which devices a pod gets: aligned sets, fractions of one device, and what-if."""

from demo.objects import (
    DEVICES_PER_NODE,
    FRACTIONS_PER_DEVICE,
    SLICED_FROM,
    SLICES,
    WHOLE,
    a_pod,
)
from demo.story import Narrator, device_of, units_of
from telemetry.reasons import RefusalReason

FRACTION = 23
BIG = 5


async def aligned_set(story: Narrator) -> None:
    """Bind a pod of one device and one of four, and show their NUMA nodes."""
    story.title("Devices that belong together: four devices on one NUMA node")
    await story.finish("train-2")
    await story.cluster.create_pod(a_pod("single", WHOLE, 1))
    single = await story.bind("single")
    story.say("  the next pod requests four; seven are free, three of them beside the one in use")
    await story.cluster.create_pod(a_pod("quad", WHOLE, 4))
    quad = await story.bind("quad")
    taken = await _numa_nodes(story, units_of(single))
    together = await _numa_nodes(story, units_of(quad))
    story.check(
        f"the four devices of pod quad are on NUMA node {', '.join(map(str, together))}, that of pod"
        f" single is on NUMA node {', '.join(map(str, taken))}",
        holds=len(together) == 1 and together.isdisjoint(taken),
    )


async def what_if(story: Narrator) -> None:
    """Ask what would become of a pod, do what the answer proposes, and show that it is true."""
    story.title(f"What if: would a pod of {BIG} whole devices be placed now?")
    body = a_pod("big", WHOLE, BIG)
    story.say("  $ gpu-control-plane simulate --pod big.yaml")
    answer = await story.cluster.what_if(body)
    story.quote(answer)
    story.check("it would wait", holds="would wait: no node takes it now" in answer)
    story.check(
        "it would be placed with 3 devices, or once pod quad ends",
        holds="ask for 3 units: node n2 would take the pod now" in answer
        and "when quad (4 units) ends, the pod fits on n2" in answer,
    )
    await story.finish("quad")
    await story.until_pool(
        "has seven available devices",
        WHOLE,
        lambda pool: pool.status.capacity.available == DEVICES_PER_NODE - 1,
    )
    story.check(
        "asked again, it would be placed on node n2",
        holds="node      n2" in await story.cluster.what_if(body),
    )
    await story.cluster.create_pod(body)
    pod = await story.bind("big")
    story.check("and so it is", holds=pod.spec.node_name == "n2")


async def fractions(story: Narrator) -> None:
    """Change the pool of time slices to fractions of one device, and bind a fraction beside whole devices."""
    story.title("Fractions of one device beside whole devices, in one pool")
    allocation = {"slicesPerDevice": FRACTIONS_PER_DEVICE, "slicePlacement": "SameDevice"}
    story.say(
        f"  pool {SLICES}: {FRACTIONS_PER_DEVICE} slices per device, those of a container on the same device"
    )
    await story.finish("swarm")
    await story.cluster.change_pool(SLICES, {"allocation": allocation})
    total = (DEVICES_PER_NODE - SLICED_FROM) * FRACTIONS_PER_DEVICE
    await story.until_pool(
        f"has {total} available units", SLICES, lambda pool: pool.status.capacity.available == total
    )
    await story.until_allocatable("n3", SLICES, total)
    await story.cluster.create_pod(a_pod("fraction", SLICES, FRACTION))
    await story.cluster.create_pod(a_pod("quarters", SLICES, 2 * FRACTIONS_PER_DEVICE))
    fraction, quarters = await story.bind("fraction"), await story.bind("quarters")
    shared, whole = ({device_of(unit) for unit in units_of(pod)} for pod in (fraction, quarters))
    story.check(
        f"the {FRACTION} slices of pod fraction are {FRACTION * 100 // FRACTIONS_PER_DEVICE} % of one device",
        holds=len(shared) == 1,
    )
    story.check(
        f"the {2 * FRACTIONS_PER_DEVICE} slices of pod quarters are two other devices, whole",
        holds=len(whole) == 2 and whole.isdisjoint(shared),
    )
    story.say("  a part of several devices is refused:")
    await story.refused(
        "60 slices",
        story.cluster.create_pod(a_pod("uneven", SLICES, 60)),
        says=f" {RefusalReason.BAD_QUANTITY.value}: ",
    )


async def _numa_nodes(story: Narrator, units: list[str]) -> set[int | None]:
    devices = (await story.cluster.devices()).values()
    return {device.status.numa_node for device in devices if device.status.uuid in units}
