"""Pools, for their users: what is free, who waits and how long, and whether what pods have is used."""

from typing import TYPE_CHECKING, Final

from dashboards.device_expressions import NEEDS_DEVICES, OF_POOLS, with_pool
from dashboards.expressions import (
    Vector,
    avg_by,
    combined,
    count_by,
    highest,
    increase,
    max_by,
    or_zero,
    other_than,
    quantile,
    rate,
    select,
    sum_by,
)
from dashboards.foreign_series import FB_FREE, FB_USED, GPU_UTIL
from dashboards.layout import Board, Choice, PanelRow
from dashboards.panels import PanelUnit, Query, graph, number, rows, with_runbook
from pool.reservations.reservation import End
from telemetry import metrics
from telemetry.conditions import PoolCondition
from telemetry.usage_metrics import DEVICE_HOLDER

if TYPE_CHECKING:
    from dashboards.foreign_series import ForeignSeries
    from telemetry.metric_declaration import DeclaredMetric

_STATES: Final = {
    "used": metrics.POOL_CAPACITY_USED,
    "reserved": metrics.POOL_CAPACITY_RESERVED,
    "free": metrics.POOL_CAPACITY_AVAILABLE,
    "withheld": metrics.POOL_CAPACITY_UNHEALTHY,
}


def _of_pool(metric: "DeclaredMetric") -> Vector:
    """Return one value a pool: only the leader has gauges of pools."""
    return max_by(select(metric, pool=OF_POOLS), "pool")


def _by_pool(metric: "DeclaredMetric") -> Query:
    return Query(_of_pool(metric), "{{pool}}")


def _column(name: str, metric: "DeclaredMetric", unit: PanelUnit = PanelUnit.COUNT) -> Query:
    return Query(_of_pool(metric), name, unit)


def _bad_conditions() -> str:
    fine = other_than(PoolCondition.READY.value, PoolCondition.SUPPORTED.value)
    found = select(metrics.POOL_CONDITION, condition=fine, pool=OF_POOLS)
    return f"{max_by(found, 'pool', 'condition')} == 1"


def _memory(field: "ForeignSeries") -> Vector:
    instances = max_by(select(field), "UUID", "GPU_I_ID")
    return sum_by(with_pool(sum_by(instances, "UUID")), "pool")


def _idle_devices() -> Vector:
    """Return the devices that pods have and that did nothing, with their pools."""
    busiest = max_by(highest(select(GPU_UTIL), "30m"), "UUID")
    held = max_by(select(DEVICE_HOLDER), "uuid")
    return combined(f"({with_pool(busiest)} < 5 and on (uuid) {held} > 0)", "uuid", "pool")


_NOW: Final = PanelRow(
    "Now",
    (
        number(
            "Units",
            "Of the pools: whole devices, MIG instances or time slices.",
            sum_by(_of_pool(metrics.POOL_CAPACITY_TOTAL)),
        ),
        number(
            "Free",
            "Units that pods can get now.",
            sum_by(_of_pool(metrics.POOL_CAPACITY_AVAILABLE)),
        ),
        number(
            "Largest request",
            "Most units that one pod can get now: they must be free on one node.",
            max_by(_of_pool(metrics.POOL_LARGEST_FREE)),
        ),
        number(
            "Waiting pods",
            "Pending pods that hold no unit and are not gated; `kubectl gpu why POD` says why one waits.",
            sum_by(_of_pool(metrics.PODS_WAITING)),
        ),
        number(
            "Longest wait",
            "Age of the oldest of them.",
            max_by(_of_pool(metrics.PODS_LONGEST_WAIT)),
            unit=PanelUnit.SECONDS,
        ),
        with_runbook(
            number(
                "Expired reservations",
                "Of the time range, in all pools: pods that were not bound in time, and lost their units to others.",
                or_zero(
                    sum_by(increase(select(metrics.RESERVATIONS_ENDED, end=End.EXPIRED.value)))
                ),
                is_fault=True,
            ),
            "GPUReservationsExpiring",
        ),
    ),
)

