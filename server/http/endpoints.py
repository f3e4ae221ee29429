"""The endpoints of webhooks and extender verbs: authentication, the decision, its log line and its metrics.

A decision is synchronous (bind awaits its one API write, and mutation of caches their registries) and writes one log
line and one histogram sample.
An exception becomes an answer of the protocol and is counted; no traceback leaves the process.
"""

from abc import abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, final

import msgspec
import structlog

from http_edge.body import Unread
from http_edge.replies import JSON, TEXT, Reply
from kube.errors import one_line
from manifests import constants
from scheduler import codec
from telemetry import metrics
from telemetry.kernel_cache_metrics import CACHE_PLACEMENTS
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from admission.review import AdmissionResult
    from api.clock import Clock
    from http_edge.routes import Answer, Headers
    from scheduler.outcome import PodPlacement, VerbResult
    from server.http.authentication import ExtenderAuthentication, WebhookAuthentication

_JSON: Final = JSON.encode()
_ERROR_ANSWERS: "Final[dict[str, Callable[[str], bytes]]]" = {
    constants.FILTER_VERB: codec.encode_filter_error,
    constants.PRIORITIZE_VERB: lambda _: codec.encode_priorities([]),
    constants.PREEMPT_VERB: lambda _: codec.encode_preemption({}),
    constants.BIND_VERB: codec.encode_bind,
}
"""The extender's answers without a decision: HTTP 200, since kube-scheduler discards the body of
any other. Where the protocol has no field for an error, the harmless answer; the log has the text."""
_FAILED: Final = "gpu-control-plane failed to decide; see its log"

Result = TypeVar("Result")
Decide: TypeAlias = "Callable[[bytes], Result | Coroutine[Any, Any, Result]]"

_log = structlog.get_logger()


class _Histogram(Protocol):
    def labels(self, *values: str) -> "_Histogram":
        """Return the series with these labels."""

    def observe(self, amount: float) -> None:
        """Count a sample."""


@final
class _Durations:
    """One histogram's series of one path. Finding a series by its labels costs more than to observe."""

    def __init__(self, histogram: _Histogram, path: str, clock: "Clock") -> None:
        self._histogram = histogram
        self._path = path
        self._clock = clock
        # Shown as 0 from the start, so that a rate sees the first.
        self._by_outcome: dict[str, _Histogram] = {"failed": histogram.labels(path, "failed")}

    def observe(self, outcome: str, started: float) -> None:
        series = self._by_outcome.get(outcome)
        if series is None:
            series = self._histogram.labels(self._path, outcome)
            self._by_outcome[outcome] = series
        series.observe(self._clock.monotonic() - started)


class DecidedEndpoint(Generic[Result]):
    """Answers by a decision, which may be awaited."""

    knows_callers = True

    def __init__(
        self,
        name: str,
        decide: "Decide[Result]",
        *,
        clock: "Clock",
        histogram: _Histogram,
    ) -> None:
        self._name = name
        self._decide = decide
        self._clock = clock
        self._durations = _Durations(histogram, name, clock)

    def answer(self, body: bytes) -> "Answer":
        started = self._clock.monotonic()
        try:
            decided = self._decide(body)
        except Exception:  # noqa: BLE001  # the per-request boundary
            return self._fail(started)
        if isinstance(decided, Coroutine):
            return self._answer_awaited(decided, started)
        return self._reply(decided, started)

    async def _answer_awaited(
        self, deciding: "Coroutine[Any, Any, Result]", started: float
    ) -> Reply:
        try:
            decided = await deciding
        except Exception:  # noqa: BLE001  # the per-request boundary
            return self._fail(started)
        return self._reply(decided, started)

    def _fail(self, started: float) -> Reply:
        self._durations.observe("failed", started)
        return self._failed()

    @abstractmethod
    def _reply(self, decided: Result, started: float) -> Reply:
        """Answer with a decision."""

    @abstractmethod
    def _failed(self) -> Reply:
        """Answer without one, inside the exception's handler."""


