"""Why one pod waits, with the figures of the nodes of its pool."""

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from console.data.explanations.waits import explained_wait
from console.data.tables.pod_rows import pool_name_of, wait_entry, waits
from console.rows import NodeFigures, PodDetail
from telemetry.remedy_texts import node_reason

if TYPE_CHECKING:
    from console.data.state.cluster import ClusterState
    from console.data.tables.cluster_rows import ClusterRows
    from console.data.tables.visible_rows import RowViewer
    from pool.what_if.explanation import NodeExplanation

_MOST_NODES: Final = 16
_UNSEEN: Final = "kube-scheduler does not consider it"


def pod_detail(
    cluster: "ClusterState", rows: "ClusterRows", ref: str, *, viewer: "RowViewer"
) -> PodDetail | None:
    """Return why a pod waits; None where none waits under this name that the viewer may see."""
    seen = cluster.pods.named(ref)
    if seen is None or not viewer.sees_pod(ref) or not waits(cluster, seen.facts):
        return None
    position = rows.position(seen.facts.uid)
    if not cluster.is_exact:
        row = wait_entry(cluster, seen, None, position=position).row
        return PodDetail(name=ref, row=row)
    at = cluster.now().monotonic
    explanation = rows.explanations.explain(seen, most_nodes=_MOST_NODES, is_quick=True)
    explained = explained_wait(explanation, at)
    shared = rows.explanations.get(seen.facts.uid)
    if not explained.remedies and shared is not None and shared.reason == explained.reason:
        explained = replace(explained, remedies=shared.remedies, at=shared.at)
    entry = wait_entry(cluster, seen, explained, position=position)
    pool = pool_name_of(cluster, seen.facts)
    row = viewer.wait(entry) or entry.row
    return PodDetail(
        name=ref,
        row=row,
        nodes=tuple(_figures(node, pool, viewer=viewer, at=at) for node in explanation.nodes),
        nodes_total=explanation.nodes_total,
    )


def _figures(node: "NodeExplanation", pool: str, *, viewer: "RowViewer", at: float) -> NodeFigures:
    because = node_reason(node, pool)
    if because and not viewer.visibility.nodes and (node.exclusion or node.refusal is None):
        because = _UNSEEN
    return NodeFigures(
        node=node.node,
        total=node.total,
        free=node.free,
        used=node.used,
        reserved=node.reserved,
        withheld=node.withheld,
        because=because,
        holders=tuple(viewer.holder(item, at) for item in node.holders),
    )
