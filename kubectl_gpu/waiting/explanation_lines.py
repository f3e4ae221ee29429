"""An explanation as lines for a terminal: figures by node, who has the units, what would help."""

from typing import TYPE_CHECKING, Final

from api.text import duration_text
from kubectl_gpu.answer_forms import (
    Cell,
    Table,
    TableColumn,
    TableLayout,
    Tone,
    table_text,
    wrapped,
)
from telemetry.remedy_texts import RemedyReader, node_reason, remedy_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_gpu.terminal import Terminal
    from pool.what_if.explanation import Explanation, NodeExplanation, UnitsHolder

_COLUMNS: Final = (
    TableColumn("NODE"),
    TableColumn("FREE", is_number=True),
    TableColumn("USED", is_number=True, sacrifice=3),
    TableColumn("RESERVED", is_number=True, sacrifice=4),
    TableColumn("WITHHELD", is_number=True, sacrifice=5),
    TableColumn("TAKEN BY", sacrifice=2),
    TableColumn("BECAUSE", sacrifice=1),
)
_MOST_HOLDERS: Final = 3


def node_table(explanation: "Explanation", terminal: "Terminal", *, is_wide: bool) -> str:
    """Return the figures of the pool's nodes; empty where there is none."""
    if not explanation.nodes:
        return ""
    table, reader = Table(_COLUMNS), RemedyReader(namespace=explanation.namespace)
    for node in explanation.nodes:
        figures = (node.used, node.reserved, node.withheld)
        table.rows.append(
            (
                node.node,
                Cell(str(node.free), Tone.GOOD if node.free else Tone.PLAIN),
                *map(str, figures),
                _holders(node, reader),
                node_reason(node, explanation.pool) or "takes the pod",
            )
        )
    text = table_text(table, terminal, TableLayout(is_wide=is_wide, indent="  "))
    further = explanation.nodes_total - len(explanation.nodes)
    return text + (f"  and {further} further nodes\n" if further > 0 else "")


def remedy_lines(explanation: "Explanation", terminal: "Terminal") -> "Iterator[str]":
    """Yield what would help; nothing where nothing is known."""
    if not explanation.remedies:
        return
    reader = RemedyReader(namespace=explanation.namespace)
    yield "What would help, the least first"
    for remedy in explanation.remedies:
        text = remedy_text(remedy, reader)
        yield from wrapped(f"- {text}", terminal, indent="  ", hang="  ")


def _holders(node: "NodeExplanation", reader: RemedyReader) -> str:
    names = [_holder(holder, reader) for holder in node.holders[:_MOST_HOLDERS]]
    further = len(node.holders) - len(names)
    return ", ".join(names) + (f" and {further} more" if further > 0 else "")


def _holder(holder: "UnitsHolder", reader: RemedyReader) -> str:
    figures = f"{holder.units}"
    if holder.is_reserved:
        left = "" if holder.expires_in_s is None else f" for {duration_text(holder.expires_in_s)}"
        figures += f" reserved{left}"
    return f"{reader.name(holder)} ({figures})"
