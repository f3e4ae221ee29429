"""The house rules that a machine can hold: imports, packages, strings and metrics in their one place."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from manifests.monitoring.alerts import ALERTS
from telemetry.conditions import PoolReady
from telemetry.reasons import EventReason, RefusalReason

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "admission",
    "agent",
    "api",
    "certs",
    "cli",
    "demo",
    "inventory",
    "kube",
    "manifests",
    "pool",
    "reconciler",
    "scheduler",
    "server",
    "simulator",
    "telemetry",
)
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
REASONS_LIVE_IN = {"telemetry/reasons.py", "telemetry/conditions.py"}

# Imports each module while none of ours is loaded; libraries stay, which is what makes it quick.
IMPORT_EACH_ALONE = """
import importlib, sys
packages = set({packages!r})
for name in {modules!r}:
    for loaded in [one for one in sys.modules if one.partition(".")[0] in packages]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def strings_in(path: Path) -> set[str]:
    constants = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def test_the_list_of_packages_is_complete():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"} == set(PACKAGES)
    assert len(SOURCES) > 100


def test_every_module_can_be_imported_first():
    modules = [
        name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in SOURCES
        if path.name != "__main__.py"
    ]
    program = IMPORT_EACH_ALONE.format(packages=PACKAGES, modules=modules)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.name == "__init__.py"], ids=name_of
)
def test_a_package_exports_nothing_and_says_what_it_is_for(path: Path):
    (docstring,) = tree_of(path).body
    assert isinstance(docstring, ast.Expr)
    assert ast.get_docstring(tree_of(path))


def test_every_module_says_what_it_is_for():
    assert [name_of(path) for path in SOURCES if not ast.get_docstring(tree_of(path))] == []


def test_reasons_are_written_in_their_one_home_only():
    reasons = {one.value for kind in (EventReason, RefusalReason, PoolReady) for one in kind}
    # Kubernetes has words of its own; a condition of its kinds may be called like our reason.
    reasons -= {"Terminating", "NotReady"}
    # Alerts are called as the events that they are about.
    alerts = {alert.name for alert in ALERTS}
    strays = {
        name_of(path): found
        for path in SOURCES
        if name_of(path) not in REASONS_LIVE_IN
        and (
            found := strings_in(path)
            & (
                reasons - alerts
                if path == ROOT / "manifests" / "monitoring" / "alerts.py"
                else reasons
            )
        )
    }
    assert strays == {}


def test_every_reason_is_used():
    used: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        if name_of(path) in REASONS_LIVE_IN:
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used[node.value.id].add(node.attr)
    for kind in (EventReason, RefusalReason, PoolReady):
        assert set(kind.__members__) - used[kind.__name__] == set()


def test_metrics_are_declared_in_their_one_home_only():
    kinds = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
    strays = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if name_of(path) not in {"telemetry/metrics.py", "telemetry/agent_metrics.py"}
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
        for alias in node.names
        if alias.name in kinds
    ]
    assert strays == []


def test_every_metric_is_used():
    declared = {
        target.id
        for home in ("telemetry/metrics.py", "telemetry/agent_metrics.py")
        for node in tree_of(ROOT / home).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    imported = {
        alias.name
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        and node.module in {"telemetry.metrics", "telemetry.agent_metrics"}
        for alias in node.names
    }
    assert "POOL_CAPACITY_USED" in declared
    assert declared - imported == set()


def test_everything_that_is_installed_is_locked_by_its_hash():
    """uv installs and checks all others; nothing checks uv but this."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [line for line in makefile.splitlines() if re.search(r"pip (install|sync)\b", line)]
    ours = [
        line
        for line in installs
        if line.rstrip().endswith("--no-deps --no-build-isolation --editable .")
    ]
    assert len(ours) == 1
    assert len(installs) == 3
    assert all("--require-hashes" in line for line in installs if line not in ours)
    for name in ("requirements.lock", "requirements-uv.lock"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line and line[0] not in " #"]
        assert lines
        assert [line for line in lines if "--hash=sha256:" not in line] == []
