"""Dashboards are JSON as Grafana imports it, and ask only for series and labels that exist."""

import itertools
import json
import re
from typing import Any

import promql_parser
import pytest

from manifests.monitoring.alerts import ALERTS, PAGE, anchor_of
from manifests.monitoring.dashboards.config_maps import (
    build_dashboards,
    dashboard_names,
    dashboard_text,
)
from tests.support.exported_series import KNOWN
from tests.support.promql import UnknownNameError, labels_in, parsed, selectors
from tests.support.source_trees import ROOT

FILES = {
    file.stem: file.read_text(encoding="utf-8")
    for file in (ROOT / "charts/gpu-control-plane/files/dashboards").iterdir()
}
BOARDS = {name: json.loads(dashboard_text(name)) for name in dashboard_names()}
MOST_PANELS = 20
WIDTH = 24
"""Columns of Grafana's grid."""
RUNBOOKS = "runbooks"
"""Variable of each dashboard: the address of docs/operations.md, to whose rows panels link."""
MARK = "<.Values.monitoring.prometheusRule.runbookPage>"
HIGHEST = {"percent": 100, "percentunit": 1}
UNITS = {
    *HIGHEST,
    *("short", "ops", "s", "h", "bytes", "Bps", "mbytes", "MBs", "celsius", "watt", "joule"),
    *("MHz", "locale", "bool_yes_no"),
}
"""By Grafana's names; DCGM gives memory in MiB and energy in mJ."""


def panels_of(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions_of(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in panels_of(board) for target in panel["targets"]]


def test_a_file_is_as_make_fmt_writes_it_and_of_no_grafana():
    assert dashboard_names() == sorted(FILES)
    for text in FILES.values():
        board = json.loads(text)
        assert text == json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        assert not board.keys() & {"id", "version", "iteration", "__inputs", "__requires"}
        assert (board["refresh"], board["time"]) == ("1m", {"from": "now-6h", "to": "now"})


EACH_BOARD = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


@EACH_BOARD
def test_an_expression_asks_only_for_what_is_exported(board: dict[str, Any]):
    for expression in expressions_of(board):
        tree = parsed(expression)
        assert selectors(tree), expression
        labels_in(tree, KNOWN)


@EACH_BOARD
def test_an_expression_is_about_the_chosen_cluster(board: dict[str, Any]):
    for expression in expressions_of(board):
        for selector in selectors(parsed(expression)):
            assert 'cluster="$cluster"' in str(selector)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("gpu_leading_total", id="a series"),
        pytest.param('gpu_pods_waiting{node="n"}', id="a matcher"),
        pytest.param("sum by (node) (gpu_pods_waiting)", id="an aggregation"),
        pytest.param("sum(rate(gpu_pods_waiting[5m])) by (le)", id="a bucket of no histogram"),
        pytest.param(
            "histogram_quantile(0.5, sum by (pool) (rate(gpupool_wait_seconds_bucket[5m])))",
            id="a quantile without buckets",
        ),
        pytest.param("gpu_pods_waiting * on (node) gpu_bootstrap_ready", id="a join"),
        pytest.param("sum(gpu_device_info) * on () group_left (pool) gpu_leading", id="a group"),
        pytest.param('label_replace(gpu_leading, "a", "$1", "pool", "(.+)")', id="a source"),
    ],
)
def test_what_is_not_there_would_be_missed(expression: str):
    with pytest.raises(UnknownNameError):
        labels_in(promql_parser.parse(expression), KNOWN)


@EACH_BOARD
def test_a_window_is_that_of_the_graph_or_of_the_viewer(board: dict[str, Any]):
    """A fixed one is too short for a slow scrape, or too long for a close look."""
    for expression in expressions_of(board):
        windows = re.findall(r"(\w+)\([^()]*\[([^]]+)\]", expression)
        assert {window for name, window in windows if name != "max_over_time"} <= {
            "$__rate_interval",
            "$__range",
        }, expression
        assert {window for name, window in windows if name == "max_over_time"} <= {"30m"}


