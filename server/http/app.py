"""What is answered on the one port: webhooks, the scheduler's paths, probes and metrics."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.admission_webhooks import (
    mutate_pod,
    validate_gpudevice,
    validate_gpupool,
    validate_pod,
)
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from server.http.endpoints import AwaitingVerb, Verb, VerbReport, Webhook
from server.http.exposition import Exposition
from server.http.replies import TEXT, Reply
from server.http.routes import Routes

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from api.clock import Clock
    from scheduler.context import ExtenderContext
    from server.http.authentication import ExtenderAuthentication, WebhookAuthentication
    from server.http.readiness import Readiness


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


def build_routes(handlers: Handlers) -> Routes:
    readiness = handlers.readiness
    return Routes(
        endpoints={**_webhooks(handlers), **_verbs(handlers)},
        pages={
            constants.LIVENESS_PATH: lambda _: Reply(200, b"ok\n", TEXT),
            constants.READINESS_PATH: lambda _: _readyz(readiness, readiness.is_ready()),
            constants.SYNCED_PATH: lambda _: _readyz(readiness, readiness.may_take_over()),
            constants.METRICS_PATH: Exposition().show,
        },
    )


def _readyz(readiness: "Readiness", is_ready: bool) -> Reply:  # noqa: FBT001  # one answer, two questions
    return Reply(200 if is_ready else 503, readiness.report().encode(), TEXT)


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
