"""A chapter of the demo: API writes, and the devices of each pod."""

from api.foreign.core import Pod
from demo.run import DemoRun, UntrueError, devices_text, units_of
from kube.resources import PODS


async def accounts(run: DemoRun) -> None:
    """Count the server's writes to pods, and show pod, node and devices."""
    run.title("API writes, and the devices of each pod")
    writes = run.cluster.server_writes()
    bindings = [path for _, path in writes if path.endswith("/binding")]
    others = [write for write in writes if write[1] not in bindings]
    # kube-scheduler may have tried a pending pod before our watch showed that devices are free.
    woken = {name: others.count(("PATCH", PODS.path("default", name))) for name in run.waited}
    run.check(
        f"{len(run.bound)} pods were bound, each with exactly one write to the API server",
        holds=len(set(bindings)) == len(bindings) == len(run.bound)
        and len(others) == sum(woken.values()),
    )
    for name, count in woken.items():
        if count:
            times = "once" if count == 1 else f"{count} times"
            run.claim(f"pending pod {name} was requeued {times}, by an annotation")
    run.check(
        "the server read no single pod: the watch is enough",
        holds=run.cluster.server_pod_reads() == 0,
    )
    pods = sorted(
        (await run.cluster.client.list_(PODS, Pod, namespace="default")).items,
        key=lambda pod: pod.metadata.name,
    )
    holders: dict[str, str] = {}
    for pod in pods:
        for unit in () if pod.is_terminal else units_of(pod):
            if unit in holders:
                raise UntrueError(
                    f"{unit} is allocated to {holders[unit]} and to {pod.metadata.name}"
                )
            holders[unit] = pod.metadata.name
    run.claim(f"{len(holders)} units are in use, none of them twice")
    run.say("")
    run.table([("POD", "NODE", "DEVICES"), *map(_row, pods)])


def _row(pod: Pod) -> tuple[str, str, str]:
    ended = " (ended)" if pod.is_terminal else ""
    return (pod.metadata.name + ended, pod.spec.node_name or "(waiting)", devices_text(pod))
