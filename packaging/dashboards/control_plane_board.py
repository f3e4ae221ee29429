"""The control plane: who leads, how fast it answers, what it asks of the API server, and what its process lacks."""

from typing import TYPE_CHECKING, Final

from dashboards.expressions import (
    CHOSEN_CLUSTER,
    RATE_INTERVAL,
    Vector,
    combined,
    count_by,
    counts,
    increase,
    matching,
    max_by,
    min_by,
    or_zero,
    quantile,
    rate,
    select,
    sum_by,
)
from dashboards.foreign_series import BUILD, CPU_SECONDS, RESIDENT_BYTES
from dashboards.layout import Board, PanelRow
from dashboards.panels import PanelUnit, Query, graph, number, with_runbook
from manifests.monitoring.objectives import OBJECTIVES, slow_share
from pool.reservations.reservation import End
from telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Histogram


_SHARES: Final = ((0.5, "p50"), (0.99, "p99"))
_AIMS: Final = {
    item.name: f"the objective is {float(item.within_s):g} s for {100 * (1 - item.budget):g} %"
    for item in OBJECTIVES
}
_FAILED: Final = "failed"
"""An outcome of requests and reconciles."""


def _percentiles(histogram: "Histogram", name: str, **labels: str) -> "Iterator[Query]":
    for share, shown in _SHARES:
        yield Query(quantile(share, histogram, **labels), f"{name} {shown}")


def _failed_requests() -> str:
    failed = (
        sum_by(increase(counts(histogram, outcome=_FAILED)))
        for histogram in (metrics.ADMISSION_DURATION, metrics.EXTENDER_DURATION)
    )
    return " + ".join(f"({or_zero(item)})" for item in failed)


def _of_servers(series: Vector) -> Vector:
    """Return series of the client library of servers only: agents and others have them, too."""
    ours = select(metrics.RESERVATIONS_ENDED, end=End.BOUND.value)
    return combined(f"({series} and on (instance) {ours})", *series.labels)


_NOW: Final = PanelRow(
    "Now",
    (
        with_runbook(
            number("Leaders", "Exactly one replica leads.", sum_by(select(metrics.LEADING))),
            "GPUControlPlaneNoLeader",
            "GPUControlPlaneMultipleLeaders",
        ),
        with_runbook(
            number(
                "Failed requests",
                "Webhook and extender calls of the time range that ended with an internal error.",
                _failed_requests(),
                is_fault=True,
            ),
            "GPURequestsFail",
        ),
        with_runbook(
            number(
                "Next certificate ends in",
                "Serving certificate or its CA, whichever ends first; both are renewed by the leader.",
                f"{min_by(select(metrics.CERTIFICATE_NOT_AFTER))} - time()",
                unit=PanelUnit.SECONDS,
            ),
            "GPUCertificateExpires",
        ),
        number(
            "Watches not synced",
            "Kinds of which a replica has no first list yet: it is not ready.",
            or_zero(f"count({select(metrics.INFORMER_SYNCED)} == 0)"),
            is_fault=True,
        ),
        number(
            "Events dropped",
            "Kubernetes Events of the time range that were not written: too many, or the API server refused them.",
            or_zero(
                sum_by(increase(select(metrics.EVENTS_EMITTED, outcome=matching("dropped|failed"))))
            ),
            is_fault=True,
        ),
        number(
            "Programs by version",
            "Servers, node agents and consoles that are scraped; agents may be one version behind.",
            count_by(select(BUILD), "version"),
            legend="{{version}}",
        ),
    ),
)

_ANSWERS: Final = PanelRow(
    "Answers",
    (
        with_runbook(
            graph(
                "Admission",
                f"Time to answer webhooks; {_AIMS['GPUAdmissionObjective']}.",
                *_percentiles(metrics.ADMISSION_DURATION, "admission"),
                unit=PanelUnit.SECONDS,
            ),
            "GPUAdmissionSlow",
        ),
        with_runbook(
            graph(
                "Filter and bind",
                f"Time to answer kube-scheduler; of filter, {_AIMS['GPUFilterObjective']}. bind waits for the API server.",
                *_percentiles(metrics.EXTENDER_DURATION, "filter", verb="filter"),
                *_percentiles(metrics.EXTENDER_DURATION, "bind", verb="bind"),
                unit=PanelUnit.SECONDS,
            ),
            "GPUSchedulingSlow",
        ),
        with_runbook(
            graph(
                "Time from reservation to binding",
                f"Of pods that had units reserved; {_AIMS['GPUBindingObjective']}.",
                *_percentiles(metrics.POD_RESERVED_WAIT, "pods"),
                unit=PanelUnit.SECONDS,
            ),
            "GPUBindingObjectiveBurnsFast",
        ),
        with_runbook(
            graph(
                "How fast budgets are used up",
                "Share of the requests that missed an objective, over the share that may: 1 uses the budget of 30 days up in 30"
                " days. Alerts are raised at 14.4 over an hour, and at 6 over six.",
                *(
                    Query(
                        f"{slow_share(item, RATE_INTERVAL, of=CHOSEN_CLUSTER)} / {item.budget:g}",
                        item.text,
                    )
                    for item in OBJECTIVES
                ),
            ),
            *(f"{item.name}BurnsFast" for item in OBJECTIVES),
        ).span(12),
        graph(
            "Answers by outcome",
            "Of webhooks, and of the extender's verbs.",
            Query(
                sum_by(rate(counts(metrics.ADMISSION_DURATION)), "outcome"), "admission {{outcome}}"
            ),
            Query(
                sum_by(rate(counts(metrics.EXTENDER_DURATION)), "verb", "outcome"),
                "{{verb}} {{outcome}}",
            ),
            unit=PanelUnit.PER_SECOND,
        ).span(12),
    ),
)

