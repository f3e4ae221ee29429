"""DaemonSets of node software that have no pod on nodes of a pool because of their taints.

The control plane's own tolerate every taint. Those of NVIDIA's GPU Operator and of Node Feature Discovery have lists, and a
node that they leave out stays without driver, or without the labels by which it would get one, and nothing else says so.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX
from api.foreign.core import Taint, Toleration
from api.names import AGENT_NOT_READY_TAINT
from api.text import listed
from pool.node_affinity import Tolerations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STARTUP_TAINT: Final = Taint(key=AGENT_NOT_READY_TAINT, effect="NoSchedule")
"""Taint of a new node until its devices are in the pool. Other startup taints go without node software."""
_NAMED: Final = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDaemon:
    """A DaemonSet of node software."""

    name: str
    """Its namespace and name, with a slash between them."""
    tolerations: tuple[Toleration, ...] = ()


def is_node_software(labels: "Mapping[str, str]", node_selector: "Mapping[str, str]") -> bool:
    """Say whether a DaemonSet, by labels and node selector of its pods, makes nodes ready for devices."""
    name = labels.get("app.kubernetes.io/name"), labels.get("role")
    return (
        any(key.startswith(DEPLOY_LABEL_PREFIX) for key in node_selector)
        or name == ("node-feature-discovery", "worker")
        or labels.get("app") == "nfd-worker"
    )


def kept_away(
    pool: str, daemons: "Iterable[NodeDaemon]", taints: "Iterable[Taint]"
) -> tuple[str, str]:
    """Return which DaemonSets have no pod on nodes of a pool that have these taints, and the cure; empty where all have."""
    by_taints: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    added: dict[str, None] = {}
    closing = {taint_text(item): item for item in taints if item.effect != "PreferNoSchedule"}
    for daemon in daemons:
        tolerated = Tolerations(daemon.tolerations)
        missing = [text for text, taint in closing.items() if not tolerated.cover(taint)]
        if missing:
            by_taints[tuple(missing)].append(daemon.name)
            lines = (f"{{key: {closing[text].key}, operator: Exists}}" for text in missing)
            added |= dict.fromkeys(lines)
    if not by_taints:
        return "", ""
    parts = (
        f"DaemonSet {listed(names, _NAMED)} has no pod on nodes of pool {pool}, since it does not tolerate {', '.join(keys)}"
        for keys, names in by_taints.items()
    )
    cure = (
        f"add {', '.join(added)} to its tolerations: spec.daemonsets.tolerations of NVIDIA's ClusterPolicy, and"
        " worker.tolerations of the values of Node Feature Discovery"
    )
    return "; ".join(parts), cure


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
