"""A dashboard as the JSON that Grafana 10 and newer import."""

import json
from itertools import count
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Final

from manifests.monitoring.dashboards.board import WIDTH, PanelUnit, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from manifests.monitoring.dashboards.board import Dashboard, DashboardPanel, PanelRow, Variable

Json = dict[str, Any]

TAG: Final = "gpu-control-plane"
"""Of all dashboards, which are linked to each other by it."""
_SCHEMA_VERSION: Final = 38
"""Of Grafana 10; newer ones migrate it when they load it."""
_HEIGHTS: Final = {Shape.NUMBER: 4, Shape.GRAPH: 8, Shape.TABLE: 9}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_text(dashboard: "Dashboard") -> str:
    """Return the JSON of the dashboard; the same dashboard gives the same text."""
    document = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "links": [_links()],
        "annotations": {"list": []},
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.sections)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _links() -> Json:
    return {
        "title": "GPU",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": True,
    }


def _source() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def _variable(variable: "Variable") -> Json:
    query = f"label_values({variable.series}, {variable.key})"
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _panels(sections: "tuple[PanelRow, ...]") -> "Iterator[Json]":
    """Place the panels of each section from left to right, in rows as high as the highest panel."""
    ids = count(1)
    top = 0
    for section in sections:
        yield {
            "id": next(ids),
            "type": "row",
            "title": section.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        }
        top += 1
        left = height = 0
        for panel in section.panels:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            place = {"x": left, "y": top, "w": panel.width, "h": _HEIGHTS[panel.shape]}
            yield {"id": next(ids), **_panel(panel), "gridPos": place}
            left += panel.width
            height = max(height, place["h"])
        top += height


def _panel(panel: "DashboardPanel") -> Json:
    defaults: Json = {"unit": panel.unit.value, "thresholds": _thresholds(panel)}
    if panel.unit in {PanelUnit.PERCENT, PanelUnit.SHARE}:
        defaults |= {"min": 0, "max": 100 if panel.unit is PanelUnit.PERCENT else 1}
    body: Json = {
        "type": panel.shape.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": [_target(panel, index) for index in range(len(panel.queries))],
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    match panel.shape:
        case Shape.NUMBER:
            body["options"] = {
                "colorMode": "value",
                "graphMode": "area",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        case Shape.GRAPH:
            defaults["custom"] = {
                "fillOpacity": 30 if panel.is_stacked else 10,
                "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
            }
            body["options"] = {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Shape.TABLE:
            body["options"] = {"showHeader": True}
            body["fieldConfig"]["overrides"] = list(_columns(panel))
            body["transformations"] = _as_one_table(panel)
    return body


def _thresholds(panel: "DashboardPanel") -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.is_fault:
        steps.append({"color": "red", "value": 1})
    return {"mode": "absolute", "steps": steps}


def _target(panel: "DashboardPanel", index: int) -> Json:
    query = panel.queries[index]
    is_table = panel.shape is Shape.TABLE
    return {
        "refId": ascii_uppercase[index],
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": "" if is_table else query.name,
        "format": "table" if is_table else "time_series",
        "instant": is_table,
        "range": not is_table,
    }


def _columns(panel: "DashboardPanel") -> "Iterator[Json]":
    for query in panel.queries:
        if query.unit is not None:
            yield {
                "matcher": {"id": "byName", "options": query.name},
                "properties": [{"id": "unit", "value": query.unit.value}],
            }


def _as_one_table(panel: "DashboardPanel") -> list[Json]:
    """Join the queries' rows by their labels; Grafana calls the values `Value`, or `Value #A` among several."""
    names = {
        f"Value #{letter}": query.name
        for letter, query in zip(ascii_uppercase, panel.queries, strict=False)
    }
    if len(panel.queries) == 1:
        names = {"Value": panel.queries[0].name}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": names},
        },
    ]
