"""A plan of operands as text, and as data for programs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from api.text import listed

if TYPE_CHECKING:
    from operands.nvidia.operands_plan import NodePlan, OperandPlan, StateOnNode

_INDENT: Final = "  "


def text_of(plan: "OperandPlan", *, is_wide: bool) -> str:
    """Return the plan for people: nodes that get the same together, or each by itself."""
    groups = [[node] for node in plan.nodes] if is_wide else _groups(plan.nodes)
    faults = frozenset(fault.message for fault in plan.faults)
    parts = [_head(plan), *(_group_text(group, faults) for group in groups)]
    if plan.cluster:
        rows = [(state, ", ".join(objects)) for state, objects in plan.cluster.items()]
        parts.append("For the whole cluster:\n" + _table(rows))
    if plan.off:
        parts.append("Off:\n" + _table(plan.off.items()))
    if plan.faults:
        rows = [(fault.subject, f"{fault.reason}: {fault.message}") for fault in plan.faults]
        parts.append("To be mended:\n" + _table(rows))
    if plan.hints:
        parts.append("".join(f"Note: {hint}\n" for hint in plan.hints))
    return "\n".join(parts)


def _head(plan: "OperandPlan") -> str:
    lines = [
        f"ClusterPolicy {plan.policy}: {_count(len(plan.nodes))} with a GPU,"
        f" {len(plan.without_gpu)} without"
    ]
    if plan.without_gpu:
        lines.append(f"No label says that there is a GPU: {listed(plan.without_gpu)}")
    lines += [f"ClusterPolicy {item} is ignored: {plan.policy} is older" for item in plan.ignored]
    return "\n".join(lines) + "\n"


def _groups(nodes: "Sequence[NodePlan]") -> "list[list[NodePlan]]":
    """Return the nodes that get the same; where the kernel decides about nothing, it tells none apart."""
    found: dict[object, list[NodePlan]] = defaultdict(list)
    for node in nodes:
        software = (node.software.os_tag, node.software.runtime)
        found[node.workload, software, node.driver, node.states, node.notes].append(node)
    return sorted(found.values(), key=lambda group: (-len(group), group[0].name))


def _group_text(group: "Sequence[NodePlan]", faults: frozenset[str]) -> str:
    """Return what the nodes get; what is to be mended for all is said once, at the end."""
    first = group[0]
    software = first.software
    kernels = sorted({item.software.kernel or "unknown" for item in group})
    lines = [
        f"{_count(len(group))}: {listed(item.name for item in group)}",
        f"workload {first.workload.value if first.workload else 'none'},"
        f" system {software.os_tag or 'unknown'}, kernel {listed(kernels)},"
        f" runtime {software.runtime or 'unknown'},"
        f" {f'driver of {first.driver}' if first.driver else 'without a driver'}",
        *(f"note: {note}" for note in first.notes),
    ]
    rows = [(item.state, *_state_cells(item, faults)) for item in first.states]
    return "\n".join(lines) + "\n" + _table([("STATE", "RUNS", "IMAGE, OR WHY NOT"), *rows])


def _state_cells(state: "StateOnNode", faults: frozenset[str]) -> tuple[str, str]:
    if state.runs:
        return "yes", state.images[0][1]
    message = "to be mended, see below" if state.message in faults else state.message
    return "no", f"{state.reason}: {message}"


def _count(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the rows with columns of one width; the last is as long as it is."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "".join(
        _INDENT
        + "".join(f"{cell:<{width + 2}}" for cell, width in zip(row, widths, strict=False))
        + row[-1]
        + "\n"
        for row in lines
    )


def data_of(plan: "OperandPlan") -> dict[str, Any]:
    """Return the plan for programs."""
    return {
        "policy": plan.policy,
        "ignored": list(plan.ignored),
        "nodes": [_node_data(node) for node in plan.nodes],
        "nodesWithoutGPU": list(plan.without_gpu),
        "clusterObjects": {state: list(objects) for state, objects in plan.cluster.items()},
        "switchedOff": dict(plan.off),
        "faults": [
            {"subject": fault.subject, "reason": fault.reason, "message": fault.message}
            for fault in plan.faults
        ],
        "hints": list(plan.hints),
    }


def _node_data(node: "NodePlan") -> dict[str, Any]:
    return {
        "name": node.name,
        "workload": node.workload.value if node.workload else None,
        "system": node.software.os_tag,
        "kernel": node.software.kernel,
        "runtime": node.software.runtime,
        "driver": node.driver,
        "notes": list(node.notes),
        "states": [_state_data(state) for state in node.states],
    }


def _state_data(state: "StateOnNode") -> dict[str, Any]:
    if state.runs:
        images = dict(state.images)
        return {"name": state.state, "runs": True, "daemonSet": state.daemon_set, "images": images}
    return {"name": state.state, "runs": False, "reason": state.reason, "message": state.message}
