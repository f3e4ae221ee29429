"""A dashboard of rows of panels: ids, places, choices at its top, links to the others."""

import json
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as DashboardModel
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.expressions import CLUSTER
from dashboards.foreign_series import BUILD
from dashboards.panels import SOURCE
from manifests.monitoring.alerts import PAGE
from manifests.monitoring.dashboards.config_maps import RUNBOOKS

if TYPE_CHECKING:
    from dashboards.expressions import Vector
    from dashboards.panels import PanelBuilder

TAG: Final = "gpu-control-plane"
"""Of all dashboards, which are linked to each other by it."""

register_default_plugins()


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels below one title, from left to right; the widths of a line add up to that of the grid."""

    title: str
    panels: "tuple[PanelBuilder, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of several values of a label, at the top of the dashboard."""

    name: str
    """Also of the label."""
    label: str
    series: "Vector"
    """Whose values of the label can be chosen."""
    every: str = ".+"
    """Pattern of all values."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number that the viewer writes at the top of the dashboard."""

    name: str
    label: str
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    uid: str
    title: str
    description: str
    choices: tuple[Choice | Amount, ...] = ()
    rows: tuple[PanelRow, ...]


def board_text(board: Board) -> str:
    """Return the JSON of the dashboard; the same board gives the same text.

    It has passed through the models of the SDK once: they add their defaults.
    """
    model = DashboardModel.from_json(json.loads(_encoded(_built(board).build())))
    return _encoded(model) + "\n"


def _encoded(model: DashboardModel) -> str:
    return json.dumps(model, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False)


def _built(board: Board) -> dashboard.Dashboard:
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-6h", "now")
        .refresh("1m")
        .link(_links())
        .with_variable(_source())
        .with_variable(_runbooks())
        .with_variable(_cluster())
    )
    for choice in board.choices:
        built.with_variable(_amount(choice) if isinstance(choice, Amount) else _choice(choice))
    ids = count(1)
    for row in board.rows:
        built.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            built.with_panel(panel.id(next(ids)))
    return built


def _links() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("GPU")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(keep_time=True)
        .include_vars(include_vars=True)
    )


def _source() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _runbooks() -> dashboard.ConstantVariable:
    return dashboard.ConstantVariable(RUNBOOKS).label("Page of the alerts").value(PAGE)


def _cluster() -> dashboard.QueryVariable:
    """Choose one cluster, the empty text where series have no such label: names of pools and nodes are a cluster's."""
    return _label_values(CLUSTER, "Cluster", BUILD.name)


def _choice(choice: Choice) -> dashboard.QueryVariable:
    if choice.name not in choice.series.labels:
        raise ValueError(f"{choice.series} has no label {choice.name}")
    return (
        _label_values(choice.name, choice.label, str(choice.series))
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(choice.every)
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _label_values(name: str, label: str, series: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": f"label_values({series}, {name})", "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _amount(amount: Amount) -> dashboard.TextBoxVariable:
    return (
        dashboard.TextBoxVariable(amount.name)
        .label(amount.label)
        .default_value(amount.default)
        .current(VariableOption(selected=True, text=amount.default, value=amount.default))
    )
