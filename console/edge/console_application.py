"""The console's answers: which path gets which, and what a request must have before it gets one.

Method → host → path → origin → query → viewer → data that is ready → answer. A request is answered as JSON where it is
refused, whatever is wrong.
"""

import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import structlog
from cachetools import LRUCache

from console.console_data import BadQuestionError, DecisionRefusedError
from console.edge import decisions, questions
from console.edge.console_answers import TEXT, RefusedError, answer, refusal, row_answer, sent_bytes
from console.edge.viewer_limits import ViewerLimits
from console.edge.viewer_streams import ViewerStreams
from http_edge.exposition import Exposition
from http_edge.reviews.token_bucket import TokenBucket
from manifests.constants import LIVENESS_PATH, METRICS_PATH, READINESS_PATH
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from api.clock import Clock
    from console.console_data import ConsoleData, PodTrial
    from console.edge.questions import Query
    from console.edge.static_files import StaticFiles
    from console.edge.viewer_login import LoggedIn, ViewerLogin


def host_of(request: "web.BaseRequest") -> str:
    """Return the header Host in lower case.

    Raises:
        RefusedError: there is none, or more than one.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not hosts[0]:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the request names no host, or several")
    return hosts[0].lower()


def refuse_other_sites(request: "web.BaseRequest", host: str) -> None:
    """Refuse what a browser asks for a page of another site, or of another port of this host.

    Browsers send the origin, and no page can make its browser send another.

    Raises:
        RefusedError: the request is such a one.
    """
    origins = request.headers.getall("Origin", [])
    sites = request.headers.getall("Sec-Fetch-Site", [])
    if any(_authority(origin) != host for origin in origins) or not {"same-origin", "none"} >= set(
        sites
    ):
        raise RefusedError(
            HTTPStatus.FORBIDDEN, "the request comes from a page of another site, and is refused"
        )


def _authority(origin: str) -> str:
    """Return host and port of an origin; its scheme is not compared, since TLS may end before us."""
    scheme, separator, authority = origin.lower().partition("://")
    return authority if separator and scheme in {"http", "https"} else ""


COST_OF_DETAILS: Final = 2.0
"""Details of a pod, which say why it waits: 8 to 64 ms."""
COST_OF_DECISION: Final = 5.0
"""A connection to the API server, and a PATCH that its webhooks and policies check."""
VIEWER_A_SECOND: Final = 10.0
VIEWER_BURST: Final = 40
"""The dearest question takes 30."""
ALL_A_SECOND: Final = 40.0
ALL_BURST: Final = 80
MAX_VIEWERS: Final = 1_000
"""Whose use is known; the one that asked longest ago goes first."""
_PODS_A_TOKEN: Final = 40
"""1,000 pods took 263 to 327 ms."""
_NODES_A_TOKEN: Final = 16


def cost_of_trial(trial: "PodTrial") -> float:
    return 1 + trial.times / _PODS_A_TOKEN + len(trial.cordoned) / _NODES_A_TOKEN


@final
class QuestionLimits:
    """Refuses questions beyond the share of their viewer, or of all: what-if, details of a pod, and decisions.

    Questions are answered in one step of the event loop, in which no stream is written. A token stands for some 10 ms of it
    at 2,000 nodes: a viewer has a tenth of the processor in the long run, all together four tenths.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._of_all = TokenBucket(a_second=ALL_A_SECOND, burst=ALL_BURST)
        self._by_viewer: LRUCache[str, TokenBucket] = LRUCache(MAX_VIEWERS)

    def __len__(self) -> int:
        return len(self._by_viewer)

    def take(self, viewer: str, cost: float) -> None:
        """Count a question.

        Raises:
            RefusedError: 429; it is not to be answered now.
        """
        now = self._clock.monotonic()
        bucket = self._by_viewer.setdefault(
            viewer, TokenBucket(a_second=VIEWER_A_SECOND, burst=VIEWER_BURST)
        )
        if not (bucket.take(now, cost) and self._of_all.take(now, cost)):
            raise RefusedError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many questions are asked; try again in a second",
                {"Retry-After": "1"},
            )


API: Final = "/api/v1/"
TASK: Final = "console request"
_NAMESPACE: Final = "namespace"
_METHODS: Final = {"Allow": "GET, HEAD"}
_ONLY_GET: Final = {"Allow": "GET"}
_ONLY_POST: Final = {"Allow": "POST"}
DECISIONS: Final = f"{API}decisions"
_NOT_READY: Final = "the lists of the cluster are not read yet"

_log = structlog.get_logger()


