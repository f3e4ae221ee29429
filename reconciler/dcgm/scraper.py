"""`node.dcgm`: periodic scrapes of the nodes' DCGM exporters.

The controller runtime keeps the time: `reconcile` reads a page, publishes the node, and returns the seconds
until the next scrape. At most `per_second` pages are read, so that thousands of nodes cost no more than tens,
and are read less often. Nothing is written here: `reconciler.device.health` evaluates the pages.
"""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from api.names import NodeName
from inventory.health.dcgm import parse_page
from inventory.health.device import ExporterSample
from kube.backoff import Backoff
from kube.event_source import EventSource
from reconciler.controller_spec import DEVICES, OPERANDS, ControllerContext, ControllerSpec
from reconciler.dcgm.errors import ExporterUnavailableError
from telemetry.metrics import HEALTH_SCRAPES

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from api.clock import Instant
    from reconciler.runtime.device_store import DeviceStore
    from reconciler.sinks.operand_pod_sink import OperandPodSink

WORKERS: Final = 8
"""Concurrent scrapes."""
_MAX_BACKOFF_S: Final = 60.0
_OUTCOMES: Final = ("read", "failed", "malformed")

_log = structlog.get_logger()


class Pages(Protocol):
    """Reads exporters' pages; `reconciler.dcgm.exporter.ExporterClient`."""

    async def page(self, ip: str, port: int) -> str:
        """Return the page of a pod; raises ExporterUnavailableError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeLimits:
    """How often exporters are scraped."""

    period_s: float = 15.0
    """Seconds between two pages of a node, less up to a fifth, so that nodes drift apart."""
    per_second: float = 100.0
    """Pages a second, at most: a page of 8 devices costs about a millisecond of CPU."""


@final
class _Pace:
    """Assigns times that are at least `1 / per_second` apart."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._last = 0.0

    def slot(self, desired: float) -> float:
        """Return the first free time from the desired one on."""
        self._last = max(desired, self._last + self._interval_s)
        return self._last


@dataclass(slots=True)
class _Followed:
    """A node whose exporter is scraped."""

    since: float
    due: float
    backoff: Backoff
    seen: ExporterSample | None = None


@final
class DcgmScraper:
    """Reads the exporter of one node."""

    def __init__(
        self,
        pages: Pages,
        operands: "OperandPodSink",
        devices: "DeviceStore",
        *,
        limits: ScrapeLimits,
        now: "Callable[[], Instant]",
        rng: random.Random | None = None,
    ) -> None:
        self._pages = pages
        self._operands = operands
        self._devices = devices
        self._limits = limits
        self._now = now
        self._rng = rng or random.SystemRandom()
        self._nodes: dict[NodeName, _Followed] = {}
        self._heard: dict[NodeName, dt.datetime] = {}
        self._first, self._later = _Pace(limits.per_second), _Pace(limits.per_second)
        # separate, so that a new node does not wait for a round of all others
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes whose exporter was read."""
        self.begun: EventSource[NodeName] = EventSource()
        """Nodes whose exporter gave its first page since it is asked."""
        for outcome in _OUTCOMES:
            HEALTH_SCRAPES.labels(outcome)

    def seen(self, node: NodeName) -> ExporterSample | None:
        """Return the last page of a node's exporter, while there is one to ask."""
        followed = self._nodes.get(node)
        return followed.seen if followed is not None else None

    def heartbeat_age_s(self, node: NodeName) -> float | None:
        """Return how long ago the exporter was heard, or first asked; None where none is asked."""
        followed = self._nodes.get(node)
        if followed is None:
            return None
        heard_at = followed.since if followed.seen is None else followed.seen.at
        return self._now().monotonic - heard_at

    def heard_at(self, node: NodeName) -> "dt.datetime | None":
        """Return when the node's exporter last gave its page, even if there is none to ask any more."""
        return self._heard.get(node)

    async def reconcile(self, node: NodeName) -> float | None:
        """Read the node's exporter if it is due; return when it is due again."""
        has_devices = node in self._devices.nodes()
        if not has_devices:
            self._heard.pop(node, None)
        target = self._operands.exporter(node) if has_devices else None
        if target is None:
            self._nodes.pop(node, None)
            return None
        now = self._now().monotonic
        followed = self._nodes.get(node)
        if followed is None:
            followed = _Followed(now, self._first.slot(now), self._new_backoff())
            self._nodes[node] = followed
        if now < followed.due:
            return followed.due - now
        try:
            text = await self._pages.page(target.ip, target.port)
        except ExporterUnavailableError as error:
            self._fail(followed, node, outcome="failed", cause=str(error))
        else:
            self._take_in(followed, node, text)
        return max(0.0, followed.due - self._now().monotonic)

    def _take_in(self, followed: _Followed, node: NodeName, text: str) -> None:
        page = parse_page(text)
        if not page.is_dcgm:
            self._fail(followed, node, outcome="malformed", cause="the page is not DCGM's")
            return
        HEALTH_SCRAPES.labels("malformed" if page.bad_lines else "read").inc()
        if page.bad_lines and not (followed.seen and followed.seen.page.bad_lines):
            _log.warning("lines of an exporter make no sense", node=node, lines=page.bad_lines)
        if followed.backoff.failures:
            _log.info("exporter is read again", node=node)
        followed.backoff.succeed()
        now = self._now()
        desired = now.monotonic + self._limits.period_s * self._rng.uniform(0.8, 1.0)
        followed.due = self._later.slot(desired)
        is_first = followed.seen is None
        followed.seen = ExporterSample(now.monotonic, page)
        self._heard[node] = now.utc
        self.changes.publish(node)
        if is_first:
            self.begun.publish(node)

    def _fail(self, followed: _Followed, node: NodeName, *, outcome: str, cause: str) -> None:
        HEALTH_SCRAPES.labels(outcome).inc()
        if not followed.backoff.failures:
            _log.warning("exporter cannot be read", node=node, outcome=outcome, error=cause)
        wait_s = max(self._limits.period_s, followed.backoff.fail())
        followed.due = self._now().monotonic + wait_s

    def _new_backoff(self) -> Backoff:
        return Backoff(base_s=self._limits.period_s, cap_s=_MAX_BACKOFF_S, rng=self._rng)


def dcgm_scraper(context: ControllerContext) -> DcgmScraper:
    from reconciler.dcgm.exporter import ExporterClient  # noqa: PLC0415  # imports aiohttp

    exporters = ExporterClient()
    context.openings.append(exporters)
    return DcgmScraper(
        exporters,
        context.stores.operands,
        context.stores.devices,
        limits=ScrapeLimits(period_s=context.settings.scrape_period_s),
        now=context.now,
    )


SPEC: Final = ControllerSpec(
    name="node.dcgm",
    triggers=(OPERANDS, DEVICES),
    initial=lambda context: list(context.stores.devices.nodes()),
    workers=WORKERS,
    is_enabled=lambda settings: settings.is_scraping,
    build=lambda context: context.shared(dcgm_scraper).reconcile,
)
