"""`kubectl gpu why`: why a pod waits, who has what it wants, and what would help."""

from typing import TYPE_CHECKING, Final

from api.foreign.core import Pod
from api.names import POOL_LABEL
from api.text import age_text, units
from kube.resources import PODS
from kubectl_gpu import verb_flags
from kubectl_gpu.answer_forms import (
    Cell,
    Table,
    TableColumn,
    TableLayout,
    Tone,
    structured,
    table_text,
    wrapped,
)
from kubectl_gpu.cluster_lists import read_object
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.waiting.explanation_lines import node_table, remedy_lines
from kubectl_gpu.waiting.pod_wait import (
    PodExplanation,
    PodExplanationList,
    refusal_of,
    wait_of,
    waits_of,
)
from kubectl_gpu.watching import Entries
from pool.demand import demand_of
from pool.model import Demand

if TYPE_CHECKING:
    import argparse
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.terminal import Terminal

_PODS: Final = frozenset({"", "pod", "pods"})
_COLUMNS: Final = (
    TableColumn("NAMESPACE", sacrifice=3),
    TableColumn("POD"),
    TableColumn("POOL", sacrifice=2),
    TableColumn("UNITS", is_number=True, sacrifice=1),
    TableColumn("WAITS", sacrifice=4),
    TableColumn("REASON"),
    TableColumn("MESSAGE", is_wide=True),
)


def run_why(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Explain why a pod waits, or list the pods that wait."""
    parser = verb_flags.verb_parser(
        "why", "Say why a pod waits, who has what it wants, and what would help."
    )
    parser.add_argument(
        "pod",
        nargs="?",
        metavar="POD",
        help="all pods that wait, without it; KIND/NAME of a workload: why its pods are refused",
    )
    verb_flags.add_namespace_flags(parser)
    verb_flags.add_selector_flag(parser, "pods")
    verb_flags.add_watch_flag(parser)
    given = verb_flags.parse_verb(parser, arguments)
    if given.pod is not None and (given.all_namespaces or given.selector):
        parser.error("a POD is one pod of a namespace: leave it out with -A or -l")
    return verb_flags.run_on_cluster(given, terminal, lambda lists: _answer(lists, given, terminal))


def _answer(lists: "ClusterLists", given: "argparse.Namespace", terminal: "Terminal") -> Entries:
    if given.pod is None:
        return _answer_list(lists, given, terminal)
    namespace = lists.source.namespace()
    kind, _, name = given.pod.rpartition("/")
    if kind in _PODS:
        body = lists.source.object(PODS, name, namespace=namespace)
        answer = wait_of(lists, read_object(body, Pod, subject=f"Pod {namespace}/{name}"))
    else:
        answer = refusal_of(lists, kind, name)
    text = structured(answer, [f"pod/{answer.name}"], form=given.output)
    if text is None:
        is_wide, now = given.output == "wide", lists.source.now()
        text = "".join(f"{line}\n" for line in _lines(answer, terminal, now, is_wide=is_wide))
    return Entries(text, ANSWERED)


def _lines(
    answer: PodExplanation, terminal: "Terminal", now: "dt.datetime", *, is_wide: bool
) -> "Iterator[str]":
    explanation = answer.explanation
    yield from wrapped(_first_line(answer, now), terminal)
    yield from wrapped(answer.message, terminal, indent="  ")
    if explanation is not None:
        table = node_table(explanation, terminal, is_wide=is_wide)
        yield from table.splitlines()
        yield from remedy_lines(explanation, terminal)
    for subject, text in (
        ("autoscaling", answer.autoscaling),
        ("kube-scheduler", answer.kube_scheduler),
    ):
        if answer.state == "Waits" and text:
            yield from wrapped(f"{subject} said: {text}", terminal, hang="  ")
    source = answer.read_from
    if explanation is None and answer.state == "Waits":
        source += ", the pod alone: this user may not read its pool"
    yield f"Read from: {source}"


def _first_line(answer: PodExplanation, now: "dt.datetime") -> str:
    ref = f"{answer.namespace}/{answer.name}"
    if answer.state in {"Refused", "NotRefused"}:
        return f"{ref}: pods of it {'are' if answer.state == 'Refused' else 'were not'} refused"
    if answer.state != "Waits":
        return f"{ref} does not wait for units"
    age = age_text(answer.created, now)
    waited = f" has waited {age} for " if age else " waits for "
    explanation = answer.explanation
    if explanation is None:
        return f"{ref}{waited}units of a pool"
    where = f"pool {explanation.pool}" if explanation.pool else explanation.resource
    return f"{ref}{waited}{units(explanation.units)} of {where}"


def _answer_list(
    lists: "ClusterLists", given: "argparse.Namespace", terminal: "Terminal"
) -> Entries:
    namespace = None if given.all_namespaces else lists.source.namespace()
    labels = f"{POOL_LABEL},{given.selector}" if given.selector else POOL_LABEL
    waiting = lists.read(ListQuery(PODS, namespace, labels), Pod, _if_waiting)
    answer = PodExplanationList(items=tuple(waits_of(lists, waiting)))
    text = structured(answer, (f"pod/{item.name}" for item in answer.items), form=given.output)
    if text is None:
        layout = TableLayout(is_wide=given.output == "wide", has_header=not given.no_headers)
        text = _table(answer, terminal, lists.source.now(), layout=layout)
    return Entries(text, ANSWERED)


def _if_waiting(pod: Pod) -> Pod | None:
    is_waiting = not pod.spec.node_name and not pod.has_ended
    return pod if is_waiting and isinstance(demand_of(pod.spec), Demand) else None


def _table(
    answer: PodExplanationList, terminal: "Terminal", now: "dt.datetime", *, layout: TableLayout
) -> str:
    if not answer.items:
        return "No pod waits for units.\n"
    table = Table(_COLUMNS)
    for item in answer.items:
        explanation = item.explanation
        reason = explanation.reason.value if explanation is not None else ""
        table.rows.append(
            (
                item.namespace,
                item.name,
                explanation.pool if explanation is not None else "",
                str(explanation.units) if explanation is not None else "",
                age_text(item.created, now),
                Cell(reason or (item.leader.reason if item.leader else "Unknown"), Tone.WARNING),
                item.message,
            )
        )
    return table_text(table, terminal, layout)
