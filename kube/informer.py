"""The informer: one resource, listed and then watched, delivered to a sink for as long as the process lives.

    list ──> sink.replace_all ──> watch from the list's version ──> sink.upsert, sink.discard
     ^                                  │    ^
     └── too old (410), or failing ─────┘    └── ended properly: again, from the last version seen

Trouble of the API server ends nothing: it is logged, counted and retried with backoff.
An exception out of the sink is a fault of ours and propagates, because state that missed a change
must not go on deciding.

The list is consistent: no resourceVersion, hence as new as anything that was ever answered to
anybody. `resourceVersion=0` is cheaper but may show a past in which a device was still free, and a
restarted process would give it out again. It comes in pages of one moment, so that neither its
bytes lie in memory as a whole nor their decoding takes the loop for long; where the token of a page
has expired, the next attempt takes everything at once.

The first list reaches the sink in one go, because no request is answered before it is there. Later ones, which
arrive while requests are answered, reach a sink that supports it in steps.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, final

import msgspec
import structlog

from kube import errors
from kube.backoff import Backoff
from kube.decoding import report_undecodable, unread_object
from kube.sink import ListingSink, SteppingSink
from kube.unread_objects import UnreadObjects
from kube.watch_events import decode_event, error_of, version_of
from telemetry import metrics

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from api.clock import Clock
    from kube.client import KubeClient
    from kube.decoding import Listing
    from kube.resources import Resource
    from kube.sink import KubeObject, Sink
    from kube.watch_events import WatchEvent

_log = structlog.get_logger()


T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selection of the objects of the resource; all of them by default."""

    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTiming:
    """How an informer deals with time."""

    server_timeout_s: int = 300
    """The server is asked to end a watch after once to twice as long, so that not all end together
    and connections are spread again over API servers; client-go's figures."""
    idle_timeout_s: float = 150.0
    """Silence after which a connection is taken for half-open. Bookmarks come once a minute; this is
    two of them and a half."""
    steady_s: float = 1.0
    """A watch that lived so long counts as a success. One that did not is a failure even if the
    server ended it properly: a server that closes at once would be asked thousands of times."""
    relist_after: int = 6
    """Failures in a row, about half a minute of them, after which the version itself is doubted and
    the list is taken again: an etcd restored from a backup may be behind it."""
    first_page: int = 5_000
    """Items at a time before anybody is served: 36 MB of usual pods, and few round trips."""
    absent_s: float = 60.0
    """Seconds between two looks for an optional resource that is not served."""
    later_page: int = 1_000
    """Items at a time while others are served: finding the bounds of as many takes 5 ms, of Nodes."""


