"""docs/sizing.md has the figures of docs/performance.md, the defaults of the chart, and the limits of the API."""

import re
from pathlib import Path

import pytest
import yaml

from api import names
from api.kinds.gpunodeinventory import MAX_ALLOCATIONS
from tests.bench import page

ROOT = Path(__file__).parents[3]
SIZING = (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([^|]+) \| (RSS MiB|p50 ms|rate /s|API writes) \| ([\d.,]+) \|$",
    SIZING,
    re.MULTILINE,
)


def measured() -> dict[tuple[str, str], set[str]]:
    """Return case and title of a figure -> its values in the table."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in page.rows_of(PERFORMANCE):
        for figure in row.measured.split(" · "):
            title, _, value = figure.rpartition(" ")
            found.setdefault((row.case, title), set()).add(value)
    return found


MEASURED = measured()


def test_there_are_figures():
    assert len(ROWS) > 10


@pytest.mark.parametrize(("case", "column", "figure"), ROWS)
def test_a_figure_is_the_measured_one(case: str, column: str, figure: str):
    assert MEASURED[case, column] == {figure}


def test_the_defaults_are_those_of_the_chart():
    values = yaml.safe_load((ROOT / "charts/gpu-control-plane/values.yaml").read_text())
    server, scheduler = values["server"]["resources"], values["scheduler"]["resources"]
    assert server == {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    assert "the chart's defaults: 100m CPU, 256Mi, limit 1Gi | 100m CPU, 128Mi |" in SIZING
    assert scheduler["requests"] == {"cpu": "100m", "memory": "128Mi"}


def test_the_limits_are_those_of_the_api():
    assert (
        f"{names.MAX_DISTINCT_SLICES} time slices, {names.MAX_SLICES_PER_DEVICE} with `SameDevice`;"
        f" {names.MAX_MIG_INSTANCES} MIG instances"
    ) in SIZING
    assert f"| {MAX_ALLOCATIONS:,} |" in SIZING
    assert f"| {names.MAX_POOL_NAME_LENGTH} characters," in SIZING
