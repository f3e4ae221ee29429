"""The house rules that a machine can hold: imports, packages, strings and metrics in their one place."""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from api import vendor, well_known_labels
from manifests.monitoring.alerts import ALERTS
from telemetry.conditions import PoolReady
from telemetry.reasons import EventReason, RefusalReason
from tests.support.source_trees import (
    PACKAGES,
    ROOT,
    files_of,
    name_of,
    nodes_of,
    source_of,
    tree_of,
)

NAMES = (
    "admission",
    "agent",
    "api",
    "certs",
    "cli",
    "console",
    "demo",
    "http_edge",
    "inventory",
    "kernelcache",
    "kube",
    "kubectl_gpu",
    "manifests",
    "oci",
    "autoscaling",
    "operands",
    "pool",
    "reconciler",
    "scheduler",
    "server",
    "simulator",
    "telemetry",
)
SOURCES = files_of(*PACKAGES)
REASONS_LIVE_IN = {
    "telemetry/reasons.py",
    "telemetry/conditions.py",
    "pool/what_if/explanation.py",  # UnitWaitReason is the reason of a condition, and the core's answer
    "api/kinds/gpupool.py",  # two phases of a pool are called as the events that they begin with
}

IMPORT_ALL = """
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
"""
MOST_MODULES_IN_A_FOLDER = 20
METRIC_HOMES = tuple(
    f"telemetry/{name}.py"
    for name in (
        *("metrics", "agent_metrics", "console_metrics", "device_page", "kernel_cache_metrics"),
        *("node_software_metrics", "usage_metrics"),
    )
)
WITH_CIRCLES = {
    "scheduler": "the context keeps demands, which are read from pods with a context",
    "server": "`shutdown` names the type of what it stops",
}
"""Package -> why some of its modules import each other, for types only."""


def strings_in(path: Path) -> set[str]:
    constants = (node for node in nodes_of(path) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def test_the_list_of_packages_is_complete():
    assert set(PACKAGES) == set(NAMES)
    assert len(SOURCES) > 100


def module_of(path: Path) -> str:
    return name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_of(path): path for path in SOURCES}


def imports_of(module: str, *, with_types: bool) -> set[str]:
    """Return the modules of ours that it imports when it is imported; with types, all that it names."""
    found: set[str] = set()
    path = MODULES[module]
    for node in nodes_of(path) if with_types else nodes_at_run_time(tree_of(path)):
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(source), level=0):
                # `from package import module` imports both.
                found |= {f"{source}.{alias.name}" for alias in node.names} | {source}
            case ast.ImportFrom():
                raise AssertionError(f"{module} has a relative import")
            case _:
                pass
    return (found & MODULES.keys()) - {module}


def nodes_at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt):
            continue
        yield node
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not is_for_types and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from nodes_at_run_time(node)


