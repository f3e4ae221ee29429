"""One pass over all nodes: each policy chooses among its own, and every node takes a step.

A node belongs to the policy of the NVIDIADriver that its owner label names; with a ClusterPolicy's driver all nodes belong
to that one policy. A node that is deleted is not among the nodes, so its slot is free.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import UpgradeState
from api.names import DRIVER_OWNER_LABEL
from operands.upgrade.case import UpgradeCase
from operands.upgrade.node import step
from operands.upgrade.parameters import OFF
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.record import read_record
from operands.upgrade.slots import (
    SlotRefused,
    available_slots,
    choose,
    is_external,
    is_in_progress,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.kinds.nvidia.operator_status import NodeUpgradeStatus
    from operands.upgrade.actions import NodeUpgrade
    from operands.upgrade.facts import UpgradeNode, UpgradeTimes
    from operands.upgrade.parameters import UpgradeParameters
    from operands.upgrade.record import RecordedNode

CLUSTER_POLICY: Final = ""
"""Owner of the nodes whose driver is the ClusterPolicy's."""
_NO_SLOT: Final = SlotRefused(UpgradeReason.AUTO_UPGRADE_OFF, "no policy is for the node")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeCounts:
    """Nodes of a policy with autoUpgrade, as they are before the pass."""

    managed: int = 0
    in_progress: int = 0
    done: int = 0
    failed: int = 0
    pending: int = 0
    """Nodes in upgrade-required."""
    available: int = 0
    """Nodes that could start."""


@final
@dataclass(frozen=True, slots=True)
class OwnerUpgrade:
    """What is done on the nodes of one owner."""

    nodes: "tuple[NodeUpgrade, ...]" = ()
    """Nodes by name; without nodes on which no upgrade left anything and that no policy is for."""
    counts: UpgradeCounts = field(default_factory=UpgradeCounts)

    def entries(self) -> "list[NodeUpgradeStatus]":
        """Return `status.upgrade` of the owner: nodes that are done, or not examined, are left out."""
        return [node.progress.entry() for node in self.nodes if not node.progress.state.is_idle]


def plan_upgrades(
    policies: "Mapping[str, UpgradeParameters]",
    nodes: "Iterable[UpgradeNode]",
    times: "UpgradeTimes",
) -> dict[str, OwnerUpgrade]:
    """Return what is done on each node now, by owner.

    Args:
        policies: by name of the NVIDIADriver; or one under `CLUSTER_POLICY`, which then is for all nodes.
        nodes: all nodes, in any order. They show the effects of this process's last actions.
        times: the time.
    """
    owned: dict[str, list[RecordedNode]] = defaultdict(list)
    for node in nodes:
        owned[_owner_of(node, policies)].append(read_record(node, times.now))
    return {
        owner: _plan(policies.get(owner, OFF), members, owner=owner, times=times)
        for owner, members in sorted(owned.items())
    }


def _plan(
    parameters: "UpgradeParameters",
    members: "list[RecordedNode]",
    *,
    owner: str,
    times: "UpgradeTimes",
) -> OwnerUpgrade:
    desired = [member for member in members if member.node.is_selected]
    slots = choose(parameters, desired) if parameters.auto_upgrade else {}
    answers: list[NodeUpgrade] = []
    for item in sorted(members, key=lambda member: member.node.name):
        slot = slots.get(item.node.name, _NO_SLOT)
        case = UpgradeCase(
            owner=owner, parameters=parameters, recorded=item, slot=slot, times=times
        )
        if answer := step(case):
            answers.append(answer)
    counts = _counts(parameters, desired) if parameters.auto_upgrade else UpgradeCounts()
    return OwnerUpgrade(tuple(answers), counts)


def _owner_of(node: "UpgradeNode", policies: "Mapping[str, UpgradeParameters]") -> str:
    if CLUSTER_POLICY in policies:
        return CLUSTER_POLICY
    return node.labels.get(DRIVER_OWNER_LABEL, CLUSTER_POLICY)


def _counts(parameters: "UpgradeParameters", nodes: "Sequence[RecordedNode]") -> UpgradeCounts:
    states = [node.state for node in nodes if not is_external(node)]
    return UpgradeCounts(
        managed=len(nodes),
        in_progress=sum(map(is_in_progress, nodes)),
        done=states.count(UpgradeState.UPGRADE_DONE),
        failed=states.count(UpgradeState.UPGRADE_FAILED),
        pending=states.count(UpgradeState.UPGRADE_REQUIRED),
        available=available_slots(parameters, nodes),
    )
