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
from operands.upgrade.facts import PodOwner, UpgradeNode
from operands.upgrade.out_of_service import is_out_of_service
from pool.compute_resources import CPU, MEMORY, NOTHING, ComputeResources, allocatable
from reconciler.driver_upgrade.daemons import daemon_of, is_selected, unselected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from api.foreign.core import Node, Taint
    from operands.upgrade.facts import PodOnNode
    from reconciler.driver_upgrade.daemons import AgentDaemon, DriverDaemon

_STAYING: Final = frozenset({PodOwner.DAEMON_SET, PodOwner.MIRROR})
"""Owners of the pods that no upgrade takes from the node, or that come back."""
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
    requests: ComputeResources = NOTHING
    """What the driver pod requests."""
    cpu_milli: int | None = None
    """CPU that pods can be given; None where the Node does not say."""
    memory_mib: int | None = None

    def shortage(self, pods: "Iterable[PodOnNode]") -> str:
        """Return what of the pods that stay on the node leave too little for its driver pod; empty: nothing."""
        staying = [pod for pod in pods if pod.is_active and pod.owner in _STAYING]
        for resource, unit, requested, all_, taken in (
            (
                CPU,
                "m",
                self.requests.cpu_milli,
                self.cpu_milli,
                sum(pod.cpu_milli for pod in staying),
            ),
            (
                MEMORY,
                "Mi",
                self.requests.memory_mib,
                self.memory_mib,
                sum(pod.memory_mib for pod in staying),
            ),
        ):
            if all_ is not None and requested > max(0, all_ - taken):
                return (
                    f"its pod requests {requested}{unit} of {resource}, and DaemonSets and static pods leave"
                    f" {all_ - taken}{unit} of {all_}{unit}: lower the requests"
                )
        return ""

    @property
    def name(self) -> str:
        return self.fact.name

    @property
    def namespace(self) -> str:
        """None: a Node is in no namespace."""
        return ""


def upgrading_node(
    node: "Node",
    daemons: "Mapping[str, DriverDaemon]",
    owners: "Collection[str]",
    *,
    agents: "Iterable[AgentDaemon]" = (),
    taints: "Iterable[Taint]" = (),
) -> UpgradingNode:
    """Return a node with the DaemonSet for it.

    Args:
        node: as it is.
        daemons: the driver DaemonSets.
        owners: UIDs of those with a pod there.
        agents: the DaemonSets of our agents.
        taints: those that the node's pools are about to give it, beside its own.
    """
    meta, labels = node.metadata, node.metadata.labels or {}
    name = NodeName(meta.name)
    # A driver that is held off for an upgrade comes back.
    is_held_off = labels.get(DRIVER_DEPLOY_LABEL) == PAUSED_FOR_UPGRADE
    selected = {**labels, DRIVER_DEPLOY_LABEL: DEPLOYED} if is_held_off else labels
    daemon = daemon_of(name, selected, daemons, owners=owners)
    all_taints = [*(node.spec.taints or ()), *taints]
    fact = UpgradeNode(
        name=name,
        labels=_upgrade_keys(labels),
        annotations=_upgrade_keys(meta.annotations or {}),
        is_schedulable=not node.spec.unschedulable,
        owns_cordon=meta.owns_cordon(CORDON_MANAGER),
        is_ready=node.is_ready,
        is_leaving=meta.deletion_timestamp is not None
        or any(taint.key == DISRUPTED_TAINT for taint in all_taints),
        is_selected=is_selected(selected, daemon),
        desired_revision="" if daemon is None else daemon.revision,
        desired_digest="" if daemon is None else daemon.digest,
        driver_obstacle=unselected(selected, daemons, owners=owners)
        if daemon is None
        else daemon.obstacle(all_taints),
    )
    state = fact.labels.get(UPGRADE_STATE_LABEL, "")
    if state not in IDLE_VALUES or is_out_of_service(fact):
        fact = replace(
            fact, agents=frozenset(agent.name for agent in agents if agent.selects(node))
        )
    cpu_milli, memory_mib = allocatable(node.status.allocatable)
    return UpgradingNode(
        fact=fact,
        uid=meta.uid,
        requests=NOTHING if daemon is None else daemon.requests,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
    )


def _upgrade_keys(values: "Mapping[str, str]") -> "Mapping[str, str]":
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
