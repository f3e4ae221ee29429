"""What is answered on the one port: webhooks, the scheduler's paths, probes and metrics."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from admission.admission_webhooks import (
    mutate_pod,
    validate_gpudevice,
    validate_gpupool,
    validate_node,
    validate_pod,
)
from admission.cache_webhooks import (
    mutate_clustergkmcache,
    mutate_gkmcache,
    validate_clustergkmcache,
    validate_gkmcache,
)
from http_edge.exposition import Exposition
from http_edge.replies import TEXT, Reply
from http_edge.routes import Routes
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from server.http.endpoints import AwaitingVerb, AwaitingWebhook, Verb, VerbReport, Webhook
from server.http.scaling_page import ScalingPage
from server.http.usage_page import UsagePage
from telemetry.usage_metrics import USAGE_REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.caches.cache_context import CacheAdmissionContext
    from admission.context import AdmissionContext
    from api.clock import Clock
    from http_edge.reviews.kube_reviews import TokenUser
    from http_edge.reviews.reviewed_tokens import ReviewedTokens
    from scheduler.context import ExtenderContext
    from server.http.authentication import ExtenderAuthentication, WebhookAuthentication
    from server.http.readiness import Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The dependencies of all handlers."""

    admission: "AdmissionContext"
    caches: "CacheAdmissionContext | None"
    """None where kernel caches are not served."""
    scheduling: "ExtenderContext"
    extender: "ExtenderAuthentication"
    webhooks: "WebhookAuthentication | None"
    """None answers every caller."""
    readiness: "Readiness"
    scaling: "Callable[[], bytes | None]"
    """The JSON of /debug/scale; None on a replica that does not lead."""
    metrics_readers: "ReviewedTokens[TokenUser]"
    """Who may read which namespaces and pods have units."""
    clock: "Clock"


def build_routes(handlers: Handlers) -> Routes:
    readiness = handlers.readiness
    return Routes(
        endpoints={**_webhooks(handlers), **_cache_webhooks(handlers), **_verbs(handlers)},
        pages={
            constants.LIVENESS_PATH: lambda *_: Reply(200, b"ok\n", TEXT),
            constants.READINESS_PATH: lambda *_: _readyz(readiness, readiness.is_ready()),
            constants.SYNCED_PATH: lambda *_: _readyz(readiness, readiness.may_take_over()),
            constants.METRICS_PATH: Exposition().show,
            constants.USAGE_METRICS_PATH: UsagePage(
                handlers.metrics_readers, Exposition(USAGE_REGISTRY)
            ).show,
            constants.SCALING_PATH: ScalingPage(handlers.extender, handlers.scaling).show,
        },
    )


def _readyz(readiness: "Readiness", is_ready: bool) -> Reply:  # noqa: FBT001  # one answer, two questions
    return Reply(200 if is_ready else 503, readiness.report().encode(), TEXT)


def _webhooks(handlers: Handlers) -> dict[str, Webhook]:
    return {
        path: Webhook(
            name,
            partial(decide, context=handlers.admission),
            clock=handlers.clock,
            callers=handlers.webhooks,
        )
        for path, name, decide in (
            (constants.MUTATE_PODS_PATH, "mutate-pods", mutate_pod),
            (constants.VALIDATE_PODS_PATH, "validate-pods", validate_pod),
            (constants.VALIDATE_POOLS_PATH, "validate-gpupools", validate_gpupool),
            (constants.VALIDATE_DEVICES_PATH, "validate-gpudevices", validate_gpudevice),
            (constants.VALIDATE_NODES_PATH, "validate-nodes", validate_node),
        )
    }


def _cache_webhooks(handlers: Handlers) -> dict[str, Webhook | AwaitingWebhook]:
    context, clock, callers = handlers.caches, handlers.clock, handlers.webhooks
    if context is None:
        return {}
    awaiting = (
        (constants.MUTATE_CACHES_PATH, "mutate-gkmcaches", mutate_gkmcache),
        (
            constants.MUTATE_CLUSTER_CACHES_PATH,
            "mutate-clustergkmcaches",
            mutate_clustergkmcache,
        ),
    )
    at_once = (
        (constants.VALIDATE_CACHES_PATH, "validate-gkmcaches", validate_gkmcache),
        (
            constants.VALIDATE_CLUSTER_CACHES_PATH,
            "validate-clustergkmcaches",
            validate_clustergkmcache,
        ),
    )
    return {
        **{
            path: AwaitingWebhook(
                name, partial(decide, context=context), clock=clock, callers=callers
            )
            for path, name, decide in awaiting
        },
        **{
            path: Webhook(name, partial(check, context=context), clock=clock, callers=callers)
            for path, name, check in at_once
        },
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
