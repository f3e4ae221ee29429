"""The page's files obey its Content-Security-Policy and its budget, and its lock names no registry."""

import gzip
import json
import re
from pathlib import Path

CONSOLE = Path(__file__).resolve().parents[3] / "console"
STATIC = CONSOLE / "edge" / "static"
WEB = CONSOLE / "web"
MOST_COMPRESSED_BYTES = 60_000
"""Of script and style."""


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_script_and_style_are_within_their_budget():
    files = [STATIC / "console.js", STATIC / "console.css"]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= MOST_COMPRESSED_BYTES


def test_the_document_has_no_script_and_no_style_of_its_own():
    page = text_of(STATIC / "index.html")
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page, re.IGNORECASE) == []


def test_the_page_loads_nothing_but_its_own_files():
    page = text_of(STATIC / "index.html")
    loaded = re.findall(r"(?:src|href)=\"([^\"]*)\"", page)
    assert sorted(loaded) == sorted(
        path.name for path in STATIC.iterdir() if path.name != "index.html"
    )
    assert re.findall(r"url\(|@import", text_of(STATIC / "console.css")) == []


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
