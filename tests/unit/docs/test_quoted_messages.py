"""What pages quote in their tables "you see" and "reason" is what the product says, or a text of Kubernetes that is listed here."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from pool.refusal import NodeReason, NodeRefusal
from tests.support.refusal_texts import node_text
from tests.support.source_trees import PACKAGES, ROOT, files_of, nodes_of

PAGES = ("troubleshooting.md", "using-gpus.md")
PRODUCT = files_of(*sorted({*PACKAGES} - {"demo", "simulator"}))
NAMES = "|".join([*map(str.upper, NodeRefusal.__struct_fields__), "NAME", "CACHE", "WHY"])
FOREIGN = {
    "Insufficient gpu.deckhouse.io/…": "kube-scheduler",
    "Insufficient cpu": "kube-scheduler",
    "Insufficient memory": "kube-scheduler",
    "didn't match Pod's node affinity/selector": "kube-scheduler",
    "had untolerated taint": "kube-scheduler",
    "FailedScheduling": "kube-scheduler",
    "SchedulingGated": "kube-apiserver",
    'failed calling webhook "pods.gpu.deckhouse.io"': "kube-apiserver",
    "failed to find resource referenced by paramKind": "kube-apiserver",
    "connection refused": "the API server's client",
    "context deadline exceeded": "the API server's client",
    "x509": "the clients' TLS",
    "x509: certificate signed by unknown authority": "the clients' TLS",
    "401": "HTTP",
    "403": "HTTP",
    "UnexpectedAdmissionError": "kubelet",
    "CreateContainerError": "kubelet",
    "driver name csi.gkm.io not found in the list of registered CSI drivers": "kubelet",
    "unresolvable CDI devices": "containerd",
}
"""Quoted text -> what prints it."""

LOG_LINES = re.compile(r"(?:log lines?|logs) ((?:(?:, | and )?`[a-zA-Z][^`]*`)+)")


def quotes_in(text: str) -> Iterator[str]:
    """Yield the code in first columns of the tables whose first head is "you see" or "reason"."""
    for table in re.findall(
        r"^\| (?:you see|reason) \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE
    ):
        for row in table.splitlines():
            yield from re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", row)[1])


def quotes() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for quote in quotes_in((ROOT / "docs" / page).read_text(encoding="utf-8")):
            yield page, quote


QUOTES = sorted(set(quotes()))


def text_of(node: ast.AST) -> str | None:
    """Return a string with `…` for each value in it; None of any other expression."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) or "…" for value in values)
        case _:
            return None


@cache
def corpus() -> str:
    """Return every string of the product and the texts of refused nodes, one a line."""
    said = {
        re.sub(rf"\b(?:{NAMES})\b", "…", node_text(reason, zero))
        for reason in NodeReason
        for zero in ((), ("reserved", "unhealthy"))
    }
    for path in PRODUCT:
        for node in nodes_of(path):
            if text := text_of(node):
                said.add(re.sub(r"\s+|\{\w+\}", lambda at: " " if at[0].isspace() else "…", text))
    return "\n".join(sorted(said))


def is_said(quote: str) -> bool:
    pattern = ".*".join(map(re.escape, quote.replace("<pool>", "…").split("…")))
    return re.search(pattern, corpus()) is not None


@pytest.mark.parametrize("page", PAGES)
def test_a_quoted_message_is_one_of_the_product(page: str):
    found = {quote for at, quote in QUOTES if at == page}
    assert len(found) > 10
    assert {quote for quote in found if quote not in FOREIGN and not is_said(quote)} == set()


def test_a_quoted_log_line_is_one_of_the_product():
    found = {
        line
        for page in (ROOT / "docs").rglob("*.md")
        for quoted in re.findall(LOG_LINES, page.read_text(encoding="utf-8"))
        for line in re.findall(r"`([^`]+)`", quoted)
    }
    assert len(found) > 5
    assert {line for line in found if not is_said(line)} == set()


def test_no_text_of_others_is_listed_for_nothing():
    assert FOREIGN.keys() <= {quote for _, quote in QUOTES}
    assert not [quote for quote in FOREIGN if is_said(quote) and len(quote) > 20]


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("pool … is being deleted; use another pool", True),
        ("pool … is being destroyed; use another pool", False),
        ("GPU pool …: … requested, node has …", True),
        ("GPU pool …: … wanted, node has …", False),
    ],
)
def test_a_quote_is_looked_up_with_names_and_figures_left_open(quote: str, *, expected: bool):
    assert is_said(quote) is expected
