"""The answer about one pod as text."""

from typing import TYPE_CHECKING, Final

from api.text import units
from cli.simulation import answers
from telemetry.explanation_texts import unweighed_texts
from telemetry.remedy_texts import RemedyReader, remedy_text

if TYPE_CHECKING:
    from collections.abc import Iterator


_MOST_REASONS: Final = 8
_TOPOLOGIES: Final = {
    "island": "all connected by NVLink",
    "NUMA node": "one NUMA node",
    "split": "split: neither one NUMA node nor all connected by NVLink",
    "unknown": "unknown: the node reports no NUMA nodes and no links",
}


def text_of(answer: "answers.Answer") -> str:
    """Return the lines for a terminal."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: "answers.Answer") -> "Iterator[str]":
    decision = answer.decision
    yield f"pod {answer.pod}: {_outcome_text(decision)}"
    if decision.placement is not None:
        yield from _placement(decision.placement)
    if decision.message is not None:
        yield f"  {decision.message}"
    for warning in decision.warnings:
        yield f"  warning: {warning}"
    if decision.refused:
        yield from _refused(decision)
    yield from _changes(answer)
    yield from unweighed_texts(answer.not_checked)
    for gap in answer.partial:
        yield f"partial: {gap}"


def _outcome_text(decision: "answers.PodDecision") -> str:
    asks = f"{units(decision.units)} of {decision.resource}"
    match decision.verdict:
        case answers.DecisionKind.PLACED:
            return f"would be placed now ({asks})"
        case answers.DecisionKind.WAITS:
            return f"would wait: no node takes it now ({asks})"
        case answers.DecisionKind.DENIED:
            return f"would be denied at admission: {decision.reason}"
        case answers.DecisionKind.NO_POOL:  # pragma: no branch  # mypy proves that none is missing
            return "names no GPU pool, so any node with CPU and memory takes it"


def _placement(placement: "answers.Placement") -> "Iterator[str]":
    yield f"  node      {placement.node}{_choice(placement)}"
    for number, device in enumerate(placement.devices):
        yield f"  {'devices' if number == 0 else '':<10}{_device(device)}"
    if len(placement.devices) > 1:
        yield f"  topology  {_TOPOLOGIES[placement.topology]}"
    yield f"  strategy  {placement.strategy}"


def _choice(placement: "answers.Placement") -> str:
    if placement.is_reserved:
        return " (reserved at admission)"
    if placement.equal_nodes > 1:
        return f" (one of {placement.equal_nodes} equally good nodes, {placement.fitting_nodes} would do)"
    return f" (the best of {_nodes(placement.fitting_nodes)} that would do)"


def _device(device: "answers.ChosenDevice") -> str:
    where = "" if device.numa_node is None else f", NUMA node {device.numa_node}"
    product = f" ({device.product}{where})" if device.product else ""
    own = [unit for unit in device.units if "::" in unit]
    slices = f": {len(own)} of its slices" if own else ""
    return f"{device.name}{product}{slices}"


def _refused(decision: "answers.PodDecision") -> "Iterator[str]":
    printed = decision.refused[:_MOST_REASONS]
    yield "nodes of the pool that do not take it:"
    width = max(len(str(item.count)) for item in printed)
    for item in printed:
        yield f"  {item.count:>{width}}: {item.reason} {_examples(item)}"
    left = sum(item.count for item in decision.refused[_MOST_REASONS:])
    if left:
        yield f"  {left} further nodes for other reasons (--output json has all)"


def _examples(refused: "answers.RefusedNodes") -> str:
    first = refused.examples[0]
    return f"({first})" if refused.count == 1 else f"({first}, …)"


def _changes(answer: "answers.Answer") -> "Iterator[str]":
    reader = RemedyReader(namespace=answer.pod.partition("/")[0])
    lines = [remedy_text(remedy, reader) for remedy in answer.remedies]
    if answer.new_node is not None:
        lines.append(f"with one more node: {_new_node(answer.new_node)}")
    if lines:
        yield "what would help:"
        yield from (f"  {line}" for line in lines)


def _new_node(node: "answers.NewNode") -> str:
    if node.like is None:
        aligned = " on one NUMA node or all connected by NVLink" if node.aligned else ""
        (count,) = node.devices.values()
        return f"at least {count} healthy devices{aligned}; no node of the pool is like that"
    devices = " and ".join(
        f"{count} {product or 'device'}" for product, count in sorted(node.devices.items())
    )
    return f"{devices}, as node {node.like} has"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
