"""What a dashboard is made of, apart from Grafana's JSON (`grafana_json`)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

WIDTH: Final = 24
"""Columns of Grafana's grid."""


class Shape(Enum):
    """How a panel shows its series."""

    NUMBER = "stat"
    GRAPH = "timeseries"
    TABLE = "table"


class PanelUnit(Enum):
    """Units by Grafana's names; DCGM gives memory in MiB and energy in mJ."""

    COUNT = "short"
    PERCENT = "percent"
    SHARE = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    MEBIBYTES = "mbytes"
    CELSIUS = "celsius"
    WATTS = "watt"
    JOULES = "joule"
    MEGAHERTZ = "MHz"
    PER_SECOND = "ops"
    MEGABYTES_PER_SECOND = "MBs"
    SWITCH = "bool_yes_no"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; in a table its value is the column `name`, elsewhere `name` is the legend."""

    expression: str
    name: str = ""
    unit: PanelUnit | None = None
    """Of a table's column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPanel:
    title: str
    description: str
    queries: tuple[Query, ...]
    shape: Shape = Shape.GRAPH
    unit: PanelUnit = PanelUnit.COUNT
    width: int = 8
    is_stacked: bool = False
    is_fault: bool = False
    """A number above 0 is shown in red."""


def number_panel(
    title: str,
    description: str,
    expression: str,
    *,
    unit: PanelUnit = PanelUnit.COUNT,
    is_fault: bool = False,
) -> DashboardPanel:
    return DashboardPanel(
        title=title,
        description=description,
        queries=(Query(expression),),
        shape=Shape.NUMBER,
        unit=unit,
        width=4,
        is_fault=is_fault,
    )


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels below one title, from left to right."""

    title: str
    panels: tuple[DashboardPanel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the dashboard: values of a label of a series."""

    name: str
    label: str
    series: str
    """Selector whose values of `key` can be chosen."""
    key: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[PanelRow, ...]