_API_SERVER: Final = PanelRow(
    "API server",
    (
        graph(
            "Requests by code",
            "The code is the name of an error where there was no answer.",
            Query(
                sum_by(rate(counts(metrics.API_REQUEST_DURATION)), "method", "code"),
                "{{method}} {{code}}",
            ),
            unit=PanelUnit.PER_SECOND,
        ).span(12),
        graph(
            "Slowest requests (p99)",
            "By resource.",
            Query(quantile(0.99, metrics.API_REQUEST_DURATION, "resource"), "{{resource}}"),
            unit=PanelUnit.SECONDS,
        ).span(12),
        with_runbook(
            graph(
                "Silence of watches",
                "Time since a watch last said anything; bookmarks come every minute.",
                Query(max_by(select(metrics.INFORMER_LAG), "resource"), "{{resource}}"),
                unit=PanelUnit.SECONDS,
            ),
            "GPUControlPlaneWatchStalled",
        ).span(12),
        with_runbook(
            graph(
                "Watches that fail or begin again",
                "Lists and watches that failed, and lists after the first, by kind.",
                Query(
                    sum_by(rate(select(metrics.INFORMER_FAILURES)), "resource"),
                    "{{resource}} fails",
                ),
                Query(
                    sum_by(rate(select(metrics.INFORMER_RELISTS)), "resource"),
                    "{{resource}} listed",
                ),
                unit=PanelUnit.PER_SECOND,
            ),
            "GPUWatchesFail",
        ).span(12),
    ),
)

_PROCESS: Final = PanelRow(
    "Process",
    (
        with_runbook(
            graph(
                "Delay of the event loop",
                "How late it came to what was due; CPU limits show here first.",
                *_percentiles(metrics.EVENT_LOOP_LAG, "loop"),
                unit=PanelUnit.SECONDS,
            ),
            "GPUControlPlaneEventLoopLag",
        ),
        graph(
            "CPU of the servers",
            "Cores.",
            Query(_of_servers(rate(select(CPU_SECONDS))), "{{instance}}"),
        ),
        graph(
            "Memory of the servers",
            "Resident.",
            Query(_of_servers(select(RESIDENT_BYTES)), "{{instance}}"),
            unit=PanelUnit.BYTES,
        ),
        with_runbook(
            graph(
                "Controllers and tasks that fail",
                "Reconciles that failed, by controller; failures of background tasks; objects of operands that the API server"
                " refused, and objects of ours that another client changes.",
                Query(
                    sum_by(rate(select(metrics.RECONCILES, outcome=_FAILED)), "controller"),
                    "{{controller}}",
                ),
                Query(sum_by(rate(select(metrics.TASK_FAILURES)), "task"), "{{task}}"),
                Query(
                    sum_by(rate(select(metrics.BOOTSTRAP_HANDLER_ERRORS)), "handler"), "{{handler}}"
                ),
                Query(sum_by(rate(select(metrics.OBJECT_CONFLICTS)), "kind"), "{{kind}}"),
                unit=PanelUnit.PER_SECOND,
            ),
            "GPUControllersFail",
            "GPURolloutStopped",
            "GPUTasksFail",
            "GPUOperandNotApplied",
        ).span(12),
        with_runbook(
            graph(
                "Connections that were closed",
                "handshake that did not succeed, head that did not come in time, answer that was not read, limit, files.",
                Query(sum_by(rate(select(metrics.CONNECTIONS_DROPPED)), "cause"), "{{cause}}"),
                unit=PanelUnit.PER_SECOND,
            ),
            "GPUConnectionsDropped",
        ).span(12),
    ),
)

CONTROL_PLANE_BOARD: Final = Board(
    uid="gpu-control-plane",
    title="GPU / Control plane",
    description="Who leads, how fast webhooks and extender answer, what is asked of the API server, and the process.",
    rows=(_NOW, _ANSWERS, _API_SERVER, _PROCESS),
)
