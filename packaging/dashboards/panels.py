"""Panels in the house style: a unit, a description, the chosen data source, and no fixed interval."""

from dataclasses import dataclass
from enum import Enum
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from manifests.monitoring.alerts import ALERTS, anchor_of
from manifests.monitoring.dashboards.config_maps import RUNBOOKS

if TYPE_CHECKING:
    from dashboards.expressions import Vector

PanelBuilder = timeseries.Panel | stat.Panel | table.Panel
_Panel = TypeVar("_Panel", timeseries.Panel, stat.Panel, table.Panel)

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_ALERTS: Final = {item.name: item for item in ALERTS}
_NUMBER_HEIGHT, _GRAPH_HEIGHT, _TABLE_HEIGHT = 4, 8, 9
WIDTH: Final = 24
"""Columns of Grafana's grid."""


class PanelUnit(Enum):
    """Units by Grafana's names; DCGM gives memory in MiB and energy in mJ."""

    COUNT = "short"
    PERCENT = "percent"
    SHARE = "percentunit"
    SECONDS = "s"
    HOURS = "h"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    MEBIBYTES = "mbytes"
    CELSIUS = "celsius"
    WATTS = "watt"
    JOULES = "joule"
    MEGAHERTZ = "MHz"
    PER_SECOND = "ops"
    MEGABYTES_PER_SECOND = "MBs"
    MONEY = "locale"
    """In the currency of the price, which the dashboard does not know."""
    SWITCH = "bool_yes_no"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; in a table its value is the column `name`, elsewhere `name` is the legend."""

    expression: "Vector | str"
    name: str = ""
    unit: PanelUnit | None = None
    """Of a table's column."""


def number(
    title: str,
    description: str,
    expression: "Vector | str",
    *,
    unit: PanelUnit = PanelUnit.COUNT,
    legend: str = "",
    is_fault: bool = False,
) -> stat.Panel:
    """Return a panel that shows the last value; of a fault, any above 0 is red."""
    steps = [Threshold(value=None, color="green")]
    if is_fault:
        steps.append(Threshold(value=1, color="red"))
    query = Query(expression, legend)
    return _with_unit(
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(4)
        .height(_NUMBER_HEIGHT)
        .with_target(_target(query, 0).range())
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(values=False)),
        unit,
    )


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: PanelUnit = PanelUnit.COUNT,
    is_stacked: bool = False,
) -> timeseries.Panel:
    """Return a panel of lines, or of areas one above the other."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(8)
        .height(_GRAPH_HEIGHT)
        .fill_opacity(30 if is_stacked else 10)
        .stacking(
            common.StackingConfig().mode(StackingMode.NORMAL if is_stacked else StackingMode.NONE)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
    )
    for place, query in enumerate(queries):
        panel.with_target(_target(query, place).range())
    return _with_unit(panel, unit)


def rows(title: str, description: str, *queries: Query) -> table.Panel:
    """Return a table of the last values: a row for each set of labels, a column for each query."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(8)
        .height(_TABLE_HEIGHT)
        .unit(PanelUnit.COUNT.value)
        .show_header(show_header=True)
    )
    for place, query in enumerate(queries):
        panel.with_target(_target(query, place).instant().format(PromQueryFormat.TABLE))
        if query.unit is not None:
            unit = DynamicConfigValue(id_val="unit", value=query.unit.value)
            panel.override_by_name(query.name, [unit])
    return panel.transformations(_as_one_table(queries))


def with_runbook(panel: _Panel, *alerts: str) -> _Panel:
    """Link the panel to the rows of docs/operations.md for these alerts.

    Raises:
        KeyError: there is no such alert.
    """
    return panel.links(
        [
            dashboard.DashboardLink(name)
            .type(DashboardLinkType.LINK)
            .url(f"${{{RUNBOOKS}}}#{anchor_of(_ALERTS[name])}")
            .target_blank(target_blank=True)
            for name in alerts
        ]
    )


def _target(query: Query, place: int) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .ref_id(ascii_uppercase[place])
        .datasource(SOURCE)
        .expr(str(query.expression))
        .legend_format(query.name)
    )


def _with_unit(panel: _Panel, unit: PanelUnit) -> _Panel:
    panel.unit(unit.value)
    if unit in {PanelUnit.PERCENT, PanelUnit.SHARE}:
        panel.min(0).max(100 if unit is PanelUnit.PERCENT else 1)
    return panel


def _as_one_table(queries: tuple[Query, ...]) -> list[DataTransformerConfig]:
    """Join the queries' rows by their labels; Grafana calls the values `Value`, or `Value #A` among several."""
    names = {
        f"Value #{letter}": query.name
        for letter, query in zip(ascii_uppercase, queries, strict=False)
    }
    if len(queries) == 1:
        names = {"Value": queries[0].name}
    return [
        DataTransformerConfig(id_val="merge", options={}),
        DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {},
                "renameByName": names,
            },
        ),
    ]