@EACH_BOARD
def test_a_choice_is_among_the_labels_of_a_series(board: dict[str, Any]):
    source, runbooks, cluster, *others = board["templating"]["list"]
    choices = [cluster, *others]
    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert (runbooks["name"], runbooks["type"]) == (RUNBOOKS, "constant")
    assert (cluster["name"], cluster["multi"], cluster["includeAll"]) == ("cluster", False, False)
    names = {"datasource", RUNBOOKS, "__rate_interval", "__range"}
    for choice in choices:
        names.add(choice["name"])
        if choice["type"] == "textbox":
            assert float(choice["query"]) > 0
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", choice["query"]["query"])
        assert found is not None
        assert found[2] in labels_in(promql_parser.parse(found[1]), KNOWN)
        assert choice["datasource"]["uid"] == "${datasource}"
    used = set(re.findall(r"\$\{?(\w*[a-z]\w*)", json.dumps(board).replace("$__all", "")))
    assert used <= names
    assert used >= {choice["name"] for choice in choices}


@EACH_BOARD
def test_panels_say_what_they_show(board: dict[str, Any]):
    titles = [panel["title"] for panel in panels_of(board)]
    assert len(set(titles)) == len(titles) <= MOST_PANELS
    for panel in panels_of(board):
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS
        assert defaults.get("max") == HIGHEST.get(defaults["unit"])
        assert defaults.get("min") == (0 if defaults["unit"] in HIGHEST else None)
        assert "interval" not in panel
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0
        assert all(item["datasource"] == panel["datasource"] for item in panel["targets"])
        if len(letters) > 1 and panel["type"] == "timeseries":
            assert all(target["legendFormat"] for target in panel["targets"])


def test_panels_link_to_alerts_that_exist():
    anchors = {f"${{{RUNBOOKS}}}#{anchor_of(alert)}": alert.name for alert in ALERTS}
    links = [
        link
        for board in BOARDS.values()
        for panel in panels_of(board)
        for link in panel.get("links", ())
    ]
    assert len(links) > 20
    for link in links:
        assert anchors[link["url"]] == link["title"]


def cells_of(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    return set(
        itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    )


@EACH_BOARD
def test_panels_do_not_overlap(board: dict[str, Any]):
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        cells = cells_of(panel)
        assert not taken & cells
        assert all(x < WIDTH for x, _ in cells)
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


@EACH_BOARD
def test_a_line_of_panels_is_as_wide_as_the_grid(board: dict[str, Any]):
    widths: dict[int, int] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        widths[place["y"]] = widths.get(place["y"], 0) + place["w"]
    assert set(widths.values()) == {WIDTH}


def test_dashboards_are_told_apart_and_linked():
    assert {board["uid"] for board in BOARDS.values()} == BOARDS.keys()
    assert BOARDS.keys() >= {"gpu-pools", "gpu-fleet", "gpu-control-plane", "gpu-use"}
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        assert board["tags"] == board["links"][0]["tags"] == ["gpu-control-plane"]


def test_a_config_map_has_what_the_sidecar_reads():
    for dashboard in build_dashboards("gpu", {"board": "yes"}, {"grafana_folder": "GPU"}):
        name = dashboard["metadata"]["name"]
        assert dashboard["metadata"]["namespace"] == "gpu"
        assert dashboard["metadata"]["labels"]["board"] == "yes"
        assert dashboard["metadata"]["annotations"] == {"grafana_folder": "GPU"}
        assert json.loads(dashboard["data"][f"{name}.json"]) == BOARDS[name]


def test_the_page_of_the_alerts_is_where_users_reach_it():
    page = "https://docs.example/operations.html"
    for name, stored in FILES.items():
        text = dashboard_text(name, runbook_page=page)
        assert stored.count(f'"query": "{MARK}"') == stored.count(MARK) == 1
        assert text == stored.replace(MARK, page)
        assert dashboard_text(name) == stored.replace(MARK, PAGE)


@EACH_BOARD
def test_a_table_names_its_columns(board: dict[str, Any]):
    for panel in panels_of(board):
        if panel["type"] != "table":
            continue
        assert all(
            (query["format"], query["instant"]) == ("table", True) for query in panel["targets"]
        )
        merged, organized = panel["transformations"]
        assert (merged["id"], organized["id"]) == ("merge", "organize")
        renamed = organized["options"]["renameByName"]
        letters = [f" #{query['refId']}" for query in panel["targets"]]
        assert list(renamed) == [
            f"Value{letter}" for letter in (letters if len(letters) > 1 else [""])
        ]
        columns = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert columns <= {*renamed.values()}
