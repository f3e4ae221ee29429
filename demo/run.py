"""Narration of the demo: every line is printed as it happens, and every claim is checked."""

import asyncio
import textwrap
from typing import TYPE_CHECKING, Final, TypeVar, final

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION, RESOURCE_PREFIX
from demo.cluster import AdmissionDenied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from api.foreign.core import Pod
    from api.kinds.gpupool import GPUPool
    from demo.cluster import DemoCluster
    from telemetry.reasons import EventReason

TIMEOUT_S: Final = 120.0
"""A wait ends with its fact; so long waits nobody but on a machine that is busy with other work, or for ever."""
POLL_INTERVAL_S: Final = 0.05
LINE: Final = 100
DEEP: Final = "      "
MANY: Final = 3
"""Number of units that are listed by name on one line."""
T = TypeVar("T")


class UntrueError(Exception):
    """A claim of the demo does not hold."""


@final
class DemoRun:
    """The cluster, and the steps that chapters share."""

    def __init__(self, cluster: "DemoCluster", say: "Callable[[str], None]") -> None:
        self.cluster = cluster
        self.say = say
        self.bound: set[str] = set()
        """Names of the pods that were bound."""
        self.waited: list[str] = []
        """Names of the pods that had to wait, or had no scheduler."""

    def title(self, text: str) -> None:
        """Start a chapter."""
        self.say(f"\n── {text}")

    def quote(self, text: str) -> None:
        """Print a message of another component; its lines keep their indent."""
        for line in text.splitlines():
            content = line.lstrip()
            indent = DEEP + line[: -len(content)] if content else DEEP
            self.say(
                textwrap.fill(
                    content,
                    LINE,
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_on_hyphens=False,
                )
            )

    def table(self, rows: "Sequence[Sequence[str]]") -> None:
        """Print rows, the first of which is the heading."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.say(f"  {'   '.join(cells).rstrip()}")

    def check(self, claim: str, *, holds: bool) -> None:
        """Check a claim, and print it.

        Raises:
            UntrueError: it does not hold.
        """
        if not holds:
            raise UntrueError(claim)
        self.claim(claim)

    def claim(self, claim: str) -> None:
        """Print a claim that was checked just before."""
        self.say(f"  ✓ {claim}")

    async def until(
        self, subject: str, read: "Callable[[], Awaitable[T]]", holds: "Callable[[T], bool]"
    ) -> T:
        """Return the first value that satisfies the condition.

        Raises:
            UntrueError: it was not so for too long.
        """
        deadline = self.cluster.clock.monotonic() + TIMEOUT_S
        while True:
            value = await read()
            if holds(value):
                return value
            if self.cluster.clock.monotonic() > deadline:
                raise UntrueError(f"{subject} (waited {TIMEOUT_S:g} s)")
            await asyncio.sleep(POLL_INTERVAL_S)

    async def until_pool(
        self, subject: str, name: str, holds: "Callable[[GPUPool], bool]"
    ) -> "GPUPool":
        """Return the pool once it satisfies the condition."""
        return await self.until(f"pool {name} {subject}", lambda: self.cluster.pool(name), holds)

    async def until_allocatable(self, node: str, pool: str, count: int) -> None:
        """Wait until the allocatable of a node has this count of units of a pool."""
        resource = RESOURCE_PREFIX + pool
        await self.until(
            f"node {node} offers {count} of {resource}",
            lambda: self.cluster.allocatable(node, resource),
            lambda found: found == count,
        )

    async def show_event(self, reason: "EventReason", name: str, *, says: str = "") -> None:
        """Wait for an Event about an object, and print it."""
        event = await self.until(
            f"an event {reason.value} is written about {name}",
            lambda: self.cluster.event(reason.value, name, says=says),
            lambda found: found is not None,
        )
        if event is None:
            raise UntrueError(f"there is an event {reason.value} about {name}")
        self.quote(f"{event.reason}: {event.note}")

    async def refused(self, subject: str, attempt: "Awaitable[object]", *, says: str) -> None:
        """Try a request that admission refuses, and print the message.

        Raises:
            UntrueError: it does not, or for another reason.
        """
        try:
            await attempt
        except AdmissionDenied as denied:
            if says not in str(denied):
                raise UntrueError(f'{subject} is refused with "{says}"; it says {denied}') from None
            self.quote(str(denied))
        else:
            raise UntrueError(f"{subject} is refused")

    async def pod(self, name: str, *, namespace: str = "default") -> "Pod":
        """Return a pod.

        Raises:
            UntrueError: it is not there.
        """
        pod = await self.cluster.pod(name, namespace)
        if pod is None:
            raise UntrueError(f"pod {name} does not exist")
        return pod

    async def bind(self, name: str) -> "Pod":
        """Wait until a pod runs, and print its node and devices."""
        pod = await self.until(
            f"pod {name} is running",
            lambda: self.pod(name),
            lambda pod: bool(pod.spec.node_name) and pod.status.phase in {"Running", "Succeeded"},
        )
        self.bound.add(name)
        self.say(f"  bound: {name} → {pod.spec.node_name} → {devices_text(pod)}")
        return pod

    async def finish(self, *names: str) -> None:
        """Let pods finish successfully."""
        for name in names:
            await self.cluster.kubelet.finish(await self.pod(name))
        verb = "has" if len(names) == 1 else "have"
        *first, last = names
        pods = f"pods {', '.join(first)} and {last}" if first else f"pod {last}"
        self.say(f"  {pods} {verb} finished")


def units_of(pod: "Pod") -> list[str]:
    """Return the units of a bound pod."""
    devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
    return [unit for units in devices.values() for unit in units]


def devices_text(pod: "Pod") -> str:
    """Return the units of a pod in short: by container if there are two, a range if there are many."""
    devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
    if not devices:
        return "-"
    if len(devices) == 2:
        return "; ".join(f"{name}: {_short(units)}" for name, units in devices.items())
    return _short(units_of(pod))


def device_of(unit: str) -> str:
    """Return the device of a time slice, `<device>::<number>`."""
    return unit.split("::", maxsplit=1)[0]


def _short(units: "Sequence[str]") -> str:
    if len(units) <= MANY:
        return ", ".join(units)
    return f"{units[0]} … {units[-1]} ({len(units)})"
