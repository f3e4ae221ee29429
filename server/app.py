"""The HTTP application: one port for webhooks, the extender and probes.

Handlers read a bounded body, call a synchronous decision (bind alone awaits its one API write),
write one log line and one histogram sample. Whatever a decision raises becomes an answer of its
protocol and is counted; no traceback leaves the process.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from admission.webhooks import mutate_pod, validate_gpudevice, validate_gpupool, validate_pod
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from telemetry.metrics import ADMISSION_DURATION, EXTENDER_DURATION, REFUSALS, REGISTRY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission.answer import Answer as AdmissionAnswer
    from admission.desk import AdmissionDesk
    from api.clock import Clock
    from scheduler.answer import Answer as ExtenderAnswer
    from scheduler.desk import SchedulingDesk
    from server.authentication import ExtenderAuthentication
    from server.readiness import Readiness

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON: Final = "application/json"
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desks:
    """What the handlers work on."""

    admission: "AdmissionDesk"
    scheduling: "SchedulingDesk"
    authentication: "ExtenderAuthentication"
    readiness: "Readiness"
    clock: "Clock"


def build_app(desks: Desks, *, max_body_bytes: int) -> web.Application:
    """Return the application; it owns nothing that has to be closed."""
    app = web.Application(client_max_size=max_body_bytes)
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
) -> "Handler":
    async def handle(request: web.Request) -> web.Response:
        if request.content_type != JSON:
            return _plain(415, f"Content-Type must be {JSON}, not {request.content_type}")
        body = await request.read()
        started = desks.clock.monotonic()
        try:
            answer = decide(body, desks.admission)
        except Exception:  # noqa: BLE001  # the per-request boundary
            ADMISSION_DURATION.labels(name, "failed").observe(desks.clock.monotonic() - started)
            _log.exception("admission failed", webhook=name)
            return _plain(500, "gpu-control-plane failed to decide; its log says why")
        ADMISSION_DURATION.labels(name, answer.outcome).observe(desks.clock.monotonic() - started)
        if answer.reason is not None:
            REFUSALS.labels(answer.reason.value).inc()
        _log.info("admission", webhook=name, outcome=answer.outcome, **answer.facts)
        return web.Response(status=answer.status, body=answer.body, content_type=JSON)

    return handle


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
) -> "Handler":
    async def handle(request: web.Request) -> web.Response:
        refusal = desks.authentication.refusal_of(request)
        if refusal is not None:
            EXTENDER_DURATION.labels(verb, "unauthenticated").observe(0)
            _log.warning("extender call refused", verb=verb, reason=refusal, remote=request.remote)
            return _plain(401, refusal)
        body = await request.read()
        started = desks.clock.monotonic()
        try:
            answer = await answer_to(body, desks.scheduling)
        except Exception:  # noqa: BLE001  # the per-request boundary
            EXTENDER_DURATION.labels(verb, "failed").observe(desks.clock.monotonic() - started)
            _log.exception("extender call failed", verb=verb)
            return web.json_response({"Error": "gpu-control-plane failed; its log says why"})
        EXTENDER_DURATION.labels(verb, answer.outcome).observe(desks.clock.monotonic() - started)
        _log.info("extender", verb=verb, outcome=answer.outcome, **answer.facts)
        return web.Response(body=answer.body, content_type=JSON)

    return handle


async def _livez(_request: web.Request) -> web.Response:
    return _plain(200, "ok\n")


def _readyz(readiness: "Readiness") -> "Handler":
    async def handle(_request: web.Request) -> web.Response:
        return _plain(200 if readiness.is_ready() else 503, readiness.report())

    return handle


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(
        body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/plain")
