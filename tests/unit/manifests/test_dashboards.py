"""Dashboards are JSON as Grafana imports it, and ask only for series and labels that exist."""

import itertools
import json
import re
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, Histogram

from manifests.monitoring.dashboards.board import WIDTH, PanelUnit, Shape
from manifests.monitoring.dashboards.config_maps import DASHBOARDS, build_dashboards
from manifests.monitoring.dashboards.grafana_json import TAG, dashboard_text
from telemetry import agent_metrics, device_page, kernel_cache_metrics, metrics, usage_metrics
from tests.support.foreign_series import FOREIGN_SERIES

BOARDS = {one.uid: json.loads(dashboard_text(one)) for one in DASHBOARDS}
OURS = {
    metric._name + suffix: metric._labelnames
    for home in (metrics, device_page, kernel_cache_metrics, agent_metrics, usage_metrics)
    for metric in vars(home).values()
    if isinstance(metric, Counter | Gauge | Histogram)
    for suffix in {Counter: ("_total",), Gauge: ("",), Histogram: ("_bucket", "_count", "_sum")}[
        type(metric)
    ]
}
SERIES = re.compile(r"\b((?:gpu(?:pool)?|kube|DCGM_FI)_[A-Za-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"[^"]*"')
GROUPED = re.compile(r"\b(?:by|on|group_left) \(([^)]+)\)")
ADDED = {"le", "resource"}
"""Labels that expressions see besides those of a series: of buckets, and of a joined request."""


def panels_of(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def labels_of(name: str) -> tuple[str, ...]:
    found = OURS.get(name) or FOREIGN_SERIES.get(name)
    if found is None and name not in OURS:
        raise AssertionError(f"no metric exports {name}")
    return tuple(found or ())


def without_texts(expression: str) -> str:
    """Return the expression without quoted texts, in which a name may be a value."""
    return re.sub(r'"[^"]*"', '""', expression)


QUERIES = [
    pytest.param(target["expr"], id=f"{uid}-{panel['id']}{target['refId']}")
    for uid, board in BOARDS.items()
    for panel in panels_of(board)
    for target in panel["targets"]
]


@pytest.mark.parametrize("expression", QUERIES)
def test_an_expression_asks_only_for_what_is_exported(expression: str):
    names = [found[1] for found in SERIES.finditer(without_texts(expression))]
    assert names
    for name, selector in SERIES.findall(expression):
        if name in names:
            assert set(MATCHER.findall(selector)) <= set(labels_of(name))
    known = {label for name in names for label in labels_of(name)} | ADDED
    for grouped in GROUPED.findall(without_texts(expression)):
        assert set(grouped.split(", ")) <= known


def test_a_metric_that_is_gone_would_be_missed():
    with pytest.raises(AssertionError, match="gpu_leading_total"):
        labels_of("gpu_leading_total")


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_choice_is_among_the_labels_of_a_series(board: dict[str, Any]):
    source, *choices = board["templating"]["list"]
    assert (source["name"], source["type"]) == ("datasource", "datasource")
    names = {"datasource", "__rate_interval", "__range"}
    for choice in choices:
        found = re.fullmatch(
            r"label_values\(([a-zA-Z_]+)(?:\{.*\})?, (\w+)\)", choice["definition"]
        )
        assert found is not None
        assert found[2] in labels_of(found[1])
        names.add(choice["name"])
    used = set(re.findall(r"\$\{?(\w*[a-z]\w*)", dashboard_text_of(board["uid"])))
    assert used <= names
    assert used >= {choice["name"] for choice in choices}


def dashboard_text_of(uid: str) -> str:
    (text,) = [dashboard_text(one) for one in DASHBOARDS if one.uid == uid]
    return text.replace("$__all", "")


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_say_what_they_show(board: dict[str, Any]):
    titles = [panel["title"] for panel in panels_of(board)]
    assert len(set(titles)) == len(titles) <= 30
    for panel in panels_of(board):
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"] in {unit.value for unit in PanelUnit}
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0
        if len(letters) > 1 and panel["type"] == Shape.GRAPH.value:
            assert all(target["legendFormat"] for target in panel["targets"])


def cells_of(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    return set(
        itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    )


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_do_not_overlap(board: dict[str, Any]):
    print(grid_of(board))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        cells = cells_of(panel)
        assert not taken & cells
        assert all(x < WIDTH for x, _ in cells)
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def grid_of(board: dict[str, Any]) -> str:
    """Return the layout for a look at it (`pytest -s`): a line for each row of panels."""
    lines: dict[int, list[str]] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
        text = f"[{panel['title']} ({panel['type']} {unit})".ljust(place["w"] * 5 - 1, ".") + "]"
        lines.setdefault(place["y"], []).append(text)
    return "\n".join([board["title"], *("".join(line) for _, line in sorted(lines.items()))])


def test_dashboards_are_told_apart_and_linked():
    assert list(BOARDS) == ["gpu-inventory", "gpu-node", "gpu-workloads", "gpu-kernel-caches"]
    for board in BOARDS.values():
        assert board["tags"] == [TAG]
        assert board["links"][0]["tags"] == [TAG]


def test_a_config_map_has_what_the_sidecar_reads():
    for one in build_dashboards("gpu", {"board": "yes"}, {"grafana_folder": "GPU"}):
        name = one["metadata"]["name"]
        assert one["metadata"]["namespace"] == "gpu"
        assert one["metadata"]["labels"]["board"] == "yes"
        assert one["metadata"]["annotations"] == {"grafana_folder": "GPU"}
        assert json.loads(one["data"][f"{name}.json"]) == BOARDS[name]


def test_a_table_names_its_columns():
    (panel,) = [one for one in panels_of(BOARDS["gpu-inventory"]) if one["title"] == "Pools"]
    merged, organized = panel["transformations"]
    assert merged["id"] == "merge"
    renamed = organized["options"]["renameByName"]
    assert renamed["Value #A"] == "Units"
    assert len(renamed) == len(panel["targets"])
    assert {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]} <= set(
        renamed.values()
    )
