"""Selection of the nodes of one policy that start an upgrade now, and why the others do not.

A node that starts takes one of maxParallelUpgrades, and, unless it is away already, one of maxUnavailable. Away is what is
cordoned by any client, not ready, withheld or in progress. A failed node takes none of the first.

First attempts go before further ones, and nodes that are away already before others. Then come the nodes without users of
the driver, and those whose users end soonest; last the nodes that something holds for good.
"""

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from api.driver_upgrade import REQUESTOR_MODE_ANNOTATION, UPGRADE_SKIP_LABEL, UpgradeState
from api.text import listed
from operands.upgrade.driver_pods import is_held_off, is_still_needed, kept_away, pending_cause
from operands.upgrade.driver_users import occupants_for_deletion, users_of
from operands.upgrade.facts import DriverRevision
from operands.upgrade.out_of_service import is_withheld
from operands.upgrade.reasons import UpgradeReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.names import NodeName
    from operands.upgrade.parameters import UpgradeParameters
    from operands.upgrade.record import RecordedNode


@final
@dataclass(frozen=True, slots=True)
class SlotGranted:
    """The node starts now."""


@final
@dataclass(frozen=True, slots=True)
class SlotRefused:
    reason: UpgradeReason
    message: str


UpgradeSlot: TypeAlias = SlotGranted | SlotRefused

_NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


def is_external(recorded: "RecordedNode") -> bool:
    """Return whether an external maintenance operator has the node."""
    return recorded.state.is_external or REQUESTOR_MODE_ANNOTATION in recorded.node.annotations


def is_skipped(recorded: "RecordedNode") -> bool:
    return recorded.node.labels.get(UPGRADE_SKIP_LABEL) == "true"


def is_in_progress(recorded: "RecordedNode") -> bool:
    return recorded.state.is_in_progress and not is_external(recorded)


def is_away(recorded: "RecordedNode") -> bool:
    """Return whether the node takes no new pods, or is about to."""
    node = recorded.node
    return (
        not node.is_schedulable
        or not node.is_ready
        or is_withheld(node)
        or is_in_progress(recorded)
    )


def choose(
    parameters: "UpgradeParameters", nodes: "Sequence[RecordedNode]"
) -> "dict[NodeName, UpgradeSlot]":
    """Return a slot, or why there is none, for each node in state upgrade-required.

    Args:
        parameters: of the policy of all these nodes.
        nodes: all nodes of the policy, in any order.
    """
    slots: dict[NodeName, UpgradeSlot] = {}
    candidates: list[RecordedNode] = []
    for item in nodes:
        if item.state is not UpgradeState.UPGRADE_REQUIRED or is_external(item):
            continue
        obstacle = _obstacle(item) or _refusal_of(parameters)
        if obstacle is None:
            candidates.append(item)
        else:
            slots[item.node.name] = obstacle
    budget = _SlotBudget(parameters, nodes)
    for item in sorted(candidates, key=lambda candidate: _start_order(parameters, candidate)):
        slots[item.node.name] = budget.take(item)
    return slots


def available_slots(parameters: "UpgradeParameters", nodes: "Sequence[RecordedNode]") -> int:
    """Return how many nodes that are in service could start now, if as many waited."""
    return 0 if parameters.faults else _SlotBudget(parameters, nodes).left()


def _obstacle(recorded: "RecordedNode") -> SlotRefused | None:
    """Return what is about this node alone."""
    node = recorded.node
    if is_skipped(recorded):
        text = f"label {UPGRADE_SKIP_LABEL}=true keeps the node from being upgraded: remove it"
        return SlotRefused(UpgradeReason.SKIPPED, text)
    if node.is_leaving:
        return SlotRefused(UpgradeReason.LEAVING, "the node is being removed")
    if not node.is_ready:
        return SlotRefused(UpgradeReason.NOT_READY, "starts once the node is ready")
    if not any(pod.is_scheduled for pod in node.driver_pods) and not is_held_off(node):
        text = f"no driver pod is scheduled to the node{pending_cause(node)}; other nodes go on"
        return SlotRefused(UpgradeReason.NO_DRIVER_POD, text)
    if text := kept_away(recorded):
        return SlotRefused(UpgradeReason.DRIVER_KEPT_AWAY, text)
    return None if is_still_needed(recorded) else _unreadable(recorded)