def circles_in(imports: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the modules on circles, and what ties them together: module -> imports."""
    left = dict(imports)
    while True:
        imported = set().union(*left.values()) if left else set()
        ends = [item for item in left if item not in imported or not left[item] & left.keys()]
        if not ends:
            return {item: sorted(left[item] & left.keys()) for item in sorted(left)}
        left = {item: found for item, found in left.items() if item not in ends}


def test_every_module_can_be_imported_first():
    """Without a circle of imports no order matters; so it is enough that each can be imported."""
    assert circles_in({item: imports_of(item, with_types=False) for item in MODULES}) == {}
    modules = [item for item in MODULES if not item.endswith("__main__")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL.format(modules=modules[::-1])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_two_modules_of_a_package_name_each_other():
    """Imports for types count."""
    imports: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for module in MODULES:
        imports[module.partition(".")[0]][module] = imports_of(module, with_types=True)
    circles = {
        package: circles_in({item: found & ours.keys() for item, found in ours.items()})
        for package, ours in imports.items()
        if package not in WITH_CIRCLES
    }
    assert {package: found for package, found in circles.items() if found} == {}


def test_circles_for_types_are_none_at_run_time_and_stay_in_two_packages():
    assert {"agent", "reconciler"} & WITH_CIRCLES.keys() == set()
    assert len(WITH_CIRCLES) <= 2


def test_no_folder_is_too_large():
    sizes = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    too_large = {
        name_of(item): size for item, size in sizes.items() if size > MOST_MODULES_IN_A_FOLDER
    }
    assert too_large == {}


def packages_by_name(names: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Return the names that two top-level packages have, and the files: name -> files."""
    found: dict[str, set[Path]] = defaultdict(set)
    for name, path in names:
        found[name].add(path)
    return {
        name: sorted(map(name_of, paths))
        for name, paths in found.items()
        if len({name_of(path).partition("/")[0] for path in paths}) > 1
    }


def test_no_class_name_has_two_meanings():
    classes = (
        (node.name, path)
        for path in SOURCES
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert packages_by_name(classes) == {}


def test_a_package_exports_nothing_and_says_what_it_is_for():
    packages = [path for path in SOURCES if path.name == "__init__.py"]
    assert packages
    assert [
        name_of(path)
        for path in packages
        if len(tree_of(path).body) != 1 or not ast.get_docstring(tree_of(path))
    ] == []


def test_every_module_says_what_it_is_for():
    assert [name_of(path) for path in SOURCES if not ast.get_docstring(tree_of(path))] == []


def test_a_constructor_assigns_into_no_finished_object():
    """A part is given what it needs when it is made; no order of assignments has to be known."""
    assigned = [
        f"{name_of(path)}:{target.lineno}: {ast.unparse(target)}"
        for path in SOURCES
        for item in tree_of(path).body
        for made in (item.body if isinstance(item, ast.ClassDef) else ())
        if isinstance(made, ast.FunctionDef) and made.name in {"__init__", "__post_init__"}
        for target in ast.walk(made)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        if not (isinstance(target.value, ast.Name) and target.value.id == "self")
    ]
    # The ssl module takes the callback that chooses the context of a connection in no other way.
    assert [item for item in assigned if not item.endswith(".sni_callback")] == []


def test_reasons_are_written_in_their_one_home_only():
    reasons = {item.value for kind in (EventReason, RefusalReason, PoolReady) for item in kind}
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
            & (reasons - alerts if path.parent == ROOT / "manifests" / "monitoring" else reasons)
        )
    }
    assert strays == {}


@pytest.mark.parametrize("home", [vendor, well_known_labels])
def test_names_of_the_vendor_and_of_kubernetes_have_one_home(home: ModuleType):
    words = {value for value in vars(home).values() if isinstance(value, str)}
    words -= {home.__name__, home.__doc__, home.__package__, home.__file__, home.__cached__}
    assert words
    assert {
        name_of(path): found
        for path in SOURCES
        if name_of(path) != f"{home.__name__.replace('.', '/')}.py"
        and (found := strings_in(path) & words)
    } == {}


def test_every_reason_is_used():
    used: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        if name_of(path) in REASONS_LIVE_IN:
            continue
        for node in nodes_of(path):
            match node:
                case ast.Attribute(
                    value=ast.Name(id=kind_name) | ast.Attribute(attr=kind_name), attr=reason
                ):
                    used[kind_name].add(reason)
                case _:
                    pass
    for kind in (EventReason, RefusalReason, PoolReady):
        assert set(kind.__members__) - used[kind.__name__] == set()


def test_metrics_are_declared_in_their_one_home_only():
    kinds = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
    strays = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if name_of(path)
        not in {*METRIC_HOMES, "telemetry/metric_declaration.py"}  # which makes those of the others
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
        for alias in node.names
        if alias.name in kinds
    ]
    assert strays == []


def test_every_metric_is_used():
    declared = {
        target.id
        for home in METRIC_HOMES
        for node in tree_of(ROOT / home).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    used = {
        name
        for path in SOURCES
        if name_of(path) not in METRIC_HOMES
        for node in nodes_of(path)
        for name in (
            (alias.name for alias in node.names)
            if isinstance(node, ast.ImportFrom)
            else (node.attr,)
            if isinstance(node, ast.Attribute)
            else ()
        )
    }
    assert "POOL_CAPACITY_USED" in declared
    assert declared - used == set()


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


def test_definitions_are_awaited_in_one_way():
    """`kubectl wait` fails where a definition has no conditions yet; see the one module that may name it."""
    strays = [
        name_of(path) for path in files_of("tests") if "--for=" + "condition" in source_of(path)
    ]
    assert strays == ["tests/cluster/environment/definitions.py"]
