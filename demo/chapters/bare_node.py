"""The demo's first chapter: a node without a label becomes ready by its devices alone."""

from typing import TYPE_CHECKING, Final

from api.names import PRESENT_LABEL
from demo.control_plane import SAMPLE_EVERY_S
from demo.objects import BARE_NODE, DEVICES_PER_NODE
from demo.observed_node import conditions_of, is_condition, view_of
from demo.run import DemoRun
from telemetry.conditions import InventoryCondition

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.observed_node import ObservedNode

READY_WITHIN_S: Final = 60.0

_Milestone = tuple[str, "Callable[[ObservedNode], bool]"]


def _validated(step: str) -> _Milestone:
    container = f"{step}-validation"
    return f"validator: {container} has succeeded", lambda seen: container in seen.passed


def _milestone(condition: InventoryCondition, status: str, meaning: str) -> _Milestone:
    text = f"{condition.value}={status}: {meaning}"
    return text, lambda seen: is_condition(seen.inventory, condition, status)


MILESTONES: Final[tuple[_Milestone, ...]] = (
    (
        f"the node detector finds {DEVICES_PER_NODE} GPUs on the PCI bus, and creates a NodeFeature",
        lambda seen: seen.detected == DEVICES_PER_NODE,
    ),
    (f"the server labels the node {PRESENT_LABEL}=true", lambda seen: seen.is_labelled),
    (
        f"the node agent runs there, and publishes the devices: {DEVICES_PER_NODE} GPUDevices",
        lambda seen: seen.devices == DEVICES_PER_NODE,
    ),
    _milestone(
        InventoryCondition.INVENTORY_INCOMPLETE, "False", "the UUID of every device is known"
    ),
    _validated("driver"),
    _validated("toolkit"),
    _validated("cuda"),
    _milestone(InventoryCondition.DRIVER_MISSING, "False", "the driver was good in three samples"),
    _milestone(InventoryCondition.TOOLKIT_MISSING, "False", "so was the container toolkit"),
    _milestone(InventoryCondition.READY_FOR_POOLING, "True", "pools may take the devices"),
)


async def bare_node(run: DemoRun) -> None:
    """Let a node join, and tell when it reaches which state."""
    run.title(
        f"A bare node joins: {BARE_NODE} has {DEVICES_PER_NODE} GPUs and a driver, and no label of ours"
    )
    run.say("  Only the node detector runs there. Seconds since the node joined:")
    clock = run.cluster.clock
    since = clock.monotonic()
    await run.cluster.join(BARE_NODE)
    awaited = dict(MILESTONES)
    while awaited:
        seen = await run.until(
            f"node {BARE_NODE}: {next(iter(awaited))}",
            lambda: view_of(run.cluster, BARE_NODE),
            lambda seen: any(holds(seen) for holds in awaited.values()),
        )
        elapsed_s = clock.monotonic() - since
        for text in [text for text, holds in awaited.items() if holds(seen)]:
            del awaited[text]
            run.claim(f"{elapsed_s:4.1f} s  {text}")
    seen = await view_of(run.cluster, BARE_NODE)
    run.say(f"  $ kubectl describe gni {BARE_NODE}")
    rows = [
        (condition.type, condition.status, condition.reason)
        for condition in conditions_of(seen.inventory).values()
    ]
    run.table([("CONDITION", "STATUS", "REASON"), *rows])
    run.check(
        f"the node is ready within {READY_WITHIN_S:g} s, without a label set by hand",
        holds=clock.monotonic() - since < READY_WITHIN_S,
    )
    run.say(f"  The demo takes a sample every {SAMPLE_EVERY_S:g} s; the default is 10 s.")
