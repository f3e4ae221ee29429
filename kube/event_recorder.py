"""Kubernetes Events: the recorder, and references to the objects that Events are about.

Recording never holds up or breaks a caller: `normal`, `warning` and `emit` only queue, `run` writes.
An equal Event about the same object becomes a count on the first one (a series), the rate of each object is
limited, and an Event that cannot be written is counted and dropped.
Callers decide which Events there are, and word them.
"""

import asyncio
import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Protocol, Self, final

import structlog
from cachetools import LRUCache

from api.meta import Model
from kube.backoff import Backoff
from kube.errors import AlreadyExists, KubeError, NotFound, one_line
from kube.resources import EVENTS
from telemetry.metrics import EVENTS_EMITTED

if TYPE_CHECKING:
    import random
    from enum import Enum

    from api.clock import Clock
    from kube.client import KubeClient
    from kube.resources import Resource

MAX_NOTE_BYTES: Final = 1024
"""The API server counts bytes, and refuses longer notes."""
MAX_REASON: Final = 128
"""Also of an action."""
_MAX_OBJECT_NAME = 253 - 1 - 16
"""Greatest length of an event's name, which is `<object>.<16 hex digits>` and a DNS subdomain."""
_CLUSTER_SCOPED_NAMESPACE = "default"
"""Where events about cluster-scoped objects live; the API server takes no other but kube-system."""
_ATTEMPTS = 3

_log = structlog.get_logger()


