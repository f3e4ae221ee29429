"""The pages are right in the repository, where their links are followed as its viewers do, and as a site."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

import pytest
from pages.repository_markdown import with_blank_lines, without_links_outside

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCES = re.DOTALL | re.MULTILINE


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_without_a_warning_and_has_every_page(site: Path):
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    assert built == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | {"404.md"}


def test_nothing_of_the_site_comes_from_another_host(site: Path):
    loaded = [
        found
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for found in re.findall(
            r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"((?:https?:)?//[^\"]+)|url\(['\"]?(https?:[^)]+)",
            path.read_text(encoding="utf-8"),
        )
    ]
    assert loaded == []


def test_no_list_and_no_table_is_shown_as_text(site: Path):
    """Where the Markdown of the repository needs no blank line, the site's does."""
    current = [
        f"{path.name}: {text[:80]}"
        for path in site.rglob("*.html")
        for text in re.findall(r"<p>(.*?)</p>", path.read_text(encoding="utf-8"), re.DOTALL)
        if re.search(r"^(?:[*-] |\d+\. |\|)", unescape(text), re.MULTILINE)
    ]
    assert current == []


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """Return the anchors of the headings, as viewers of repositories make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=FENCES)
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


def links_in(path: Path) -> Iterator[str]:
    """Yield the targets of links to files and headings; code has none."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=FENCES)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            yield target


def broken_links_in(path: Path) -> Iterator[str]:
    for target in links_in(path):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        is_there = found.exists() and (not anchor or anchor in anchors_of(found))
        if not is_there:
            yield target


def test_every_link_leads_to_a_file_and_a_heading():
    broken = {path.relative_to(ROOT).as_posix(): [*broken_links_in(path)] for path in PAGES}
    assert {page: links for page, links in broken.items() if links} == {}


def test_a_broken_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n[a](#a-page) [b](#other) [c](no.md) [d](page.md#a-page)\n")
    assert list(broken_links_in(page)) == ["#other", "no.md"]


def test_every_page_can_be_reached_from_the_overview():
    reached, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        files = [target.partition("#")[0] for target in links_in(page)]
        left += [(page.parent / file).resolve() for file in files if file]
    assert [page for page in PAGES if page not in reached] == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("text:\n* one\n* two", "text:\n\n* one\n* two"),
        ("text:\n1. one\n2. two", "text:\n\n1. one\n2. two"),
        ("text:\n| a |\n|---|", "text:\n\n| a |\n|---|"),
        ("* one\n  more\n* two", "* one\n  more\n* two"),
        ("text\n\n* one", "text\n\n* one"),
        ("text\n```\ncode\n* one\n```\n* two", "text\n```\ncode\n* one\n```\n* two"),
    ],
)
def test_blank_lines_are_put_before_lists_and_tables(before: str, after: str):
    assert with_blank_lines(before) == after


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("architecture.md", "[README](../README.md#packages)", "README"),
        ("design/0001.md", "[page](../page.md)", "[page](../page.md)"),
        ("design/0001.md", "[chart](../../charts/values.yaml)", "chart"),
        ("index.md", "[x](https://example.com/../y)", "[x](https://example.com/../y)"),
        ("index.md", "[x](#x)", "[x](#x)"),
    ],
)
def test_links_to_files_that_are_no_pages_become_text(page: str, before: str, after: str):
    assert without_links_outside(before, page) == after
