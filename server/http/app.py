"""What is answered on the one port: webhooks, the scheduler's paths, probes and metrics."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from admission import cache_webhooks
from admission.webhooks import (
    mutate_gpudevice,
    mutate_pod,
    mutate_workload,
    validate_gpudevice,
    validate_gpupool,
    validate_node,
    validate_pod,
)
from http_edge.exposition import Exposition
from http_edge.replies import TEXT, Reply
from http_edge.routes import Routes
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from server.http.endpoints import Verb, Webhook
from server.http.guarded_pages import ScalingPage, UsagePage
from telemetry.usage_metrics import USAGE_REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.caches.context import CacheAdmissionContext
    from admission.context import AdmissionContext
    from admission.review import AdmissionResult
    from api.clock import Clock
    from http_edge.reviews.kube_reviews import TokenUser
    from http_edge.reviews.reviewed_tokens import ReviewedTokens
    from scheduler.context import ExtenderContext
    from scheduler.outcome import VerbResult
    from server.http.authentication import ExtenderAuthentication, WebhookAuthentication
    from server.http.endpoints import Decide
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
    """Accounts that may read which namespaces and pods have units."""
    clock: "Clock"


def build_routes(handlers: Handlers) -> Routes:
    readiness = handlers.readiness
    return Routes(
        endpoints={**_webhooks(handlers), **_verbs(handlers)},
        pages={
            constants.LIVENESS_PATH: lambda *_: Reply(200, b"ok\n", TEXT),
            constants.READINESS_PATH: lambda *_: _readyz(readiness, readiness.is_ready()),
            constants.SYNCED_PATH: lambda *_: _readyz(readiness, readiness.may_take_over()),
            constants.METRICS_PATH: Exposition().render,
            constants.USAGE_METRICS_PATH: UsagePage(
                handlers.metrics_readers, Exposition(USAGE_REGISTRY)
            ).render,
            constants.SCALING_PATH: ScalingPage(handlers.extender, handlers.scaling).render,
        },
    )


def _readyz(readiness: "Readiness", is_ready: bool) -> Reply:  # noqa: FBT001  # one answer, two questions
    return Reply(200 if is_ready else 503, readiness.report().encode(), TEXT)


def _webhooks(handlers: Handlers) -> dict[str, Webhook]:
    admission, caches = handlers.admission, handlers.caches
    decisions: dict[str, tuple[str, Decide[AdmissionResult]]] = {
        constants.MUTATE_PODS_PATH: ("mutate-pods", partial(mutate_pod, context=admission)),
        constants.VALIDATE_PODS_PATH: ("validate-pods", partial(validate_pod, context=admission)),
        constants.MUTATE_WORKLOADS_PATH: (
            "mutate-workloads",
            partial(mutate_workload, context=admission),
        ),
        constants.VALIDATE_POOLS_PATH: (
            "validate-gpupools",
            partial(validate_gpupool, context=admission),
        ),
        constants.MUTATE_DEVICES_PATH: ("mutate-gpudevices", mutate_gpudevice),
        constants.VALIDATE_DEVICES_PATH: (
            "validate-gpudevices",
            partial(validate_gpudevice, context=admission),
        ),
        constants.VALIDATE_NODES_PATH: (
            "validate-nodes",
            partial(validate_node, context=admission),
        ),
    }
    if caches is not None:
        decisions |= {
            constants.MUTATE_CACHES_PATH: (
                "mutate-gkmcaches",
                partial(cache_webhooks.mutate_gkmcache, context=caches),
            ),
            constants.MUTATE_CLUSTER_CACHES_PATH: (
                "mutate-clustergkmcaches",
                partial(cache_webhooks.mutate_clustergkmcache, context=caches),
            ),
            constants.VALIDATE_CACHES_PATH: (
                "validate-gkmcaches",
                partial(cache_webhooks.validate_gkmcache, context=caches),
            ),
            constants.VALIDATE_CLUSTER_CACHES_PATH: (
                "validate-clustergkmcaches",
                partial(cache_webhooks.validate_clustergkmcache, context=caches),
            ),
        }
    return {
        path: Webhook(name, decide, clock=handlers.clock, callers=handlers.webhooks)
        for path, (name, decide) in decisions.items()
    }


def _verbs(handlers: Handlers) -> dict[str, Verb]:
    context = handlers.scheduling
    decisions: dict[str, tuple[str, Decide[VerbResult]]] = {
        constants.FILTER_PATH: (constants.FILTER_VERB, partial(filter_nodes, context=context)),
        constants.PRIORITIZE_PATH: (
            constants.PRIORITIZE_VERB,
            partial(prioritize, context=context),
        ),
        constants.PREEMPT_PATH: (constants.PREEMPT_VERB, partial(preempt, context=context)),
        constants.BIND_PATH: (constants.BIND_VERB, partial(bind, context=context)),
    }
    return {
        path: Verb(verb, decide, clock=handlers.clock, callers=handlers.extender)
        for path, (verb, decide) in decisions.items()
    }