class ObjectIdentity(Protocol):
    """Name, namespace and uid of an object; `api.meta.ObjectMeta` and facts of pods have them."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...


class ObjectReference(Model, frozen=True):
    """The object of an Event; without `uid` kubectl shows no Event of a cluster-scoped object."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def to(cls, resource: "Resource", identity: "ObjectIdentity") -> Self:
        """Return the reference to an object by its metadata, or by facts that have the same fields."""
        return cls(
            api_version=resource.api_version,
            kind=resource.kind,
            name=identity.name,
            namespace=identity.namespace,
            uid=identity.uid,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One Event; two are the same if object, type, reason and note are."""

    regarding: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    """Why, in PascalCase, from the closed set of `telemetry.reasons`."""
    action: str
    """What was done or tried, in PascalCase."""
    note: str
    """Note for people; cut to `MAX_NOTE_BYTES`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Bounds of memory and of the rate of writes."""

    window_s: float = 600.0
    """The same event within this time of the last one becomes a count; client-go's figure."""
    queue_length: int = 1024
    """Events that wait to be written; a new one beyond them is dropped."""
    remembered: int = 4096
    """Events and objects remembered for counting and limiting; the oldest are forgotten first."""
    burst: int = 25
    """Writes about one object at once, and then one for each `refill_s`; client-go's figures."""
    refill_s: float = 300.0


class EventRecorder:
    """Takes Events from anywhere in the event loop and writes them in order."""

    def __init__(  # noqa: PLR0913  # its dependencies; tests set each alone
        self,
        client: "KubeClient",
        clock: "Clock",
        *,
        reporting_controller: str,
        reporting_instance: str,
        is_muted: bool = False,
        limits: EventLimits = EventLimits(),
        rng: "random.Random | None" = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._reporting_controller = reporting_controller
        self._reporting_instance = reporting_instance
        self.is_muted = is_muted
        """Drop every Event: of a replica that does not lead."""
        self._limits = limits
        self._backoff = Backoff(rng=rng)
        self._waiting: asyncio.Queue[_Series] = asyncio.Queue(limits.queue_length)
        # what makes Events equal -> their series
        self._series: LRUCache[_Key, _Series] = LRUCache(limits.remembered)
        # object -> token bucket of its writes
        self._budgets: LRUCache[ObjectReference, _Budget] = LRUCache(limits.remembered)

    def normal(self, regarding: ObjectReference, reason: "Enum", note: str, *, action: str) -> None:
        """Emit an Event of type Normal."""
        self._emit("Normal", regarding, reason=reason, note=note, action=action)

    def warning(
        self, regarding: ObjectReference, reason: "Enum", note: str, *, action: str
    ) -> None:
        """Emit an Event of type Warning."""
        self._emit("Warning", regarding, reason=reason, note=note, action=action)

    def _emit(
        self,
        type_: Literal["Normal", "Warning"],
        regarding: ObjectReference,
        *,
        reason: "Enum",
        note: str,
        action: str,
    ) -> None:
        if not self.is_muted:
            event = Event(
                regarding=regarding, type=type_, reason=reason.value, action=action, note=note
            )
            self.emit(event)

    def emit(self, event: Event) -> None:
        """Queue the Event; returns at once and raises nothing.

        It is dropped, and counted as dropped, where the queue is full or the object's budget is spent.
        """
        now = self._clock.monotonic()
        key = (event.regarding, event.type, event.reason, event.note)
        series = self._series.get(key)
        is_repeat = series is not None and now - series.last_at <= self._limits.window_s
        if series is None or not is_repeat:
            series = _Series(event=event, first_seen=self._clock.utc_now())
        series.count_one(now, self._clock.utc_now())
        accepted = series.is_waiting or self._enqueue(series, now)
        if is_repeat:
            # Counted even where it cannot be queued: the next write about it carries the count.
            EVENTS_EMITTED.labels(event.reason, "merged").inc()
        elif not accepted:
            EVENTS_EMITTED.labels(event.reason, "dropped").inc()
            return
        self._series[key] = series

    async def run(self) -> NoReturn:
        """Write queued Events until cancelled; raises nothing else."""
        while True:
            series = await self._waiting.get()
            series.is_waiting = False
            try:
                await self._write(series)
            finally:
                self._waiting.task_done()

    async def flush(self, timeout_s: float) -> None:
        """Wait until every queued Event was tried, or for the time-out; `run` must be running."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiting.join()
        except TimeoutError:
            _log.warning("events left unwritten", waiting=self._waiting.qsize())

    def _enqueue(self, series: "_Series", now: float) -> bool:
        if self._waiting.full() or not self._budget_of(series.event.regarding, now).spend(now):
            return False
        series.is_waiting = True
        self._waiting.put_nowait(series)
        return True

    def _budget_of(self, regarding: ObjectReference, now: float) -> "_Budget":
        return self._budgets.setdefault(
            regarding, _Budget(limits=self._limits, left=float(self._limits.burst), as_of=now)
        )

    async def _write(self, series: "_Series") -> None:
        self._backoff.succeed()
        event = series.event
        while True:
            try:
                await self._write_once(series)
            except KubeError as error:
                delay_s = self._backoff.fail()
                if error.is_transient and self._backoff.failures < _ATTEMPTS:
                    await asyncio.sleep(delay_s)
                    continue
                self._report_failure(event, error)
            except Exception as error:  # noqa: BLE001  # one bad Event must not end the loop
                self._report_failure(event, error)
            return

    async def _write_once(self, series: "_Series") -> None:
        # The count that is written; more may be counted while the request is under way.
        count = series.count
        namespace = series.event.regarding.namespace or _CLUSTER_SCOPED_NAMESPACE
        if series.written_as is not None:
            try:
                await self._client.merge_patch(
                    EVENTS,
                    {"series": {"count": count, "lastObservedTime": micro_time(series.last_seen)}},
                    name=series.written_as,
                    namespace=namespace,
                )
            except NotFound:
                # Events live an hour; this one is gone, and a new one begins its series.
                series.written_as = None
                series.tried_as = None
            else:
                _log.info("event repeated", count=count, **_described(series.event))
                return
        await self._create(series, namespace)

    async def _create(self, series: "_Series", namespace: str) -> None:
        # The name is chosen once, so that a second attempt after a lost answer makes no second event.
        series.tried_as = series.tried_as or self._name_for(series.event.regarding)
        try:
            await self._client.create(
                EVENTS, self._body(series, series.tried_as, namespace), namespace=namespace
            )
        except AlreadyExists:
            _log.debug("event was already written", name=series.tried_as)
        series.written_as = series.tried_as
        EVENTS_EMITTED.labels(series.event.reason, "written").inc()
        _log.info(
            "event", type=series.event.type, note=series.event.note, **_described(series.event)
        )

    def _name_for(self, regarding: ObjectReference) -> str:
        return f"{regarding.name[:_MAX_OBJECT_NAME].rstrip('-.')}.{self._backoff.rng.getrandbits(64):016x}"

    def _body(self, series: "_Series", name: str, namespace: str) -> dict[str, object]:
        event = series.event
        body: dict[str, object] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(series.first_seen),
            "type": event.type,
            "reason": event.reason[:MAX_REASON],
            "action": event.action[:MAX_REASON],
            "note": _cut_bytes(event.note, MAX_NOTE_BYTES),
            "reportingController": self._reporting_controller,
            "reportingInstance": self._reporting_instance[:MAX_REASON],
            "regarding": event.regarding,
        }
        if series.count > 1:
            body["series"] = {
                "count": series.count,
                "lastObservedTime": micro_time(series.last_seen),
            }
        return body

    def _report_failure(self, event: Event, error: Exception) -> None:
        EVENTS_EMITTED.labels(event.reason, "failed").inc()
        _log.warning(
            "event not written",
            **_described(event),
            cause=type(error).__name__,
            error=one_line(str(error)),
        )


def _described(event: Event) -> dict[str, str]:
    """Return what log lines say of an Event."""
    about = event.regarding
    return {
        "reason": event.reason,
        "kind": about.kind,
        "object": f"{about.namespace}/{about.name}" if about.namespace else about.name,
    }


def micro_time(moment: dt.datetime) -> str:
    """Return the moment as `metav1.MicroTime`: UTC, six fraction digits even where they are zero."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_Key = tuple[ObjectReference, str, str, str]
"""Object, type, reason, note."""


@final
@dataclass(slots=True, kw_only=True)
class _Series:
    event: Event
    first_seen: dt.datetime
    last_seen: dt.datetime = field(init=False)
    last_at: float = 0.0
    count: int = 0
    is_waiting: bool = False
    tried_as: str | None = None
    written_as: str | None = None

    def count_one(self, now: float, utc_now: dt.datetime) -> None:
        self.count += 1
        self.last_at = now
        self.last_seen = utc_now


@final
@dataclass(slots=True, kw_only=True)
class _Budget:
    """A token bucket."""

    limits: EventLimits
    left: float
    as_of: float

    def spend(self, now: float) -> bool:
        refilled = self.left + (now - self.as_of) / self.limits.refill_s
        self.left = min(refilled, float(self.limits.burst))
        self.as_of = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def _cut_bytes(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len("…".encode())].decode("utf-8", "ignore") + "…"