@final
class ConsoleApplication:
    """Answers requests about one cluster."""

    def __init__(
        self,
        data: "ConsoleData",
        login: "ViewerLogin",
        *,
        files: "StaticFiles",
        clock: "Clock",
        has_probes: bool,
        limits: ViewerLimits | None = None,
    ) -> None:
        """Take the parts.

        Args:
            data: what is known of the cluster.
            login: decides who sees it.
            files: the page.
            clock: of the process.
            has_probes: whether kubelet and Prometheus ask for /livez, /healthz, /readyz and /metrics.
            limits: of streams.
        """
        self.streams = ViewerStreams(data, clock, limits or ViewerLimits())
        self._limits = QuestionLimits(clock)
        self._data = data
        self._login = login
        self._files = files
        self._metrics = Exposition()
        self._probes: dict[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {}
        if has_probes:
            self._probes = {
                LIVENESS_PATH: self._health,
                "/healthz": self._health,
                READINESS_PATH: self._readiness,
                METRICS_PATH: self._show_metrics,
            }

    async def handle(self, request: "web.BaseRequest") -> "web.StreamResponse":
        """Answer a request; raises ConnectionError where the peer has gone."""
        try:
            return await self._answer(request)
        except RefusedError as error:
            return refusal(error)
        except ConnectionError:
            raise
        except Exception as error:  # the boundary of a request
            TASK_FAILURES.labels(TASK).inc()
            _log.error("request not answered", exc_info=error)
            if request.writer.output_size:
                raise ConnectionResetError("the answer broke off") from error
            text = "the console failed; its log says more"
            return refusal(RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, text))

    async def _answer(self, request: "web.BaseRequest") -> "web.StreamResponse":
        path, query = questions.split_target(request.raw_path)
        _check_method(request, _ONLY_POST if path == DECISIONS else _METHODS)
        if probe := self._probes.get(path):
            return await probe(request)
        host = host_of(request)
        self._login.check_host(host)
        if path in self._files:
            return self._files.respond(path, request.headers)
        if not path.startswith(API):
            raise _not_found("there is nothing under this path")
        refuse_other_sites(request, host)
        return await self._answer_question(request, path.removeprefix(API), query)

    async def _answer_question(
        self, request: "web.BaseRequest", path: str, query: str
    ) -> "web.StreamResponse":
        match path.split("/"):
            case ["login"]:
                _check_method(request, _ONLY_GET)
                questions.parse_query(query)
                return self._login.log_in(request)
            case ["stream"]:
                _check_method(request, _ONLY_GET)
                return await self._stream(request, questions.parse_query(query, _NAMESPACE))
            case ["devices", name]:
                parameters = questions.parse_query(query, _NAMESPACE)
                return await self._device(request, questions.path_segment(name), parameters)
            case ["pods", namespace, name]:
                questions.parse_query(query)
                return await self._pod(request, *map(questions.path_segment, (namespace, name)))
            case ["what-if"]:
                parameters = questions.parse_query(query, "pool", "units", "times", "cordon")
                return await self._what_if(request, parameters)
            case ["decisions"]:
                questions.parse_query(query)
                return await self._decide(request)
            case _:
                raise _not_found("there is no such question; docs/console.md lists them")

    async def _stream(self, request: "web.BaseRequest", query: "Query") -> "web.StreamResponse":
        namespace = questions.namespace_in(query)
        viewer = await self._viewer(request, namespace)
        return await self.streams.serve(
            request, viewer, lambda: self._login.viewer(request, namespace)
        )

    async def _device(
        self, request: "web.BaseRequest", name: str, query: "Query"
    ) -> "web.Response":
        device = questions.object_name(name, "device")
        viewer = await self._viewer(request, questions.namespace_in(query))
        found = self._data.device(device, viewer.visibility)
        if found is None:
            raise _not_found(f"there is no device {device}")
        return row_answer(found)

    async def _pod(self, request: "web.BaseRequest", namespace: str, name: str) -> "web.Response":
        pod = questions.object_name(name, "pod")
        viewer = await self._viewer(request, questions.namespace_name(namespace))
        self._limits.take(viewer.row.name, COST_OF_DETAILS)
        found = self._data.pod(namespace, pod, viewer.visibility)
        if found is None:
            raise _not_found(
                f"no pod {namespace}/{pod} waits for units, or this user may not list its namespace's pods"
            )
        return row_answer(found)

    async def _what_if(self, request: "web.BaseRequest", query: "Query") -> "web.Response":
        trial = questions.pod_trial(query)
        viewer = await self._viewer(request, None)
        self._limits.take(viewer.row.name, cost_of_trial(trial))
        try:
            return row_answer(self._data.try_pods(trial, viewer.visibility))
        except BadQuestionError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error

    async def _decide(self, request: "web.BaseRequest") -> "web.Response":
        decisions.refuse_other_pages(request)
        viewer = await self._viewer(request, None)
        if viewer.decide is None:
            raise RefusedError(HTTPStatus.FORBIDDEN, decisions.OFF)
        self._limits.take(viewer.row.name, COST_OF_DECISION)
        decision = await decisions.read_decision(request)
        if not decision.is_dry:
            # Before it is sent: the viewer may close the page before the API server's answer.
            _log.info(
                "decision on a device",
                user=viewer.row.name,
                device=decision.device,
                pool=decision.pool,
            )
        try:
            written = await viewer.decide(decision)
        except DecisionRefusedError as error:
            raise _refused_decision(error) from error
        return row_answer(written)

    async def _viewer(self, request: "web.BaseRequest", namespace: str | None) -> "LoggedIn":
        viewer = await self._login.viewer(request, namespace)
        if not self._data.is_ready:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY, {"Retry-After": "1"})
        return viewer

    async def _health(self, _: "web.BaseRequest") -> "web.Response":
        return answer(HTTPStatus.OK, b"ok\n", TEXT)

    async def _readiness(self, _: "web.BaseRequest") -> "web.Response":
        if not self._data.is_ready:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, _NOT_READY)
        return answer(HTTPStatus.OK, b"ready\n", TEXT)

    async def _show_metrics(self, request: "web.BaseRequest") -> "web.Response":
        accepted = sent_bytes(request.headers.get("Accept-Encoding", ""))
        page = await self._metrics.render(None, {b"accept-encoding": accepted})
        lines = page.headers.decode().splitlines()
        headers = dict(line.split(": ", 1) for line in lines)
        return answer(HTTPStatus.OK, page.body, page.content_type, headers=headers)


def _check_method(request: "web.BaseRequest", allowed: "dict[str, str]") -> None:
    if request.method not in allowed["Allow"].split(", "):
        raise RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"this path takes {allowed['Allow']}", allowed
        )


def _refused_decision(error: DecisionRefusedError) -> RefusedError:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if error.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return RefusedError(error.status, str(error), headers)


def _not_found(text: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, text)
