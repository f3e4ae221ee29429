"""An explanation as lines for a terminal: figures by node, who has the units, what would help."""

from typing import TYPE_CHECKING, Final

from api.names import PoolName
from api.text import listed, units
from kubectl_gpu.answer_forms import (
    Cell,
    Table,
    TableColumn,
    TableLayout,
    Tone,
    table_text,
    wrapped,
)
from kubectl_gpu.durations import duration_text
from pool.explanation.explanation import (
    AskFewerUnits,
    DevicesJoin,
    PodsEnd,
    ReservationsExpire,
    UnitsReturn,
    UsePool,
    WithheldBy,
)
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_gpu.terminal import Terminal
    from pool.explanation.explanation import (
        AnyRemedy,
        Explanation,
        NodeExplanation,
        UnitsHolder,
    )

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
_WITHHELD: Final = {
    WithheldBy.CORDONED: "is uncordoned",
    WithheldBy.NOT_READY: "is ready again",
    WithheldBy.FAULTED: "has its faulted devices back",
    WithheldBy.DRAINING: "keeps the devices that leave the pool",
}


def node_table(explanation: "Explanation", terminal: "Terminal", *, is_wide: bool) -> str:
    """Return the figures of the pool's nodes; empty where there is none."""
    if not explanation.nodes:
        return ""
    table = Table(_COLUMNS)
    for node in explanation.nodes:
        figures = (node.used, node.reserved, node.withheld)
        table.rows.append(
            (
                node.node,
                Cell(str(node.free), Tone.GOOD if node.free else Tone.PLAIN),
                *map(str, figures),
                _holders(node, explanation.namespace),
                _because(node, explanation),
            )
        )
    text = table_text(table, terminal, TableLayout(is_wide=is_wide, indent="  "))
    further = explanation.nodes_total - len(explanation.nodes)
    return text + (f"  and {further} further nodes\n" if further > 0 else "")


def remedy_lines(explanation: "Explanation", terminal: "Terminal") -> "Iterator[str]":
    """Yield what would help; nothing where nothing is known."""
    if not explanation.remedies:
        return
    yield "What would help, the least first"
    for remedy in explanation.remedies:
        text = remedy_text(remedy, explanation.namespace)
        yield from wrapped(f"- {text}", terminal, indent="  ", hang="  ")


def remedy_text(remedy: "AnyRemedy", namespace: str) -> str:
    """Return one remedy as a clause; pods of the namespace go by their name alone."""
    match remedy:
        case AskFewerUnits():
            return f"ask for {units(remedy.units)}: node {remedy.node} would take the pod now"
        case ReservationsExpire():
            within = duration_text(remedy.within_s)
            return (
                f"in {within} at most {_pods(remedy.holders, namespace)} either runs or gives back its"
                f" reservation on {remedy.node}: without it the pod fits there"
            )
        case UsePool():
            return (
                f"use pool {remedy.pool}: a request for {remedy.resource} would be placed now on"
                f" {remedy.node}"
            )
        case UnitsReturn():
            devices = f" ({listed(remedy.devices)})" if remedy.devices else ""
            return (
                f"when node {remedy.node} {_WITHHELD[remedy.cause]}, it has {units(remedy.units)}"
                f" more{devices}, and takes the pod"
            )
        case DevicesJoin():
            count = len(remedy.devices)
            return (
                f"{count} {'device' if count == 1 else 'devices'} of {remedy.node} are in no pool and"
                f" would make room: {remedy.obstacle}"
            )
        case PodsEnd():  # pragma: no branch  # mypy proves that no case is missing
            verb = "ends" if len(remedy.holders) == 1 else "end"
            return f"when {_pods(remedy.holders, namespace)} {verb}, the pod fits on {remedy.node}"


def _holders(node: "NodeExplanation", namespace: str) -> str:
    names = [_holder(one, namespace) for one in node.holders[:_MOST_HOLDERS]]
    further = len(node.holders) - len(names)
    return ", ".join(names) + (f" and {further} more" if further > 0 else "")


def _holder(holder: "UnitsHolder", namespace: str) -> str:
    figures = f"{holder.units}"
    if holder.is_reserved:
        left = "" if holder.expires_in_s is None else f" for {duration_text(holder.expires_in_s)}"
        figures += f" reserved{left}"
    return f"{_name(holder, namespace)} ({figures})"


def _pods(holders: "tuple[UnitsHolder, ...]", namespace: str) -> str:
    return ", ".join(f"{_name(one, namespace)} ({units(one.units)})" for one in holders)


def _name(holder: "UnitsHolder", namespace: str) -> str:
    return holder.name if holder.namespace == namespace and holder.name else holder.ref


def _because(node: "NodeExplanation", explanation: "Explanation") -> str:
    if node.exclusion:
        return node.exclusion
    if node.refusal is None:
        return "takes the pod"
    text = node_refusal_text(node.refusal, PoolName(explanation.pool))
    return text.removeprefix(f"GPU pool {explanation.pool}: ")
