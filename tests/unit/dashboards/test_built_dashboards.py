"""The stored dashboards are what the builder makes of the metrics' objects."""

import ast
import json
import sys
from pathlib import Path

import pytest
from dashboards import build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from manifests.monitoring.dashboards.config_maps import dashboard_names, dashboard_text
from tests.support.source_trees import PACKAGES, ROOT, files_of, nodes_of

FOLDER = ROOT / "manifests" / "monitoring" / "dashboards"
OF_DEVELOPMENT = {"grafana_foundation_sdk", "promql_parser", "dashboards"}


def test_the_stored_files_are_what_is_built_now():
    """Where it fails: make dashboards."""
    stored = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json")}
    assert stored == build.build_dashboards()
    assert {f"{name}.json" for name in dashboard_names()} == stored.keys()


def test_building_again_changes_nothing():
    assert build.build_dashboards() == build.build_dashboards()


def test_a_file_that_no_board_makes_is_removed(tmp_path: Path):
    (tmp_path / "gpu-former.json").write_text("{}")
    (tmp_path / "__init__.py").write_text("")
    assert build.main([str(tmp_path)]) == 0
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"__init__.py", *(f"{name}.json" for name in dashboard_names())}


@pytest.mark.parametrize("name", dashboard_names())
def test_the_models_of_the_sdk_read_and_write_it_unchanged(name: str):
    stored = json.loads(dashboard_text(name))
    read = Dashboard.from_json(stored)
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == stored


def imports_of(file: Path) -> set[str]:
    """Return the top packages that a module imports, wherever in it."""
    found = set()
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_nothing_that_is_shipped_needs_the_builder():
    files = files_of(*PACKAGES)
    assert len(files) > 500
    assert [file for file in files if imports_of(file) & OF_DEVELOPMENT] == []
    assert imports_of(Path(sys.modules["dashboards.layout"].__file__ or "")) & OF_DEVELOPMENT
