"""The demo's last chapters: a pod waits beside free devices, and `kubectl gpu why` says why, and what would help."""

from typing import Final

from api.names import UNITS_CONDITION
from demo.chapters.pods import create_pending_pod
from demo.objects import DEVICES_PER_NODE, WHOLE, a_pod
from demo.run import DemoRun, UntrueError

WAITING: Final = "wide"
HOLDERS: Final = {"left": 5, "right": 6}
"""Pod -> its devices, on a node each."""
FREE: Final = 2 * DEVICES_PER_NODE - sum(HOLDERS.values())
LARGEST_FREE: Final = DEVICES_PER_NODE - min(HOLDERS.values())


async def fragmented(run: DemoRun) -> None:
    """Leave five free devices of which no node has four, and create a pod that wants four."""
    run.title(
        f"{FREE} devices are free, at most {LARGEST_FREE} of them on one node: a pod of"
        f" {LARGEST_FREE + 1} waits"
    )
    for name, devices in HOLDERS.items():
        await run.cluster.create_pod(a_pod(name, WHOLE, devices))
        await run.bind(name)
    await create_pending_pod(run, WAITING, LARGEST_FREE + 1)


async def why(run: DemoRun) -> None:
    """Show what the leader wrote into the pod, and the plugin's answer."""
    run.title(f"Why does pod {WAITING} still wait?")
    condition = await run.until(
        f"the leader has written the condition {UNITS_CONDITION} of pod {WAITING}",
        lambda: run.cluster.pod_condition(WAITING, UNITS_CONDITION),
        lambda found: found is not None,
    )
    if condition is None:
        raise UntrueError(f"pod {WAITING} has the condition {UNITS_CONDITION}")
    run.say(f"  kubectl describe pod {WAITING}: the leader has written")
    run.quote(f"{UNITS_CONDITION} {condition.status} ({condition.reason})")
    run.quote(condition.message)
    run.say(f"  $ kubectl gpu why {WAITING}")
    answer = await run.cluster.kubectl.gpu("why", WAITING, "--namespace", "default")
    for line in answer.splitlines():
        run.say(f"  {line}")
    run.check(
        "it says who has the devices, and what would help, each remedy tried on a copy",
        holds=all(
            text in answer
            for text in (
                f"{FREE} of ",
                f"at most {LARGEST_FREE} on one node",
                *(f"{name} ({devices})" for name, devices in HOLDERS.items()),
                f"ask for {LARGEST_FREE} units: node ",
                "the pod fits on ",
            )
        ),
    )