@final
class Webhook(DecidedEndpoint["AdmissionResult"]):
    """A webhook of the API server."""

    def __init__(
        self,
        name: str,
        decide: "Decide[AdmissionResult]",
        *,
        clock: "Clock",
        callers: "WebhookAuthentication | None" = None,
    ) -> None:
        """Answer by `decide`; `name` is its name in logs and metrics. Without `callers` it is open."""
        super().__init__(name, decide, clock=clock, histogram=metrics.ADMISSION_DURATION)
        self._callers = callers
        self.knows_callers = callers is not None

    def refusal_of(
        self, transport: "asyncio.BaseTransport | None", headers: "Headers"
    ) -> Unread | None:
        """Return why the body of a request with this head is not read, or None."""
        refusal = self._callers.refusal_of(transport) if self._callers is not None else None
        if refusal is not None:
            return refusal
        media_type = headers.get(b"content-type", b"application/octet-stream")
        if media_type == _JSON:
            return None
        media_type = media_type.partition(b";")[0].strip().lower()
        if media_type == _JSON:
            return None
        quoted = one_line(media_type.decode(errors="replace"))
        text = f"Content-Type must be {JSON}, not {quoted}"
        return Unread(415, "UnsupportedMediaType", text)

    def answer_unread(self, unread: Unread, remote: str | None) -> Reply:
        if unread.status in {401, 403}:
            self._durations.observe("unauthenticated", self._clock.monotonic())
            _log.warning(
                "admission call refused", webhook=self._name, reason=unread.text, remote=remote
            )
            return _status(unread)
        self._durations.observe("malformed", self._clock.monotonic())
        metrics.REFUSALS.labels(RefusalReason.MALFORMED_REQUEST.value).inc()
        _log.warning("admission request unreadable", webhook=self._name, error=unread.text)
        return _status(unread)

    def _reply(self, decided: "AdmissionResult", started: float) -> Reply:
        self._durations.observe(decided.outcome, started)
        if decided.reason is not None:
            metrics.REFUSALS.labels(decided.reason.value).inc()
        _log.info("admission", webhook=self._name, outcome=decided.outcome, **decided.facts)
        return Reply(decided.status, decided.body)

    def _failed(self) -> Reply:
        _log.exception("admission failed", webhook=self._name)
        return _status(Unread(500, "InternalError", _FAILED))


@final
class Verb(DecidedEndpoint["VerbResult"]):
    """A verb of kube-scheduler."""

    def __init__(
        self,
        verb: str,
        decide: "Decide[VerbResult]",
        *,
        clock: "Clock",
        callers: "ExtenderAuthentication",
    ) -> None:
        """Take one verb of `manifests.constants`."""
        super().__init__(verb, decide, clock=clock, histogram=metrics.EXTENDER_DURATION)
        self._callers = callers

    def refusal_of(
        self, transport: "asyncio.BaseTransport | None", headers: "Headers"
    ) -> Unread | None:
        """Return why a caller with this head gets no answer, or None."""
        refusal = self._callers.refusal_of(transport, headers)
        return Unread(401, "Unauthorized", refusal) if refusal is not None else None

    def answer_unread(self, unread: Unread, remote: str | None) -> Reply:
        if unread.status == 401:
            self._durations.observe("unauthenticated", self._clock.monotonic())
            _log.warning(
                "extender call refused", verb=self._name, reason=unread.text, remote=remote
            )
            return Reply(401, unread.text.encode(), TEXT)
        self._durations.observe("malformed", self._clock.monotonic())
        _log.warning("extender request unreadable", verb=self._name, error=unread.text)
        return self._error_reply(unread.text)

    def _reply(self, decided: "VerbResult", started: float) -> Reply:
        self._durations.observe(decided.outcome, started)
        if decided.bound is not None:
            _count(decided.bound)
        _log.info("extender", verb=self._name, outcome=decided.outcome, **decided.facts)
        return Reply(200, decided.body)

    def _failed(self) -> Reply:
        _log.exception("extender call failed", verb=self._name)
        return self._error_reply(_FAILED)

    def _error_reply(self, text: str) -> Reply:
        return Reply(200, _ERROR_ANSWERS[self._name](text))


def _count(bound: "PodPlacement") -> None:
    metrics.PLACEMENTS.labels(bound.pool, bound.quality.value).inc()
    if bound.waited_s is not None:
        metrics.POD_WAIT.labels(bound.pool).observe(bound.waited_s)
    if bound.reserved_for_s is not None:
        metrics.POD_RESERVED_WAIT.labels(bound.pool).observe(bound.reserved_for_s)
    if bound.warmth is not None:
        CACHE_PLACEMENTS.labels(bound.warmth.value).inc()


def _status(unread: Unread) -> Reply:
    """Answer with a `metav1.Status`: the API server passes its message on to the user."""
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": unread.status,
        "reason": unread.reason,
        "message": unread.text,
    }
    return Reply(unread.status, msgspec.json.encode(body))
