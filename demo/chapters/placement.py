"""The demo's chapters about which devices a pod gets: aligned sets, fractions of one device, and what-if."""

from demo.objects import (
    DEVICES_PER_NODE,
    FRACTIONS_PER_DEVICE,
    SLICED_FROM,
    SLICES,
    WHOLE,
    a_pod,
)
from demo.run import DemoRun, device_of, units_of
from telemetry.reasons import RefusalReason

FRACTION = 23
BIG = 5


async def aligned_set(run: DemoRun) -> None:
    """Bind a pod of one device and one of four, and show their NUMA nodes."""
    run.title("Devices that belong together: four devices on one NUMA node")
    await run.finish("train-2")
    await run.cluster.create_pod(a_pod("single", WHOLE, 1))
    single = await run.bind("single")
    run.say("  the next pod requests four; seven are free, three of them beside the one in use")
    await run.cluster.create_pod(a_pod("quad", WHOLE, 4))
    quad = await run.bind("quad")
    taken = await _numa_nodes(run, units_of(single))
    together = await _numa_nodes(run, units_of(quad))
    run.check(
        f"the four devices of pod quad are on NUMA node {', '.join(map(str, together))}, that of pod"
        f" single is on NUMA node {', '.join(map(str, taken))}",
        holds=len(together) == 1 and together.isdisjoint(taken),
    )


async def what_if(run: DemoRun) -> None:
    """Ask what would become of a pod, do what the answer proposes, and show that it is true."""
    run.title(f"What if: would a pod of {BIG} whole devices be placed now?")
    body = a_pod("big", WHOLE, BIG)
    run.say("  $ gpu-control-plane simulate --pod big.yaml")
    answer = await run.cluster.what_if(body)
    run.quote(answer)
    run.check("it would wait", holds="would wait: no node takes it now" in answer)
    run.check(
        "it would be placed with 3 devices, or once pod quad ends",
        holds="ask for 3 units: node n2 would take the pod now" in answer
        and "when quad (4 units) ends, the pod fits on n2" in answer,
    )
    await run.finish("quad")
    await run.until_pool(
        "has seven available devices",
        WHOLE,
        lambda pool: pool.status.capacity.available == DEVICES_PER_NODE - 1,
    )
    run.check(
        "asked again, it would be placed on node n2",
        holds="node      n2" in await run.cluster.what_if(body),
    )
    await run.cluster.create_pod(body)
    pod = await run.bind("big")
    run.check("and so it is", holds=pod.spec.node_name == "n2")


async def fractions(run: DemoRun) -> None:
    """Change the pool of time slices to fractions of one device, and bind a fraction beside whole devices."""
    run.title("Fractions of one device beside whole devices, in one pool")
    allocation = {"slicesPerDevice": FRACTIONS_PER_DEVICE, "slicePlacement": "SameDevice"}
    run.say(
        f"  pool {SLICES}: {FRACTIONS_PER_DEVICE} slices per device, those of a container on the same device"
    )
    await run.finish("swarm")
    await run.cluster.change_pool(SLICES, {"allocation": allocation})
    total = (DEVICES_PER_NODE - SLICED_FROM) * FRACTIONS_PER_DEVICE
    await run.until_pool(
        f"has {total} available units", SLICES, lambda pool: pool.status.capacity.available == total
    )
    await run.until_allocatable("n3", SLICES, total)
    await run.cluster.create_pod(a_pod("fraction", SLICES, FRACTION))
    await run.cluster.create_pod(a_pod("quarters", SLICES, 2 * FRACTIONS_PER_DEVICE))
    fraction, quarters = await run.bind("fraction"), await run.bind("quarters")
    shared, whole = ({device_of(unit) for unit in units_of(pod)} for pod in (fraction, quarters))
    run.check(
        f"the {FRACTION} slices of pod fraction are {FRACTION * 100 // FRACTIONS_PER_DEVICE} % of one device",
        holds=len(shared) == 1,
    )
    run.check(
        f"the {2 * FRACTIONS_PER_DEVICE} slices of pod quarters are two other devices, whole",
        holds=len(whole) == 2 and whole.isdisjoint(shared),
    )
    run.say("  a part of several devices is refused:")
    await run.refused(
        "60 slices",
        run.cluster.create_pod(a_pod("uneven", SLICES, 60)),
        says=f" {RefusalReason.BAD_QUANTITY.value}: ",
    )


async def _numa_nodes(run: DemoRun, units: list[str]) -> set[int | None]:
    devices = (await run.cluster.devices()).values()
    return {device.status.numa_node for device in devices if device.status.uuid in units}
