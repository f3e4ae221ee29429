"""Use and cost: device-hours by pool and namespace, what of them was idle, and what they cost.

Units become devices by the pool's devices over its units: one of four slices is a quarter of a device.
"""

from typing import Final

from dashboards.device_expressions import NEEDS_DEVICES, OF_POOLS
from dashboards.expressions import (
    Vector,
    combined,
    highest,
    increase,
    matching,
    max_by,
    min_by,
    or_zero,
    rate,
    renamed,
    select,
    sum_by,
)
from dashboards.foreign_series import GPU_UTIL
from dashboards.layout import Amount, Board, Choice, PanelRow
from dashboards.panels import PanelUnit, Query, graph, number, rows, with_runbook
from reconciler.pool.unit_seconds import UnitState
from telemetry import metrics
from telemetry.usage_metrics import DEVICE_HOLDER, NAMESPACE_UNIT_SECONDS, NAMESPACE_UNITS

_PRICE: Final = "$price"
_NEEDS_USAGE: Final = "Needs /metrics/usage."
_USED: Final = UnitState.USED.value
_DEVICES_A_UNIT: Final = (
    f"({max_by(select(metrics.POOL_ASSIGNMENTS, pool=OF_POOLS), 'pool')}"
    f" / ({max_by(select(metrics.POOL_CAPACITY_TOTAL, pool=OF_POOLS), 'pool')} > 0))"
)
_UNIT_SECONDS: Final = select(metrics.POOL_UNIT_SECONDS, pool=OF_POOLS)
_OF_NAMESPACES: Final = matching("$namespace")


def _as_devices(units: Vector) -> Vector:
    return combined(f"({units} * on (pool) group_left () {_DEVICES_A_UNIT})", *units.labels)


def _hours(*by: str, **labels: str) -> Vector:
    """Return the device-hours of the time range."""
    seconds = increase(select(metrics.POOL_UNIT_SECONDS, pool=OF_POOLS, **labels))
    devices = sum_by(_as_devices(sum_by(seconds, "pool", "state")), *by)
    return combined(f"({devices} / 3600)", *by)


def _now(*by: str, **labels: str) -> Vector:
    """Return the devices that were in a state lately: exact between two scrapes, as a gauge is not."""
    seconds = rate(select(metrics.POOL_UNIT_SECONDS, pool=OF_POOLS, **labels))
    return sum_by(_as_devices(sum_by(seconds, "pool", "state")), *by)


def _hours_of_namespaces(*by: str) -> Vector:
    seconds = increase(
        select(NAMESPACE_UNIT_SECONDS, pool=OF_POOLS, namespace=_OF_NAMESPACES, state=_USED)
    )
    devices = sum_by(_as_devices(sum_by(seconds, "pool", "namespace")), *by)
    return combined(f"({devices} / 3600)", *by)


def _now_in_namespaces() -> Vector:
    seconds = rate(
        select(NAMESPACE_UNIT_SECONDS, pool=OF_POOLS, namespace=_OF_NAMESPACES, state=_USED)
    )
    return sum_by(_as_devices(sum_by(seconds, "pool", "namespace")), "namespace")


def _idle_devices() -> Vector:
    """Return the devices of namespaces that did nothing; one that several share counts for each."""
    busiest = renamed(max_by(highest(select(GPU_UTIL), "30m"), "UUID"), "UUID", "uuid")
    held = max_by(select(DEVICE_HOLDER, namespace=_OF_NAMESPACES), "uuid", "namespace")
    text = f"({held} > 0 and on (uuid) ({max_by(busiest, 'uuid')} < 5))"
    return combined(text, "uuid", "namespace")


_TOTALS: Final = PanelRow(
    "In the time range",
    (
        number(
            "Device-hours", "Of all devices of the pools.", or_zero(_hours()), unit=PanelUnit.HOURS
        ),
        number(
            "Device-hours in use",
            "That bound pods had; a unit that is a part of a device counts as that part.",
            or_zero(_hours(state=_USED)),
            unit=PanelUnit.HOURS,
        ),
        number(
            "Share in use",
            "Of all device-hours of the pools.",
            f"{_hours(state=_USED)} / ({_hours()} > 0)",
            unit=PanelUnit.SHARE,
        ),
        number(
            "Cost",
            "Of all device-hours, by the price at the top.",
            or_zero(f"{_hours()} * {_PRICE}"),
            unit=PanelUnit.MONEY,
        ),
        number(
            "Cost of what was in use",
            "By the same price.",
            or_zero(f"{_hours(state=_USED)} * {_PRICE}"),
            unit=PanelUnit.MONEY,
        ),
        number(
            "Cost of the rest",
            "Reserved, free or withheld: no pod had it.",
            or_zero(f"({_hours()} - {_hours(state=_USED)}) * {_PRICE}"),
            unit=PanelUnit.MONEY,
        ),
    ),
)

