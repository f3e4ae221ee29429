"""What the demo tells, and the check behind every claim."""

import asyncio
import textwrap
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from api.annotations import decode_devices, decode_reservation
from api.core import Pod
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, RESOURCE_PREFIX
from kube.resources import EVENTS, PODS
from server.demo_cluster import (
    CARDS_PER_NODE,
    NODES,
    SLICED_FROM,
    SLICES,
    SLICES_PER_CARD,
    WHOLE,
    ApiEvent,
    PodDenied,
)
from telemetry.reasons import EventReason, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from server.demo_cluster import DemoCluster

PATIENCE_S: Final = 15.0
LINE: Final = 100
DEEP: Final = "      "
MAY_BE_WOKEN: Final = tuple(
    ("PATCH", f"/api/v1/namespaces/default/pods/{name}") for name in ("patient", "forgotten")
)
"""Waiting pods that kube-scheduler may have tried before our watch showed that cards are free."""
T = TypeVar("T")


class Untrue(Exception):  # noqa: N818  # it is named for what happened
    """Something that the demo claims is not so."""


@final
class Story:
    """Chapters, in the order in which they are told."""

    def __init__(self, cluster: "DemoCluster", say: "Callable[[str], None]") -> None:
        self._cluster = cluster
        self._say = say
        self._bound: set[str] = set()

    async def introduce(self) -> None:
        """Show the cluster and its pools."""
        self._title(f"A cluster of {len(NODES)} nodes with {CARDS_PER_NODE} GPU cards each")
        await self._cluster.add_pools()
        self._say("  An operator has put the cards into two pools, which users ask for by name:")
        self._say(f"  {WHOLE}:  one unit is a whole card; for the namespaces default and ml-team")
        self._say(
            f"  {SLICES}: one unit is a time slice, {SLICES_PER_CARD} of them share a card; "
            "what is held for a pod is held for 5 s"
        )
        for name in (WHOLE, SLICES):
            pool = await self._until(
                f"pool {name} has capacity",
                lambda name=name: self._cluster.pool(name),  # type: ignore[misc]  # bound at once
                lambda pool: pool.status.capacity.total > 0,
            )
            capacity, nodes = pool.status.capacity, pool.status.nodes
            self._say(
                f"  $ kubectl get gpool {name}: {capacity.total} units, {capacity.available} "
                f"available, on {nodes} node{'s' if nodes > 1 else ''}"
            )
        whole = (len(NODES) - 1) * CARDS_PER_NODE + SLICED_FROM
        await self._shows_total(WHOLE, whole)
        await self._shows_total(SLICES, (CARDS_PER_NODE - SLICED_FROM) * SLICES_PER_CARD)

    async def whole_cards(self) -> None:
        """Admit, hold, place and bind a pod that wants every card of a node."""
        self._title(f"A pod asks for 8 whole cards: limits: {{{RESOURCE_PREFIX}{WHOLE}: 8}}")
        await self._cluster.create_pod(a_pod("train", WHOLE, 8))
        pod = await self._pod("train")
        note = decode_reservation(pod.metadata.annotation(RESERVATION_ANNOTATION))
        if note is None or note.expires_at is None:
            raise Untrue("pod train was admitted with a hold")
        self._say(
            f"  admitted: 8 cards of node {note.node} are held for it until "
            f"{note.expires_at:%H:%M:%S} UTC; the scheduler {pod.spec.scheduler_name} takes over"
        )
        pod = await self._bind("train")
        self._check(pod.spec.node_name == note.node, "it was bound where its cards were held")
        self._check(
            decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) == note.devices,
            "it got the very cards that were held for it",
        )

    async def time_slices(self) -> None:
        """Bind two pods that share cards, one with two containers."""
        self._title("Time slices: pods share cards, but a container's slices lie on different ones")
        await self._cluster.create_pod(a_pod("notebook", SLICES, 2))
        await self._cluster.create_pod(a_pod("pipeline", SLICES, 1, containers=("load", "infer")))
        notebook, pipeline = await self._bind("notebook"), await self._bind("pipeline")
        slices = self._units(notebook)
        self._check(
            len({_card(unit) for unit in slices}) == len(slices) == 2,
            "the two slices of pod notebook lie on two cards",
        )
        self._check(
            bool({_card(unit) for unit in self._units(pipeline)} & {_card(u) for u in slices}),
            "pod pipeline shares a card with it",
        )
        given = decode_devices(pipeline.metadata.annotation(DEVICES_ANNOTATION)) or {}
        self._check(
            {name: len(units) for name, units in given.items()} == {"load": 1, "infer": 1},
            "each container of pod pipeline has a slice of its own",
        )

    async def refusals(self) -> None:
        """Show what users are told when they ask for what they cannot have."""
        self._title("What is refused, and what the user reads")
        both = a_pod("greedy", WHOLE, 1)
        both["spec"]["containers"][0]["resources"]["limits"][f"{RESOURCE_PREFIX}{SLICES}"] = "1"
        cases = (
            ("two pools in one pod", both, RefusalReason.MIXED_POOLS),
            (
                "a namespace that may not use the pool",
                a_pod("homework", WHOLE, 1, namespace="students"),
                RefusalReason.ACCESS_DENIED,
            ),
            ("more than any node has", a_pod("huge", WHOLE, 9), RefusalReason.EXCEEDS_CAPACITY),
            (
                "a pool that does not exist",
                a_pod("typo", "hole", 1),
                RefusalReason.POOL_NOT_FOUND,
            ),
        )
        for what, body, reason in cases:
            try:
                await self._cluster.create_pod(body)
            except PodDenied as denied:
                if f" {reason.value}: " not in str(denied):
                    raise Untrue(f"{what} is refused as {reason.value}; it says {denied}") from None
                self._say(f"  {what}:")
                self._say_deep(str(denied))
            else:
                raise Untrue(f"{what} is refused")

    async def exhaustion(self) -> None:
        """Fill the pool; a further pod waits, and runs as soon as a card is free."""
        self._title("The pool is exhausted: a pod waits, and runs as soon as cards are free")
        for name, units in (("train-2", 8), ("train-3", 4)):
            await self._cluster.create_pod(a_pod(name, WHOLE, units))
            await self._bind(name)
        warnings = await self._cluster.create_pod(a_pod("patient", WHOLE, 2))
        if not warnings:
            raise Untrue("who creates a pod that has to wait is warned")
        self._say(f"  created: patient, which asks for 2 cards. Warning: {warnings[0]}")
        verdict = await self._until(
            "kube-scheduler finds no node for pod patient",
            lambda: self._cluster.why_unscheduled("patient"),
            bool,
        )
        self._say("  kubectl describe pod patient:")
        self._say_deep(verdict)
        self._check(not (await self._pod("patient")).spec.node_name, "it waits")
        await self._cluster.kubelet.finish(await self._pod("train"))
        self._say("  pod train has finished its work")
        before = self._cluster.clock.monotonic()
        await self._bind("patient")
        self._say(f"  {self._cluster.clock.monotonic() - before:.1f} s later it runs")

    async def expiry(self) -> None:
        """Let a hold run out in the open."""
        self._title("A hold expires: nobody schedules this pod, so its slices are given back")
        body = a_pod("forgotten", SLICES, 3)
        body["spec"]["schedulerName"] = "a-scheduler-that-does-not-run"
        await self._cluster.create_pod(body)
        await self._shows_reserved(3)
        self._say("  waiting for the 5 s to pass …")
        await self._shows_reserved(0)
        event = await self._until(
            "an event tells that the hold expired",
            self._expiry_event,
            lambda found: found is not None,
        )
        if event is not None:
            self._say("  event on the pool:")
            self._say_deep(f"{event.reason}: {event.note}")

    async def accounts(self) -> None:
        """Count what it cost, and show who has what."""
        self._title("What it cost, and who has what")
        writes = self._cluster.server_writes()
        bindings = [path for _, path in writes if path.endswith("/binding")]
        others = [write for write in writes if write[1] not in bindings]
        woken = [write for write in MAY_BE_WOKEN if write in others]
        self._check(
            len(set(bindings)) == len(bindings) == len(self._bound)
            and sorted(others) == sorted(woken),
            f"{len(self._bound)} pods were bound, each with exactly one write to the API server",
        )
        for _, path in woken:
            name = path.rpartition("/")[2]
            self._check(True, f"waiting pod {name} was woken once, by an annotation")  # noqa: FBT003
        self._check(
            self._cluster.server_pod_reads() == 0,
            "no pod had to be read for it: the watch suffices",
        )
        await self._table()

    # --- steps ---------------------------------------------------------------------------------

    async def _bind(self, name: str) -> Pod:
        pod = await self._until(
            f"pod {name} is running",
            lambda: self._pod(name),
            lambda pod: bool(pod.spec.node_name) and pod.status.phase in {"Running", "Succeeded"},
        )
        self._bound.add(name)
        self._say(f"  bound: {name} → {pod.spec.node_name} → {self._devices(pod)}")
        return pod

    async def _pod(self, name: str) -> Pod:
        pod = await self._cluster.pod(name)
        if pod is None:
            raise Untrue(f"pod {name} does not exist")
        return pod

    async def _shows_total(self, pool: str, total: int) -> None:
        seen = await self._until(
            f"pool {pool} has {total} units",
            lambda: self._cluster.pool(pool),
            lambda pool: pool.status.capacity.total == total,
        )
        self._check(
            seen.status.capacity.available == total, f"pool {pool} has {total} units, all available"
        )

    async def _shows_reserved(self, count: int) -> None:
        pool = await self._until(
            f"{count} units of pool {SLICES} are reserved",
            lambda: self._cluster.pool(SLICES),
            lambda pool: pool.status.capacity.reserved == count,
        )
        self._say(f"  reserved in pool {SLICES}: {pool.status.capacity.reserved}")

    async def _expiry_event(self) -> ApiEvent | None:
        events = await self._cluster.client.list_(EVENTS, ApiEvent)
        for event in events.items:
            if (
                event.reason == EventReason.RESERVATION_EXPIRED.value
                and event.regarding.name == SLICES
            ):
                return event
        return None

    async def _table(self) -> None:
        pods = (await self._cluster.client.list_(PODS, Pod)).items
        holders: dict[str, str] = {}
        rows: list[tuple[str, str, str]] = []
        for pod in sorted(pods, key=lambda pod: pod.metadata.name):
            state = "" if pod.spec.node_name else "(waiting)"
            ended = " (ended)" if pod.is_terminal else ""
            rows.append(
                (pod.metadata.name + ended, pod.spec.node_name or state, self._devices(pod))
            )
            for unit in () if pod.is_terminal else self._units(pod):
                if unit in holders:
                    raise Untrue(f"{unit} was given to {holders[unit]} and to {pod.metadata.name}")
                holders[unit] = pod.metadata.name
        self._check(True, f"{len(holders)} units are in use, none of them twice")  # noqa: FBT003
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        self._say("")
        self._say(f"  {'POD'.ljust(widths[0])}   {'NODE'.ljust(widths[1])}   DEVICES")
        for name, node, devices in rows:
            self._say(f"  {name.ljust(widths[0])}   {node.ljust(widths[1])}   {devices}")

    def _units(self, pod: Pod) -> list[str]:
        devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
        return [unit for units in devices.values() for unit in units]

    def _devices(self, pod: Pod) -> str:
        devices = decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION)) or {}
        if not devices:
            return "-"
        if len(devices) == 1:
            return _short(next(iter(devices.values())))
        return "; ".join(f"{name}: {_short(units)}" for name, units in devices.items())

    async def _until(
        self, what: str, read: "Callable[[], Awaitable[T]]", holds: "Callable[[T], bool]"
    ) -> T:
        deadline = self._cluster.clock.monotonic() + PATIENCE_S
        while True:
            value = await read()
            if holds(value):
                return value
            if self._cluster.clock.monotonic() > deadline:
                raise Untrue(f"{what} (waited {PATIENCE_S:g} s)")
            await asyncio.sleep(0.05)

    def _check(self, holds: bool, claim: str) -> None:  # noqa: FBT001  # the checked fact itself
        if not holds:
            raise Untrue(claim)
        self._say(f"  ✓ {claim}")

    def _say_deep(self, text: str) -> None:
        self._say(
            textwrap.fill(
                text,
                LINE,
                initial_indent=DEEP,
                subsequent_indent=DEEP,
                break_on_hyphens=False,
            )
        )

    def _title(self, text: str) -> None:
        self._say(f"\n── {text}")


def a_pod(
    name: str,
    pool: str,
    units: int,
    *,
    namespace: str = "default",
    containers: "Sequence[str]" = ("main",),
) -> dict[str, Any]:
    """Return a pod of which every container asks for so many units of a pool."""
    limits = {f"{RESOURCE_PREFIX}{pool}": str(units)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [
                {"name": container, "image": "train", "resources": {"limits": dict(limits)}}
                for container in containers
            ]
        },
    }


def _card(unit: str) -> str:
    """Return the card of a time slice, `<card>::<number>`."""
    return unit.split("::", maxsplit=1)[0]


def _short(units: "Sequence[str]") -> str:
    """Name units briefly: a run of cards of one node as a range."""
    if len(units) <= 3:  # a line of a terminal
        return ", ".join(units)
    return f"{units[0]} … {units[-1]} ({len(units)})"