@final
class Informer(Generic[T]):
    """Keeps one sink equal to one selection of one resource.

    A second one for the same resource in a process needs a name: metrics carry it as a label.
    An object that cannot be decoded or projected is counted, logged and skipped: the sink keeps what it knew of it,
    over lists too, or is told that the object is unread (`kube.unread_objects`).
    """

    synced: Final[asyncio.Event]
    """Set once the first full list is in the sink, and never cleared."""
    listed: asyncio.Event
    """Set once a list is in the sink, or `list_at_once` has put a new event here, which the next list sets."""
    last_heard: float
    """Monotonic time of the last list, event or bookmark, or of the start of `run`."""
    is_watching: bool
    """Whether a watch is open: otherwise what the sink has may be old."""

    def __init__(  # noqa: PLR0913  # what, where to, and how; each has one meaning
        self,
        client: "KubeClient",
        resource: "Resource",
        item_type: "type[KubeObject]",
        *,
        sink: "Sink[T]",
        clock: "Clock",
        project: "Callable[[Any], T | None] | None" = None,
        selection: Selection = Selection(),
        timing: WatchTiming = WatchTiming(),
        is_optional: bool = False,
        name: str | None = None,
        rng: "random.Random | None" = None,
    ) -> None:
        """Take the parts; `run` does the work.

        Metrics and logs show `name` as the resource, where one is given.

        An optional resource may be one that the API server does not serve, as a kind whose definition is
        not installed: where discovery confirms it, that counts as an empty list, and is examined again every
        `absent_s`. A kind whose objects are known is not served only once discovery has said so for `absent_s`: a
        definition that is deleted takes its objects with it, each with an event.

        `project` says what the sink gets of an item, None for nothing at all; the decoded item is
        dropped at once, so that a sink that needs little of many large objects pays for that little.
        Without it the sink gets the items.
        """
        self._client = client
        self._resource = resource
        self._item_type = item_type
        self._project: Callable[[Any], T | None] = project or _identity
        self._sink = sink
        self._listing_sink = sink if isinstance(sink, ListingSink) else None
        self._clock = clock
        self._selection = selection
        self._timing = timing
        self._is_optional = is_optional
        self._name = name or resource.plural
        self._backoff = Backoff(rng=rng)
        self._rng = self._backoff.rng
        self._items = msgspec.json.Decoder(item_type)
        self._version: str | None = None
        self._relist_cause = ""
        self._unread: UnreadObjects[T] = UnreadObjects(sink, self._name)
        self._objects = 0
        # as many as there are by the last list and the events since
        self._absent_since: float | None = None
        self._takes_pages = True
        self._was_unreachable = False
        self._log = _log.bind(resource=self._name)
        self._step: asyncio.Timeout | None = None
        self.synced = asyncio.Event()
        self.listed = asyncio.Event()
        self.last_heard = 0.0
        self.is_watching = False

    @property
    def unreadable(self) -> int:
        """Return the number of objects that exist and cannot be read."""
        return len(self._unread)

    @property
    def version(self) -> str | None:
        """Return the resourceVersion up to which the sink has everything; None before a list, and after a failure."""
        return self._version

    async def run(self) -> NoReturn:
        """List and watch until cancelled; raises nothing but what the sink raises."""
        name = self._name
        self.last_heard = self._clock.monotonic()
        metrics.INFORMER_SYNCED.labels(name).set(0)
        # Shown as 0 from the start, so that a rate sees the first.
        metrics.INFORMER_DECODE_ERRORS.labels(name)
        metrics.INFORMER_FAILURES.labels(name, errors.Unreachable.__name__)
        for cause in ("gone", "failures", "restored"):
            metrics.INFORMER_RELISTS.labels(name, cause)
        metrics.INFORMER_LAG.labels(name).set_function(
            lambda: self._clock.monotonic() - self.last_heard
        )
        try:
            while True:
                await self._list_or_watch()
        finally:
            self._step = None
            metrics.INFORMER_SYNCED.labels(name).set(0)
            metrics.INFORMER_LAG.remove(name)

    def list_at_once(self) -> None:
        """Give up the request or the delay that is under way, and list: all that is known may be of the past."""
        former, self.listed = self.listed, asyncio.Event()
        former.set()
        if self._step is not None and not self._step.expired():
            self._step.reschedule(asyncio.get_running_loop().time())

    async def _list_or_watch(self) -> None:
        """Go on until the watch ends, or a failure has been waited out, or `list_at_once`."""
        self._step = asyncio.timeout(None)
        try:
            async with self._step:
                await self._list_and_follow()
        except TimeoutError:
            if not self._step.expired():
                raise
            self._backoff.succeed()
        if not self.listed.is_set():
            # Also where the step ended by itself before it could be interrupted.
            self._invalidate_version("restored")

    async def _list_and_follow(self) -> None:
        try:
            await self._follow(self._version or await self._list())
        except errors.NotFound as error:
            is_absent = self._is_optional and await self._is_absent()
            await (self._do_without() if is_absent else self._recover(error))
        except errors.KubeError as error:
            await self._recover(error)

    async def _list(self) -> str:
        listed = self.listed
        if self._listing_sink is not None:
            self._listing_sink.list_begins()
        listing = await self._all_items()
        if self._listing_sink is not None:
            self._listing_sink.list_ends(listing.resource_version)
        await self._replace([*listing.items, *self._unread.add(listing.unread)])
        self._unread.keep_only(listing.unread)
        self._objects = len(listing.items) + len(listing.unread)
        self._version = listing.resource_version
        self.last_heard = self._clock.monotonic()
        name = self._name
        if self.synced.is_set():
            metrics.INFORMER_RELISTS.labels(name, self._relist_cause).inc()
        self.synced.set()
        listed.set()
        metrics.INFORMER_SYNCED.labels(name).set(1)
        self._log.info(
            "listed",
            items=len(listing.items),
            undecodable=listing.undecodable,
            cause=self._relist_cause or "start",
        )
        return listing.resource_version

    async def _is_absent(self) -> bool:
        """Say whether a 404 means that the resource is not served."""
        try:
            if await self._client.serves(self._resource):
                self._absent_since = None
                return False
        except errors.Forbidden:  # no word of it: then what is known decides
            return self._objects <= 0
        except errors.KubeError as error:
            self._log.warning("discovery failed", error=errors.one_line(str(error)))
            return False
        now = self._clock.monotonic()
        if self._absent_since is None or self._absent_since < self.last_heard:
            self._absent_since = now
        return self._objects <= 0 or now - self._absent_since >= self._timing.absent_s

    async def _do_without(self) -> None:
        """Take a resource that is not served for one of which there is nothing, for a while."""
        await self._replace([])
        self._unread.keep_only(())
        self._objects = 0
        self.last_heard = self._clock.monotonic()
        if not self.synced.is_set() or self._version is not None:
            self._log.info("not served: taken for empty", next_read_in_s=self._timing.absent_s)
        self._version = None
        self._relist_cause = "absent"
        self.synced.set()
        self.listed.set()
        metrics.INFORMER_SYNCED.labels(self._name).set(1)
        self._backoff.succeed()
        await asyncio.sleep(self._timing.absent_s)

    async def _all_items(self) -> "Listing[T]":
        timing = self._timing
        pages = timing.later_page if self.synced.is_set() else timing.first_page
        try:
            listing = await self._client.list_as(
                self._resource,
                self._item_type,
                self._project,
                namespace=self._selection.namespace,
                label_selector=self._selection.label_selector,
                field_selector=self._selection.field_selector,
                page_size=pages if self._takes_pages else None,
            )
        except errors.Gone:
            self._takes_pages = False
            raise
        self._takes_pages = True
        return listing

    async def _replace(self, items: list[T]) -> None:
        if self.synced.is_set() and isinstance(self._sink, SteppingSink):
            for _ in self._sink.replace_in_steps(items):
                await asyncio.sleep(0)
        else:
            self._sink.replace_all(items)

    async def _follow(self, version: str) -> None:
        """Feed the sink from one watch until it ends; raise unless it ended properly and in time."""
        timing = self._timing
        opened = self._clock.monotonic()
        failure: errors.KubeError | None = None
        try:
            async with self._client.watch(
                self._resource,
                resource_version=version,
                timeout_s=round(timing.server_timeout_s * self._rng.uniform(1, 2)),
                idle_timeout_s=timing.idle_timeout_s,
                namespace=self._selection.namespace,
                label_selector=self._selection.label_selector,
                field_selector=self._selection.field_selector,
            ) as lines:
                self.is_watching = True
                async for line in lines:
                    self._observe(line)
        except errors.KubeError as error:
            failure = error
        finally:
            self.is_watching = False
        lived_s = self._clock.monotonic() - opened
        # A silent watch lived long too, but proves nothing.
        if lived_s >= timing.steady_s and not isinstance(failure, errors.TimedOut):
            self._backoff.succeed()
        elif failure is None:
            failure = errors.Unreachable(f"watch closed after {lived_s:.2f} s", request_sent=True)
        if failure is not None:
            raise failure

    def _observe(self, line: bytes) -> None:
        event = decode_event(line)
        self.last_heard = self._clock.monotonic()
        metrics.INFORMER_EVENTS.labels(self._name, event.type).inc()
        match event.type:
            case "BOOKMARK":
                self._version = version_of(event.object) or self._version
            case "ERROR":
                raise error_of(event.object)
            case _:
                self._deliver(event)

    def _deliver(self, event: "WatchEvent") -> None:
        try:
            item = self._items.decode(event.object)
            kept = self._project(item)
        except Exception as error:  # the per-item boundary: counted, and said
            report_undecodable(event.object, self._name, error)
            if event.type == "DELETED":
                # What must be forgotten cannot be named to the sink; a list without it can.
                self._invalidate_version("undecodable")
                raise errors.Undecodable(f"a deletion cannot be decoded: {error}") from error
            self._unread.add((unread_object(event.object),))
            self._count(event)
            self._version = version_of(event.object) or self._version
            return
        if kept is not None:
            if event.type == "DELETED":
                self._sink.discard(kept)
            else:
                self._sink.upsert(kept)
            self._count(event)
        self._unread.drop(item.metadata.namespace, item.metadata.name)
        self._version = item.metadata.resource_version or self._version

    def _count(self, event: "WatchEvent") -> None:
        self._objects += {"ADDED": 1, "DELETED": -1}.get(event.type, 0)

    async def _recover(self, error: errors.KubeError) -> None:
        if self._was_unreachable and isinstance(error, errors.ApiError) and error.status < 500:
            # A restarted API server is back: it says 403 while it reads its roles, and 410 after
            # that. It answers, so the waiting starts over.
            self._backoff.succeed()
        self._was_unreachable = isinstance(error, errors.Unreachable)
        asked_s = error.retry_after_s if isinstance(error, errors.ApiError) else None
        delay_s = self._backoff.fail(asked_s)
        if isinstance(error, errors.Gone):
            self._invalidate_version("gone")
        elif self._backoff.failures % self._timing.relist_after == 0:
            self._invalidate_version("failures")
        metrics.INFORMER_FAILURES.labels(self._name, type(error).__name__).inc()
        self._log.warning(
            "list or watch failed",
            cause=type(error).__name__,
            error=errors.one_line(str(error)),
            failures=self._backoff.failures,
            next_is="list" if self._version is None else "watch",
            retry_in_s=round(delay_s, 2),
        )
        await asyncio.sleep(delay_s)

    def _invalidate_version(self, cause: str) -> None:
        if self._version is not None:
            self._version = None
            self._relist_cause = cause


def _identity(item: Any) -> Any:  # noqa: ANN401  # of the type that the caller gave
    return item
