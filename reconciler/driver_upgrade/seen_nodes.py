"""Nodes as facts of an upgrade, without what decides nothing: a cluster has thousands, each with a hundred labels. Pure."""

import functools
from dataclasses import dataclass, replace
from sys import intern
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    CORDON_MANAGER,
    DEPLOY_LABEL_PREFIX,
    DEPLOYED,
    DRIVER_DEPLOY_LABEL,
    IDLE_VALUES,
    PAUSED_FOR_UPGRADE,
    UNITS_WITHHELD_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from api.foreign.karpenter import DISRUPTED_TAINT
from api.names import DRIVER_OWNER_LABEL, NodeName
from operands.upgrade.facts import UpgradeNode
from operands.upgrade.out_of_service import is_out_of_service
from reconciler.driver_upgrade.daemons import daemon_of, is_wanted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from api.foreign.core import Node
    from reconciler.driver_upgrade.daemons import AgentDaemon, DriverDaemon

_PREFIXES: Final = ("nvidia.com/gpu-driver-upgrade", DEPLOY_LABEL_PREFIX)
_KEYS: Final = frozenset(
    {
        AGENT_DEPLOY_LABEL,
        DRIVER_OWNER_LABEL,
        UNITS_WITHHELD_ANNOTATION,
        UPGRADE_RECORD_ANNOTATION,
    }
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradingNode:
    fact: UpgradeNode
    """Without pods."""
    uid: str

    @property
    def name(self) -> str:
        return self.fact.name

    @property
    def namespace(self) -> str:
        """None: a Node is in no namespace."""
        return ""


def seen_node(
    node: "Node",
    daemons: "Mapping[str, DriverDaemon]",
    owners: "Collection[str]",
    *,
    agents: "Iterable[AgentDaemon]" = (),
) -> UpgradingNode:
    """Return a node with the DaemonSet for it; `owners` are the UIDs of those with a pod there."""
    meta, labels = node.metadata, node.metadata.labels or {}
    name = NodeName(meta.name)
    # A driver that is held off for an upgrade comes back.
    is_held_off = labels.get(DRIVER_DEPLOY_LABEL) == PAUSED_FOR_UPGRADE
    selected = {**labels, DRIVER_DEPLOY_LABEL: DEPLOYED} if is_held_off else labels
    daemon = daemon_of(name, selected, daemons, owners=owners)
    taints = {taint.key for taint in node.spec.taints or ()}
    fact = UpgradeNode(
        name=name,
        labels=_kept(labels),
        annotations=_kept(meta.annotations or {}),
        is_schedulable=not node.spec.unschedulable,
        owns_cordon=meta.owns_cordon(CORDON_MANAGER),
        is_ready=node.is_ready,
        is_leaving=meta.deletion_timestamp is not None or DISRUPTED_TAINT in taints,
        is_wanted=is_wanted(selected, daemon),
        desired_revision="" if daemon is None else daemon.revision,
        desired_digest="" if daemon is None else daemon.digest,
    )
    state = fact.labels.get(UPGRADE_STATE_LABEL, "")
    if state not in IDLE_VALUES or is_out_of_service(fact):
        fact = replace(
            fact, agents=frozenset(agent.name for agent in agents if agent.selects(node))
        )
    return UpgradingNode(fact=fact, uid=meta.uid)


def _kept(values: "Mapping[str, str]") -> "Mapping[str, str]":
    kept = (
        (intern(key), intern(value))
        for key, value in values.items()
        if key in _KEYS or key.startswith(_PREFIXES)
    )
    return _shared(tuple(kept))


@functools.lru_cache(maxsize=256)
def _shared(items: tuple[tuple[str, str], ...]) -> "Mapping[str, str]":
    """Return one mapping for all nodes that have the same: most do."""
    return dict(items)
