"""The page's files obey its Content-Security-Policy and its budget, and its lock names no registry."""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

CONSOLE = Path(__file__).resolve().parents[3] / "console"
STATIC = CONSOLE / "edge" / "static"
WEB = CONSOLE / "web"
MOST_COMPRESSED_BYTES = 65_000
"""Of all scripts, which have the style in them."""
MOST_COMPRESSED_BYTES_AT_FIRST = 38_000
"""Of those that the first view takes: all devices, no pool chosen."""
IMPORTS = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def compressed_bytes(names: Iterable[str]) -> int:
    return sum(len(gzip.compress((STATIC / name).read_bytes())) for name in names)


def script_of(module: str) -> str:
    """Return the name of the script that a module begins which the page fetches by itself."""
    (script,) = STATIC.glob(f"{module}-*.js")
    return script.name


def needed_by(*scripts: str) -> set[str]:
    """Return the scripts and all that they import."""
    needed, more = set[str](), list(scripts)
    while more:
        script = more.pop()
        if script not in needed:
            needed.add(script)
            more += IMPORTS.findall(text_of(STATIC / script))
    return needed


def test_the_scripts_are_within_their_budget():
    scripts = {path.name for path in STATIC.glob("*.js")}
    assert compressed_bytes(scripts) <= MOST_COMPRESSED_BYTES
    begun = [script_of(module) for module in ("main", "Page", "devices", "others", "PoolDetail")]
    assert needed_by("console.js", *begun) == scripts


def test_the_first_view_takes_no_script_of_another_view_and_no_chart():
    begun = [script_of(module) for module in ("main", "Page", "devices")]
    first = needed_by("console.js", *begun)
    assert compressed_bytes(first) <= MOST_COMPRESSED_BYTES_AT_FIRST
    assert first & {script_of("others"), script_of("PoolDetail")} == set()


def test_what_draws_the_page_is_no_part_of_the_first_task():
    assert script_of("Page") not in needed_by("console.js", script_of("main"))


def test_no_stylesheet_holds_up_the_first_paint():
    assert "stylesheet" not in text_of(STATIC / "index.html")
    assert list(STATIC.glob("*.css")) == []


def test_the_document_has_no_script_and_no_style_of_its_own():
    page = text_of(STATIC / "index.html")
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page, re.IGNORECASE) == []


def test_the_page_loads_nothing_but_its_own_files():
    page = text_of(STATIC / "index.html")
    loaded = re.findall(r"(?:src|href)=\"([^\"]*)\"", page)
    scripts = needed_by("console.js", script_of("main"), script_of("Page"))
    assert sorted(loaded) == sorted({"favicon.svg"} | scripts)
    styles = "".join(text_of(path) for path in (WEB / "src" / "style").glob("*.css"))
    assert re.findall(r"url\(|@import (?!\"\./)", styles) == []


def test_no_text_becomes_markup():
    """Names of a cluster are text; nothing else makes elements of a string."""
    makers = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\("
    sources = {path: text_of(path) for path in (WEB / "src").rglob("*.ts*")}
    assert len(sources) > 40
    assert [path.name for path, text in sources.items() if re.search(makers, text)] == []


def test_versions_are_exact_and_the_lock_names_no_registry():
    package = json.loads(text_of(WEB / "package.json"))
    asked = package["dependencies"] | package["devDependencies"]
    assert [item for item in asked.values() if not re.fullmatch(r"\d+\.\d+\.\d+", item)] == []
    lock = json.loads(text_of(WEB / "package-lock.json"))
    locked = {name: item for name, item in lock["packages"].items() if name}
    assert {f"node_modules/{name}": version for name, version in asked.items()}.items() <= {
        name: item["version"] for name, item in locked.items()
    }.items()
    assert [name for name, item in locked.items() if "resolved" in item] == []
    assert [
        name for name, item in locked.items() if not item["integrity"].startswith("sha512-")
    ] == []