_POOLS: Final = PanelRow(
    "Pools",
    (
        rows(
            "Device-hours and cost by pool",
            "Of the time range, by state; idle is what no pod had.",
            *(
                Query(_hours("pool", state=state.value), state.value.capitalize(), PanelUnit.HOURS)
                for state in UnitState
            ),
            Query(
                f"{_hours('pool', state=_USED)} / ({_hours('pool')} > 0)",
                "Share in use",
                PanelUnit.SHARE,
            ),
            Query(f"{_hours('pool', state=_USED)} * {_PRICE}", "Cost in use", PanelUnit.MONEY),
            Query(
                f"({_hours('pool')} - {_hours('pool', state=_USED)}) * {_PRICE}",
                "Cost idle",
                PanelUnit.MONEY,
            ),
        ).span(24),
        graph(
            "Devices by state",
            "Used, reserved, free and withheld: they add up to the devices of the pools.",
            Query(_now("state"), "{{state}}"),
            is_stacked=True,
        ),
        graph(
            "Share in use by pool",
            "Of the pool's units.",
            Query(f"{_now('pool', state=_USED)} / ({_now('pool')} > 0)", "{{pool}}"),
            unit=PanelUnit.SHARE,
        ),
        graph(
            "Cost of an hour by pool",
            "Of all devices of the pool, by the price at the top.",
            Query(f"{_now('pool')} * {_PRICE}", "{{pool}}"),
            unit=PanelUnit.MONEY,
            is_stacked=True,
        ),
    ),
)

_NAMESPACES: Final = PanelRow(
    "Namespaces",
    (
        rows(
            "Device-hours and cost by namespace",
            f"Of the time range, of bound pods. {_NEEDS_USAGE}",
            Query(_hours_of_namespaces("namespace", "pool"), "Device-hours", PanelUnit.HOURS),
            Query(
                f"{_hours_of_namespaces('namespace', 'pool')} * {_PRICE}", "Cost", PanelUnit.MONEY
            ),
        ).span(12),
        rows(
            "Units by namespace",
            f"That pods have now. {_NEEDS_USAGE}",
            *(
                Query(
                    sum_by(
                        select(
                            NAMESPACE_UNITS,
                            pool=OF_POOLS,
                            namespace=_OF_NAMESPACES,
                            state=state.value,
                        ),
                        "namespace",
                        "pool",
                    ),
                    state.value.capitalize(),
                )
                for state in (UnitState.USED, UnitState.RESERVED)
            ),
        ).span(12),
        graph(
            "Devices by namespace",
            f"Of bound pods. {_NEEDS_USAGE}",
            Query(_now_in_namespaces(), "{{namespace}}"),
            is_stacked=True,
        ),
        graph(
            "Cost of an hour by namespace",
            f"Of the devices of bound pods, by the price at the top. {_NEEDS_USAGE}",
            Query(f"{_now_in_namespaces()} * {_PRICE}", "{{namespace}}"),
            unit=PanelUnit.MONEY,
            is_stacked=True,
        ),
        graph(
            "Idle devices of namespaces",
            f"Devices that pods have and whose utilisation stayed below 5 % in the last 30 minutes. {_NEEDS_USAGE}"
            f" {NEEDS_DEVICES}",
            Query(f"count by (namespace) ({_idle_devices()})", "{{namespace}}"),
            is_stacked=True,
        ),
        rows(
            "Pods with the most units",
            f"The twenty first. {_NEEDS_USAGE}",
            Query(
                f"topk(20, {sum_by(select(DEVICE_HOLDER, namespace=_OF_NAMESPACES), 'namespace', 'pod')})",
                "Units",
            ),
        ).span(24),
    ),
)

_NODES: Final = PanelRow(
    "Nodes that come and go",
    (
        graph(
            "Price of an hour",
            "Of the devices of pools that scale, by state, in the currency of the shapes' prices.",
            Query(
                max_by(select(metrics.SCALE_NODE_COST, pool=OF_POOLS), "pool", "state"),
                "{{pool}} {{state}}",
            ),
            unit=PanelUnit.MONEY,
            is_stacked=True,
        ),
        with_runbook(
            graph(
                "Rest of the budget",
                "By period; none for pools without a budget.",
                Query(
                    min_by(select(metrics.SCALE_BUDGET_REMAINING, pool=OF_POOLS), "pool", "period"),
                    "{{pool}} {{period}}",
                ),
                unit=PanelUnit.MONEY,
            ),
            "GPUScaleBudgetExhausted",
        ),
        graph(
            "Devices idle on their nodes",
            "Devices on nodes of pools that scale of which no unit was used.",
            Query(
                sum_by(rate(select(metrics.SCALE_IDLE_DEVICE_SECONDS, pool=OF_POOLS)), "pool"),
                "{{pool}}",
            ),
        ),
    ),
)

USAGE_BOARD: Final = Board(
    uid="gpu-use",
    title="GPU / Use and cost",
    description="Device-hours by pool and namespace, what of them was idle, and what they cost by a price of your own.",
    choices=(
        Choice("pool", "Pool", select(metrics.POOL_CAPACITY_TOTAL)),
        Choice("namespace", "Namespace", select(NAMESPACE_UNITS)),
        Amount("price", "Price of a device-hour", "2"),
    ),
    rows=(_TOTALS, _POOLS, _NAMESPACES, _NODES),
)
