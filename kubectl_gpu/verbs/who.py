"""`kubectl gpu who`: who has how many units of each pool, by namespace."""

import datetime as dt
from collections import defaultdict
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.annotations import decode_reservation
from api.foreign.core import Pod
from api.names import POOL_LABEL, RESERVATION_ANNOTATION
from kube.resources import PODS
from kubectl_gpu import answer_forms, verb_flags
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import ForbiddenError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.watching import Entries
from pool.demand import units_by_resource

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.terminal import Terminal

_COLUMNS: Final = (
    answer_forms.TableColumn("NAMESPACE"),
    answer_forms.TableColumn("POOL"),
    answer_forms.TableColumn("PODS", is_number=True, sacrifice=1),
    answer_forms.TableColumn("USED", is_number=True),
    answer_forms.TableColumn("RESERVED", is_number=True, sacrifice=2),
    answer_forms.TableColumn("WAITING", is_number=True, sacrifice=3),
    answer_forms.TableColumn("HOLDERS", is_wide=True),
)


@final
class PodShare(answer_forms.Entry, frozen=True, kw_only=True):
    """What one pod has, or waits for."""

    namespace: str
    name: str
    pool: str
    node: str = ""
    used: int = 0
    reserved: int = 0
    waiting: int = 0


@final
class NamespaceShare(answer_forms.Entry, frozen=True, kw_only=True):
    """What the pods of a namespace have of a pool, in units; pods that wait for units have none."""

    namespace: str
    pool: str
    used: int
    reserved: int
    waiting: int
    pods: tuple[PodShare, ...]


@final
class ShareList(answer_forms.Document, frozen=True, kw_only=True):
    """Document of the verb `who`."""

    items: tuple[NamespaceShare, ...]


def run_who(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """List who has units."""
    parser = verb_flags.verb_parser(
        "who", "List who has how many units of each pool, by namespace."
    )
    parser.add_argument("--pool", metavar="POOL", help="of this pool alone")
    verb_flags.add_namespace_flags(parser)
    verb_flags.add_selector_flag(parser, "pods")
    verb_flags.add_watch_flag(parser)
    given = verb_flags.parse_verb(parser, arguments)
    return verb_flags.run_on_cluster(given, terminal, lambda lists: _answer(lists, given, terminal))


def _answer(lists: "ClusterLists", given: "argparse.Namespace", terminal: "Terminal") -> Entries:
    answer = ShareList(items=tuple(shares_of(_pods(lists, given))))
    names = dict.fromkeys(f"namespace/{item.namespace}" for item in answer.items)
    text = answer_forms.structured(answer, names, form=given.output)
    return Entries(text if text is not None else _table(answer, given, terminal), ANSWERED)


def _pods(lists: "ClusterLists", given: "argparse.Namespace") -> "list[PodShare]":
    """Read the pods; those of the present namespace where those of all may not be listed."""
    label = POOL_LABEL if given.pool is None else f"{POOL_LABEL}={given.pool}"
    labels = f"{label},{given.selector}" if given.selector else label
    now = lists.source.now()

    def share(pod: Pod) -> PodShare | None:
        found = share_of(pod, now)
        return found if found is not None and given.pool in {None, found.pool} else None

    try:
        return lists.read(ListQuery(PODS, given.namespace, labels), Pod, share)
    except ForbiddenError:
        if given.all_namespaces or given.namespace is not None:
            raise
    namespace = lists.source.namespace()
    lists.gaps.append(
        f"pods of all namespaces may not be listed by this user: these are those of {namespace}"
    )
    return lists.read(ListQuery(PODS, namespace, labels), Pod, share)


def share_of(pod: Pod, now: dt.datetime) -> PodShare | None:
    """Return what a pod has; None once it has ended, and for one that asks for no unit."""
    units = sum(units_by_resource(pod.spec).values())
    if pod.has_ended or not units:
        return None
    meta = pod.metadata
    share = PodShare(
        namespace=meta.namespace,
        name=meta.name,
        pool=meta.label(POOL_LABEL) or "",
        node=pod.spec.node_name,
    )
    if pod.spec.node_name:
        return msgspec.structs.replace(share, used=units)
    note = decode_reservation(meta.annotation(RESERVATION_ANNOTATION))
    if note is not None and note.node and (note.expires_at is None or note.expires_at > now):
        return msgspec.structs.replace(share, reserved=units, node=note.node)
    return msgspec.structs.replace(share, waiting=units)


def shares_of(pods: "Iterable[PodShare]") -> "list[NamespaceShare]":
    """Return the sums by namespace and pool, in alphabetical order."""
    groups: defaultdict[tuple[str, str], list[PodShare]] = defaultdict(list)
    for pod in pods:
        groups[pod.namespace, pod.pool].append(pod)
    return [
        NamespaceShare(
            namespace=namespace,
            pool=pool,
            used=sum(pod.used for pod in item),
            reserved=sum(pod.reserved for pod in item),
            waiting=sum(pod.waiting for pod in item),
            pods=tuple(sorted(item, key=lambda pod: (-pod.used, -pod.reserved, pod.name))),
        )
        for (namespace, pool), item in sorted(groups.items())
    ]


def _table(answer: ShareList, given: "argparse.Namespace", terminal: "Terminal") -> str:
    if not answer.items:
        return "No pod has units of a pool, or waits for them.\n"
    table = answer_forms.Table(_COLUMNS)
    for item in answer.items:
        figures = (len(item.pods), item.used, item.reserved, item.waiting)
        holders = ", ".join(
            f"{pod.name} ({pod.used + pod.reserved})" for pod in item.pods if not pod.waiting
        )
        table.rows.append((item.namespace, item.pool, *map(str, figures), holders))
    layout = answer_forms.TableLayout(
        is_wide=given.output == "wide", has_header=not given.no_headers
    )
    return answer_forms.table_text(table, terminal, layout)
