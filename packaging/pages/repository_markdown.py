"""A page as the repository shows it, in the Markdown of the site: a hook of mkdocs (`mkdocs.yml`).

Pages are read in the repository first, whose Markdown begins a list or a table right after a line of text, and whose
links lead to any file. Python-Markdown wants a blank line there, and a site has no files but its pages. The pages stay
as they are, and this makes up the difference.
"""

import posixpath
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.structure.pages import Page

_FENCE: Final = re.compile(r"\s*(```|~~~)")
_ITEM: Final = re.compile(r"([*+-]|\d+[.]) ")
_CONTINUED: Final = re.compile(r"\s+\S")
"""A line of an item that began before it."""
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: "Page", **_others: object) -> str:
    """Return the page for Python-Markdown."""
    return with_blank_lines(without_links_outside(markdown, page.file.src_uri))


def with_blank_lines(markdown: str) -> str:
    """Put a blank line before each list and each table that follows a line of text."""
    return "\n".join(_separated(markdown.split("\n")))


def without_links_outside(markdown: str, page: str) -> str:
    """Replace links to files outside of the folder of the pages by their text.

    Args:
        markdown: text of the page.
        page: path of the page in that folder.
    """

    def replacement(link: re.Match[str]) -> str:
        text, target = link[1], link[2].partition("#")[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        return text if path.startswith("../") else link[0]

    return _LINK.sub(replacement, markdown)


def _separated(lines: "list[str]") -> "Iterator[str]":
    is_code = is_list = False
    before = ""
    for line in lines:
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and _begins_block(line, before, is_list=is_list):
            yield ""
        yield line
        if not is_code:
            is_list = bool(_ITEM.match(line)) or (is_list and bool(_CONTINUED.match(line)))
        before = line


def _begins_block(line: str, before: str, *, is_list: bool) -> bool:
    """Say whether a list or a table begins at the line, right after a line of text."""
    if not before.strip() or _FENCE.match(before):
        return False
    if _ITEM.match(line):
        return not is_list
    return line.startswith("|") and not before.startswith("|")
