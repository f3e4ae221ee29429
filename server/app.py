"""The HTTP application: one port for webhooks, the extender and probes.

Handlers read a bounded body, call a synchronous decision (bind alone awaits its one API write),
write one log line and one histogram sample. Whatever a decision raises becomes an answer of its
protocol and is counted; no traceback leaves the process.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from admission.webhooks import mutate_pod, validate_gpudevice, validate_gpupool, validate_pod
from kube.errors import cut
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from scheduler.wire import (
    FilterResult,
    encode_bind,
    encode_filter,
    encode_preemption,
    encode_priorities,
)
from server.bodies import Unread, read_body
from telemetry.metrics import ADMISSION_DURATION, EXTENDER_DURATION, REFUSALS, REGISTRY
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.answer import Answer as AdmissionAnswer
    from admission.desk import AdmissionDesk
    from api.clock import Clock
    from scheduler.answer import Answer as ExtenderAnswer
    from scheduler.desk import SchedulingDesk
    from server.authentication import ExtenderAuthentication
    from server.readiness import Readiness

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON: Final = "application/json"
_ERROR_ANSWERS: "Final[dict[str, Callable[[str], bytes]]]" = {
    constants.FILTER_VERB: lambda text: encode_filter(FilterResult(error=text)),
    constants.PRIORITIZE_VERB: lambda _: encode_priorities([]),
    constants.PREEMPT_VERB: lambda _: encode_preemption({}),
    constants.BIND_VERB: encode_bind,
}
"""What the extender says where it cannot decide: HTTP 200, since kube-scheduler discards the body of
any other. Where the protocol has no field for an error, the harmless answer; the log has the text."""
_FAILED: Final = "gpu-control-plane failed to decide; its log says why"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desks:
    """What the handlers work on."""

    admission: "AdmissionDesk"
    scheduling: "SchedulingDesk"
    authentication: "ExtenderAuthentication"
    readiness: "Readiness"
    clock: "Clock"
    max_body_bytes: int


def build_app(desks: Desks) -> web.Application:
    """Return the application; it owns nothing that has to be closed."""
    app = web.Application(client_max_size=desks.max_body_bytes)
    webhooks = {
        constants.MUTATE_PODS_PATH: ("mutate-pods", mutate_pod),
        constants.VALIDATE_PODS_PATH: ("validate-pods", validate_pod),
        constants.VALIDATE_POOLS_PATH: ("validate-gpupools", validate_gpupool),
        constants.VALIDATE_DEVICES_PATH: ("validate-gpudevices", validate_gpudevice),
    }
    for path, (name, decide) in webhooks.items():
        app.router.add_post(path, _webhook(name, decide, desks))
    for path, verb, answer in (
        (constants.FILTER_PATH, constants.FILTER_VERB, filter_nodes),
        (constants.PRIORITIZE_PATH, constants.PRIORITIZE_VERB, prioritize),
        (constants.PREEMPT_PATH, constants.PREEMPT_VERB, preempt),
    ):
        app.router.add_post(path, _verb(verb, _immediate(answer), desks))
    app.router.add_post(constants.BIND_PATH, _verb(constants.BIND_VERB, bind, desks))
    app.router.add_get(constants.LIVENESS_PATH, _livez)
    app.router.add_get(constants.READINESS_PATH, _readyz(desks.readiness))
    app.router.add_get(constants.METRICS_PATH, _metrics)
    return app


def _webhook(
    name: str, decide: "Callable[[bytes, AdmissionDesk], AdmissionAnswer]", desks: Desks
) -> Handler:
    def observe(outcome: str, started: float) -> None:
        ADMISSION_DURATION.labels(name, outcome).observe(desks.clock.monotonic() - started)

    async def handle(request: web.Request) -> web.Response:
        body = await _read_json(request, desks)
        started = desks.clock.monotonic()
        if isinstance(body, Unread):
            observe("malformed", started)
            REFUSALS.labels(RefusalReason.MALFORMED_REQUEST.value).inc()
            _log.warning("admission request unreadable", webhook=name, error=body.text)
            return _status(body)
        try:
            answer = decide(body, desks.admission)
        except Exception:  # noqa: BLE001  # the per-request boundary
            observe("failed", started)
            _log.exception("admission failed", webhook=name)
            return _status(Unread(500, "InternalError", _FAILED))
        observe(answer.outcome, started)
        if answer.reason is not None:
            REFUSALS.labels(answer.reason.value).inc()
        _log.info("admission", webhook=name, outcome=answer.outcome, **answer.facts)
        return web.Response(status=answer.status, body=answer.body, content_type=JSON)

    return handle


async def _read_json(request: web.Request, desks: Desks) -> bytes | Unread:
    if request.content_type != JSON:
        text = f"Content-Type must be {JSON}, not {cut(request.content_type)}"
        return Unread(415, "UnsupportedMediaType", text)
    return await read_body(request, max_bytes=desks.max_body_bytes)


def _immediate(
    answer: "Callable[[bytes, SchedulingDesk], ExtenderAnswer]",
) -> "Callable[[bytes, SchedulingDesk], Awaitable[ExtenderAnswer]]":
    async def call(body: bytes, desk: "SchedulingDesk") -> "ExtenderAnswer":
        return answer(body, desk)

    return call


def _verb(
    verb: str,
    answer_to: "Callable[[bytes, SchedulingDesk], Awaitable[ExtenderAnswer]]",
    desks: Desks,
) -> Handler:
    def observe(outcome: str, started: float) -> None:
        EXTENDER_DURATION.labels(verb, outcome).observe(desks.clock.monotonic() - started)

    def sorry(text: str) -> web.Response:
        return web.Response(body=_ERROR_ANSWERS[verb](text), content_type=JSON)

    async def handle(request: web.Request) -> web.Response:
        started = desks.clock.monotonic()
        refusal = desks.authentication.refusal_of(request)
        if refusal is not None:
            observe("unauthenticated", started)
            _log.warning("extender call refused", verb=verb, reason=refusal, remote=request.remote)
            return _plain(401, refusal)
        body = await read_body(request, max_bytes=desks.max_body_bytes)
        started = desks.clock.monotonic()
        if isinstance(body, Unread):
            observe("malformed", started)
            _log.warning("extender request unreadable", verb=verb, error=body.text)
            return sorry(body.text)
        try:
            answer = await answer_to(body, desks.scheduling)
        except Exception:  # noqa: BLE001  # the per-request boundary
            observe("failed", started)
            _log.exception("extender call failed", verb=verb)
            return sorry(_FAILED)
        observe(answer.outcome, started)
        _log.info("extender", verb=verb, outcome=answer.outcome, **answer.facts)
        return web.Response(body=answer.body, content_type=JSON)

    return handle


async def _livez(_request: web.Request) -> web.Response:
    return _plain(200, "ok\n")


def _readyz(readiness: "Readiness") -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        return _plain(200 if readiness.is_ready() else 503, readiness.report())

    return handle


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(
        body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


def _status(unread: Unread) -> web.Response:
    """Answer with a `metav1.Status`: the API server passes its message on to the user."""
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": unread.status,
        "reason": unread.reason,
        "message": unread.text,
    }
    return web.Response(status=unread.status, body=msgspec.json.encode(body), content_type=JSON)


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/plain")
