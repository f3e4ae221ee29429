"""The HTTP application: webhooks, the scheduler's paths, probes and metrics on one port.

A handler reads a bounded body and returns the answer of an endpoint.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from admission.admission_webhooks import (
    mutate_pod,
    validate_gpudevice,
    validate_gpupool,
    validate_pod,
)
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from server.http.body import Unread, read_body
from server.http.endpoints import AwaitingVerb, Reply, Verb, VerbReport, Webhook
from server.http.exposition import Exposition

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from api.clock import Clock
    from scheduler.context import ExtenderContext
    from server.http.authentication import ExtenderAuthentication, WebhookAuthentication
    from server.http.limits import Limits
    from server.http.readiness import Readiness

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The dependencies of all handlers."""

    admission: "AdmissionContext"
    scheduling: "ExtenderContext"
    extender: "ExtenderAuthentication"
    webhooks: "WebhookAuthentication | None"
    """None answers every caller."""
    readiness: "Readiness"
    clock: "Clock"
    limits: "Limits"


def build_app(handlers: Handlers) -> web.Application:
    """Return the application; it owns nothing that has to be closed."""
    limits = handlers.limits
    app = web.Application(client_max_size=limits.body_bytes)
    large_bodies = asyncio.Semaphore(limits.large_bodies)
    for path, webhook in _webhooks(handlers).items():
        handler = _handler(webhook, limits, large_bodies)
        app.router.add_post(path, handler, expect_handler=_expecting(webhook))
    for path, verb in _verbs(handlers).items():
        app.router.add_post(path, _handler(verb, limits), expect_handler=_expecting(verb))
    app.router.add_get(constants.LIVENESS_PATH, _livez)
    app.router.add_get(constants.READINESS_PATH, _readyz(handlers.readiness))
    app.router.add_get(constants.METRICS_PATH, Exposition().show)
    return app


def _webhooks(handlers: Handlers) -> dict[str, Webhook]:
    return {
        path: Webhook(
            name,
            decide,
            context=handlers.admission,
            clock=handlers.clock,
            callers=handlers.webhooks,
        )
        for path, name, decide in (
            (constants.MUTATE_PODS_PATH, "mutate-pods", mutate_pod),
            (constants.VALIDATE_PODS_PATH, "validate-pods", validate_pod),
            (constants.VALIDATE_POOLS_PATH, "validate-gpupools", validate_gpupool),
            (constants.VALIDATE_DEVICES_PATH, "validate-gpudevices", validate_gpudevice),
        )
    }


def _verbs(handlers: Handlers) -> dict[str, Verb | AwaitingVerb]:
    context, clock = handlers.scheduling, handlers.clock

    def report(verb: str) -> VerbReport:
        return VerbReport(verb, handlers.extender, clock)

    at_once = (
        (constants.FILTER_PATH, constants.FILTER_VERB, filter_nodes),
        (constants.PRIORITIZE_PATH, constants.PRIORITIZE_VERB, prioritize),
        (constants.PREEMPT_PATH, constants.PREEMPT_VERB, preempt),
    )
    binding = AwaitingVerb(report(constants.BIND_VERB), bind, context=context, clock=clock)
    return {
        constants.BIND_PATH: binding,
        **{
            path: Verb(report(verb), decide, context=context, clock=clock)
            for path, verb, decide in at_once
        },
    }


def _handler(
    endpoint: Webhook | Verb | AwaitingVerb,
    limits: "Limits",
    large_bodies: asyncio.Semaphore | None = None,
) -> Handler:
    async def reply_to(request: web.Request) -> Reply:
        refusal = endpoint.refusal_of(request.transport, request.headers)
        if refusal is not None:
            return endpoint.answer_unread(refusal, request.remote)
        body = await read_body(request, limits, large_bodies)
        if isinstance(body, Unread):
            return endpoint.answer_unread(body, request.remote)
        if isinstance(endpoint, AwaitingVerb):
            return await endpoint.answer(body)
        return endpoint.answer(body)

    async def handle(request: web.Request) -> web.Response:
        return _response(await reply_to(request))

    return handle


def _expecting(
    endpoint: Webhook | Verb | AwaitingVerb,
) -> Callable[..., Awaitable[web.Response | None]]:
    """Return the handler of `Expect: 100-continue`; it refuses a caller before the body is sent."""

    async def handle(request: web.Request) -> web.Response | None:
        refusal = endpoint.refusal_of(request.transport, request.headers)
        if refusal is not None:
            return _response(endpoint.answer_unread(refusal, request.remote))
        if request.headers[hdrs.EXPECT].lower() != "100-continue":
            raise web.HTTPExpectationFailed
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # For aiohttp that was nothing of the answer.
        request.writer.output_size = 0
        return None

    return handle


def _response(reply: Reply) -> web.Response:
    return web.Response(
        status=reply.status, body=reply.body, headers={"Content-Type": reply.content_type}
    )


async def _livez(_request: web.Request) -> web.Response:
    return _plain(200, "ok\n")


def _readyz(readiness: "Readiness") -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        return _plain(200 if readiness.is_ready() else 503, readiness.report())

    return handle


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/plain")