def _unreadable(recorded: "RecordedNode") -> SlotRefused:
    unknown = [
        pod.name for pod in recorded.node.driver_pods if pod.revision is DriverRevision.UNKNOWN
    ]
    if unknown:
        text = f"the revision of driver pod {listed(unknown)} is not known: delete the pod"
        return SlotRefused(UpgradeReason.REVISION_UNKNOWN, text)
    return SlotRefused(UpgradeReason.NOTHING_TO_UPGRADE, "no driver pod is to be replaced")


def _refusal_of(parameters: "UpgradeParameters") -> SlotRefused | None:
    if not parameters.faults:
        return None
    text = "; ".join(map(str, parameters.faults))
    return SlotRefused(UpgradeReason.POLICY_REFUSED, f"no node starts: {text}")


def _start_order(
    parameters: "UpgradeParameters", recorded: "RecordedNode"
) -> tuple[int, bool, bool, bool, dt.datetime, int, int, str]:
    """Return a sort key: the first is the next to start; a node whose pods are not read goes behind those that are known."""
    is_read = recorded.node.pods is not None
    users = users_of(recorded.node) if is_read else []
    holders = (
        occupants_for_deletion(recorded.node, parameters.pod_deletion).holders if is_read else ()
    )
    ends = (_NEVER if pod.ends_at is None else pod.ends_at for pod in users)
    return (
        recorded.record.attempt,
        not is_away(recorded),
        not is_read,
        bool(holders),
        max(ends, default=dt.datetime.min.replace(tzinfo=dt.UTC)),
        max((pod.priority for pod in users), default=-(2**31)),
        len(users),
        recorded.node.name,
    )


class _SlotBudget:
    """What is left of the policy's two numbers while slots are given.

    A node that has no driver, and is to get none as things are, is not among those of which a share may be away.
    """

    def __init__(self, parameters: "UpgradeParameters", nodes: "Sequence[RecordedNode]") -> None:
        nodes = [item for item in nodes if item.node.driver_pods or item.node.desired_revision]
        self._parameters = parameters
        self._limit = parameters.max_unavailable.of(len(nodes))
        self._total = len(nodes)
        self._in_progress = sum(map(is_in_progress, nodes))
        self._before = [item for item in nodes if is_away(item)]
        self._away = len(self._before)

    def take(self, recorded: "RecordedNode") -> UpgradeSlot:
        most = self._parameters.max_parallel
        if most and self._in_progress >= most:
            text = f"nodes in progress: {self._in_progress}; maxParallelUpgrades is {most}"
            return SlotRefused(UpgradeReason.MAX_PARALLEL, text)
        is_new = not is_away(recorded)
        if is_new and self._away >= self._limit:
            return SlotRefused(UpgradeReason.MAX_UNAVAILABLE, self._no_slot_text())
        self._in_progress += 1
        self._away += is_new
        return SlotGranted()

    def left(self) -> int:
        most = self._parameters.max_parallel
        of_nodes = self._limit - self._away
        return max(0, min(of_nodes, most - self._in_progress) if most else of_nodes)

    def _no_slot_text(self) -> str:
        counted = Counter(map(_cause_of, self._before))
        causes = [f"{count} {cause}" for cause, count in sorted(counted.items())]
        if starting := self._away - len(self._before):
            causes.append(f"{starting} starting")
        details = f" ({', '.join(causes)})" if causes else ""
        away = f"nodes away: {self._away}{details}"
        allowed = f"maxUnavailable of {self._parameters.max_unavailable} allows {self._limit}"
        notes = "".join(f"; {note}" for note in self._parameters.notes)
        return f"{away}; {allowed}, nodes in all: {self._total}{notes}"


def _cause_of(recorded: "RecordedNode") -> str:
    """Return why the node is away."""
    if is_in_progress(recorded):
        return "in progress"
    if recorded.state is UpgradeState.UPGRADE_FAILED:
        return "failed"
    return "cordoned" if recorded.node.is_ready else "not ready"
