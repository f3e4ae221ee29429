"""How the demo is told: a line is said while it happens, and every claim is checked."""

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

PATIENCE_S: Final = 20.0
LOOK_EVERY_S: Final = 0.05
LINE: Final = 100
DEEP: Final = "      "
MANY: Final = 3
"""So many units fit a line of a terminal by name."""
T = TypeVar("T")


class UntrueError(Exception):
    """Something that the demo claims is not so."""


@final
class Story:
    """The cluster that it is about, and what chapters have in common."""

    def __init__(self, cluster: "DemoCluster", say: "Callable[[str], None]") -> None:
        self.cluster = cluster
        self.say = say
        self.bound: set[str] = set()
        """Names of the pods that were bound."""
        self.waited: list[str] = []
        """Names of the pods that had to wait, or that nobody scheduled."""

    # --- telling -------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        """Begin a chapter."""
        self.say(f"\n── {text}")

    def quote(self, text: str) -> None:
        """Show what somebody else said."""
        self.say(
            textwrap.fill(
                text,
                LINE,
                initial_indent=DEEP,
                subsequent_indent=DEEP,
                break_on_hyphens=False,
            )
        )

    def table(self, rows: "Sequence[Sequence[str]]") -> None:
        """Show rows, the first of which is the heading."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.say(f"  {'   '.join(cells).rstrip()}")

    def check(self, claim: str, *, holds: bool) -> None:
        """Claim something.

        Raises:
            Untrue: it does not hold.
        """
        if not holds:
            raise UntrueError(claim)
        self.claim(claim)

    def claim(self, claim: str) -> None:
        """Say what was checked just before."""
        self.say(f"  ✓ {claim}")

    # --- looking -------------------------------------------------------------------------------

    async def until(
        self, what: str, read: "Callable[[], Awaitable[T]]", holds: "Callable[[T], bool]"
    ) -> T:
        """Return what was read once it is so.

        Raises:
            Untrue: it was not so for too long.
        """
        deadline = self.cluster.clock.monotonic() + PATIENCE_S
        while True:
            value = await read()
            if holds(value):
                return value
            if self.cluster.clock.monotonic() > deadline:
                raise UntrueError(f"{what} (waited {PATIENCE_S:g} s)")
            await asyncio.sleep(LOOK_EVERY_S)

    async def until_pool(
        self, what: str, name: str, holds: "Callable[[GPUPool], bool]"
    ) -> "GPUPool":
        """Return the pool once it is so."""
        return await self.until(f"pool {name} {what}", lambda: self.cluster.pool(name), holds)

    async def until_offered(self, node: str, pool: str, count: int) -> None:
        """Wait until kubelet offers so many units of a pool on a node."""
        resource = RESOURCE_PREFIX + pool
        await self.until(
            f"node {node} offers {count} of {resource}",
            lambda: self.cluster.offered(node, resource),
            lambda found: found == count,
        )

    async def told(self, reason: "EventReason", name: str, *, says: str = "") -> None:
        """Wait for an event about an object, and show it."""
        event = await self.until(
            f"an event {reason.value} is written about {name}",
            lambda: self.cluster.event(reason.value, name, says=says),
            lambda found: found is not None,
        )
        if event is None:
            raise UntrueError(f"there is an event {reason.value} about {name}")
        self.quote(f"{event.reason}: {event.note}")

    async def refused(self, what: str, attempt: "Awaitable[object]", *, says: str) -> None:
        """Try something that admission refuses, and show why it does.

        Raises:
            Untrue: it does not, or for another reason.
        """
        try:
            await attempt
        except AdmissionDenied as denied:
            if says not in str(denied):
                raise UntrueError(f'{what} is refused with "{says}"; it says {denied}') from None
            self.quote(str(denied))
        else:
            raise UntrueError(f"{what} is refused")

    async def pod(self, name: str) -> "Pod":
        """Return a pod.

        Raises:
            Untrue: it is not there.
        """
        pod = await self.cluster.pod(name)
        if pod is None:
            raise UntrueError(f"pod {name} does not exist")
        return pod

    async def bind(self, name: str) -> "Pod":
        """Wait until a pod runs, and say on what."""
        pod = await self.until(
            f"pod {name} is running",
            lambda: self.pod(name),
            lambda pod: bool(pod.spec.node_name) and pod.status.phase in {"Running", "Succeeded"},
        )
        self.bound.add(name)
        self.say(f"  bound: {name} → {pod.spec.node_name} → {devices_text(pod)}")
        return pod

    async def finish(self, *names: str) -> None:
        """Let pods end well."""
        for name in names:
            await self.cluster.kubelet.finish(await self.pod(name))
        verb = "has" if len(names) == 1 else "have"
        pods = f"pod{'s' if len(names) > 1 else ''} {' and '.join(names)}"
        self.say(f"  {pods} {verb} finished")


def units_of(pod: "Pod") -> list[str]:
    """Return the units that a pod was bound with."""
    devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
    return [unit for units in devices.values() for unit in units]


def devices_text(pod: "Pod") -> str:
    """Name the units of a pod briefly: by container where there are two, many as a range."""
    devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
    if not devices:
        return "-"
    if len(devices) == 2:
        return "; ".join(f"{name}: {_short(units)}" for name, units in devices.items())
    return _short(units_of(pod))


def device_of(unit: str) -> str:
    """Return the card of a time slice, `<card>::<number>`."""
    return unit.split("::", maxsplit=1)[0]


def _short(units: "Sequence[str]") -> str:
    if len(units) <= MANY:
        return ", ".join(units)
    return f"{units[0]} … {units[-1]} ({len(units)})"