_CAPACITY: Final = PanelRow(
    "Capacity",
    (
        with_runbook(
            rows(
                "Pools",
                "Units of each pool by state, the most that one pod can get now, and who waits.",
                _column("Units", metrics.POOL_CAPACITY_TOTAL),
                _column("Used", metrics.POOL_CAPACITY_USED),
                _column("Reserved", metrics.POOL_CAPACITY_RESERVED),
                _column("Free", metrics.POOL_CAPACITY_AVAILABLE),
                _column("Withheld", metrics.POOL_CAPACITY_UNHEALTHY),
                _column("Devices", metrics.POOL_ASSIGNMENTS),
                _column("Largest request", metrics.POOL_LARGEST_FREE),
                _column("Fragmentation", metrics.POOL_FRAGMENTATION, PanelUnit.SHARE),
                _column("Waiting pods", metrics.PODS_WAITING),
                _column("Longest wait", metrics.PODS_LONGEST_WAIT, PanelUnit.SECONDS),
            ).span(24),
            "GPUPoolUnitsWithheld",
        ),
        graph(
            "Capacity by pool",
            "All units of each pool.",
            _by_pool(metrics.POOL_CAPACITY_TOTAL),
            is_stacked=True,
        ),
        with_runbook(
            graph(
                "Units by state",
                "Used by bound pods, reserved for pods that are not bound yet, free, and withheld.",
                *(Query(sum_by(_of_pool(metric)), state) for state, metric in _STATES.items()),
                is_stacked=True,
            ),
            "GPUPoolCapacityLow",
        ),
        graph(
            "Free and largest",
            "Free units of each pool, and the most of them on one node: a pod that requests more waits.",
            Query(_of_pool(metrics.POOL_CAPACITY_AVAILABLE), "{{pool}} free"),
            Query(_of_pool(metrics.POOL_LARGEST_FREE), "{{pool}} largest"),
        ),
        graph(
            "Pods that still fit",
            "By the units that a pod requests, one size at a time.",
            Query(
                sum_by(
                    max_by(select(metrics.POOL_FITTING_PODS, pool=OF_POOLS), "pool", "units"),
                    "units",
                ),
                "{{units}}",
            ),
        ),
        with_runbook(
            graph(
                "Fragmentation",
                "Share of the free devices that a pod of the pool's recent demand is expected not to be able to use.",
                _by_pool(metrics.POOL_FRAGMENTATION),
                unit=PanelUnit.SHARE,
            ),
            "GPUPoolFragmented",
        ),
        with_runbook(
            graph(
                "Conditions of pools",
                "Those that are True besides Ready and Supported: maintenance, low capacity, conflicts, bad"
                " specifications.",
                Query(_bad_conditions(), "{{pool}} {{condition}}"),
            ),
            "GPUPoolMisconfigured",
            "GPUPoolMaintenance",
        ),
    ),
)

_WAITING: Final = PanelRow(
    "Waiting",
    tuple(
        panel.span(12)
        for panel in (
            with_runbook(
                graph(
                    "Waiting pods and longest wait",
                    "Pending pods of each pool that hold no unit and are not gated, and the age of the oldest in minutes.",
                    Query(_of_pool(metrics.PODS_WAITING), "{{pool}} pods"),
                    Query(f"{_of_pool(metrics.PODS_LONGEST_WAIT)} / 60", "{{pool}} minutes"),
                ),
                "GPUPoolExhausted",
                "GPUPodsWaitBesideFreeUnits",
            ),
            graph(
                "Time from creation to binding",
                "Median and 95th percentile of the pods that were bound.",
                *(
                    Query(
                        quantile(share, metrics.POD_WAIT, "pool", pool=OF_POOLS),
                        f"{{{{pool}}}} {name}",
                    )
                    for share, name in ((0.5, "p50"), (0.95, "p95"))
                ),
                unit=PanelUnit.SECONDS,
            ),
            graph(
                "Refusals by reason",
                "Pods, pools and devices that admission refused, in all pools.",
                Query(sum_by(rate(select(metrics.REFUSALS)), "reason"), "{{reason}}"),
                unit=PanelUnit.PER_SECOND,
            ),
            with_runbook(
                graph(
                    "Reservations by how they ended",
                    "bound; expired: not bound in time; released: the pod was deleted or its Binding refused; not_observed: the"
                    " pod never appeared; taken_over: an older pod got the units. In all pools.",
                    Query(sum_by(rate(select(metrics.RESERVATIONS_ENDED)), "end"), "{{end}}"),
                    unit=PanelUnit.PER_SECOND,
                ),
                "GPUReservationExpired",
            ),
        )
    ),
)

_USE: Final = PanelRow(
    "Use",
    (
        graph(
            "Utilisation by pool",
            f"Mean of all devices of the pool. {NEEDS_DEVICES}",
            Query(avg_by(with_pool(max_by(select(GPU_UTIL), "UUID")), "pool"), "{{pool}}"),
            unit=PanelUnit.PERCENT,
        ),
        graph(
            "Memory in use by pool",
            f"Share of the devices' memory. {NEEDS_DEVICES}",
            Query(
                f"{_memory(FB_USED)} / ({_memory(FB_USED)} + {_memory(FB_FREE)} > 0)", "{{pool}}"
            ),
            unit=PanelUnit.SHARE,
        ),
        graph(
            "Reserved or used, but idle",
            "Devices that pods have and whose utilisation stayed below 5 % in the last 30 minutes, and units that are"
            f" reserved and not used yet. Needs /metrics/usage. {NEEDS_DEVICES}",
            Query(count_by(_idle_devices(), "pool"), "{{pool}} idle"),
            Query(_of_pool(metrics.POOL_CAPACITY_RESERVED), "{{pool}} reserved"),
        ),
    ),
)

POOLS_BOARD: Final = Board(
    uid="gpu-pools",
    title="GPU / Pools",
    description="What is free in each pool, who waits and how long, and whether what pods have is used.",
    choices=(Choice("pool", "Pool", select(metrics.POOL_CAPACITY_TOTAL)),),
    rows=(_NOW, _CAPACITY, _WAITING, _USE),
)
