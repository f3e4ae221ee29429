"""Pods and processes on a node that keep the driver from being unloaded, and what becomes of each.

A pod is evicted, or leaves by the label of its DaemonSet, or holds the driver for good: then it is named, and nothing else
is evicted in vain.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import DRAIN_SKIP_LABEL
from api.text import listed
from operands.upgrade.actions import EvictPod
from operands.upgrade.facts import DriverUse, EvictionAnswer, PodOwner
from operands.upgrade.parameters import EvictionLimits
from operands.upgrade.reasons import UpgradeReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operands.upgrade.facts import PodOnNode, UpgradeNode
    from operands.upgrade.parameters import AwaitedPods

_ALL: Final = EvictionLimits(force=True, delete_empty_dir=True)
_UNDRAINED: Final = frozenset({PodOwner.DAEMON_SET, PodOwner.MIRROR})


@final
@dataclass(frozen=True, slots=True)
class Occupants:
    """What is to leave the node before the driver can be replaced."""

    evictable: "tuple[PodOnNode, ...]" = ()
    """Pods in the order of eviction: lowest priority first."""
    leaving: "tuple[PodOnNode, ...]" = ()
    """Terminating, over with processes left, or not to be evicted: their end is waited for."""
    holders: tuple[str, ...] = ()
    """What cannot be evicted, each with its cause."""

    @property
    def is_none(self) -> bool:
        return not (self.evictable or self.leaving or self.holders)

    def names(self) -> str:
        return listed(pod.ref for pod in (*self.evictable, *self.leaving))


def users_of(node: "UpgradeNode") -> "list[PodOnNode]":
    """Return the pods that use the driver, but for driver pods, and those that leave by a label."""
    drivers = {pod.uid for pod in node.driver_pods}
    return [
        pod
        for pod in node.identified_pods
        if pod.uses
        and not pod.is_agent
        and not pod.deploy_label
        and pod.uid not in drivers
        and (pod.is_active or DriverUse.OPEN in pod.uses)
    ]


def operands_of(node: "UpgradeNode") -> "list[PodOnNode]":
    """Return the pods with the driver open that leave by the deploy label of their DaemonSet."""
    drivers = {pod.uid for pod in node.driver_pods}
    return [
        pod
        for pod in node.identified_pods
        if pod.uses and pod.deploy_label and not pod.is_agent and pod.uid not in drivers
    ]


def lasting_holders(node: "UpgradeNode") -> tuple[str, ...]:
    """Return what holds the driver and neither an eviction nor a drain takes from the node, each with its cause."""
    pods = [pod for pod in users_of(node) if pod.owner in _UNDRAINED]
    return (*_occupants(pods, _ALL).holders, *_processes(node))


def occupants_for_deletion(node: "UpgradeNode", limits: EvictionLimits | None) -> Occupants:
    """Return the users of the driver; without limits no pod is evicted, and the end of each is waited for."""
    if limits is None:
        found = _occupants(users_of(node), _ALL)
        found = Occupants((), (*found.evictable, *found.leaving), found.holders)
    else:
        found = _occupants(users_of(node), limits)
    return Occupants(found.evictable, found.leaving, (*found.holders, *_processes(node)))


def _processes(node: "UpgradeNode") -> tuple[str, ...]:
    return tuple(f"{process.ref}, in no pod: stop it on the node" for process in node.processes)


def occupants_for_drain(node: "UpgradeNode", limits: EvictionLimits) -> Occupants:
    """Return the pods that a drain evicts, whether they use the driver or not."""
    drivers = {pod.uid for pod in node.driver_pods}
    selected = [
        pod
        for pod in node.identified_pods
        if pod.is_active
        and not pod.is_agent
        and pod.uid not in drivers
        and pod.owner not in _UNDRAINED
        and pod.labels.get(DRAIN_SKIP_LABEL) != "true"
        and (limits.selector is None or limits.selector.matches(pod.labels))
    ]
    return _occupants(selected, limits)


def awaited_pods(node: "UpgradeNode", awaited: "AwaitedPods") -> "list[PodOnNode]":
    """Return the active pods whose end is waited for."""
    selector = awaited.selector
    return [
        pod
        for pod in node.identified_pods
        if pod.is_active
        and (pod.pools & awaited.pools or (selector is not None and selector.matches(pod.labels)))
    ]


def evictions(
    node: "UpgradeNode", occupants: Occupants
) -> tuple[tuple[EvictPod, ...], UpgradeReason, str]:
    """Return evictions of the pods whose budgets allow it now, and what is waited for."""
    allowed = [pod for pod in occupants.evictable if pod.eviction is EvictionAnswer.ALLOWED]
    actions = tuple(EvictPod(node.name, pod.namespace, pod.name, pod.uid) for pod in allowed)
    if allowed:
        return actions, UpgradeReason.EVICTING, f"evicts {listed(pod.ref for pod in allowed)}"
    if occupants.evictable:
        first = occupants.evictable[0]
        cause = f": {first.eviction_message}" if first.eviction_message else ""
        names = listed(pod.ref for pod in occupants.evictable)
        return (), UpgradeReason.EVICTION_REFUSED, f"budgets allow no eviction of {names}{cause}"
    return (), UpgradeReason.PODS_TERMINATING, f"waits for the end of {occupants.names()}"


def _occupants(pods: "Sequence[PodOnNode]", limits: EvictionLimits) -> Occupants:
    evictable: list[PodOnNode] = []
    leaving: list[PodOnNode] = []
    holders: list[str] = []
    for pod in pods:
        if pod.is_terminating or not pod.is_active:
            leaving.append(pod)
        elif cause := _obstacle(pod, limits):
            holders.append(f"{pod.ref}, {cause}")
        else:
            evictable.append(pod)
    evictable.sort(key=lambda pod: (pod.priority, pod.namespace, pod.name))
    return Occupants(tuple(evictable), tuple(leaving), tuple(sorted(holders)))


def _obstacle(pod: "PodOnNode", limits: EvictionLimits) -> str:
    """Return why the pod is not evicted however long it is waited for; empty where it is."""
    if pod.owner is PodOwner.DAEMON_SET:
        return "of a DaemonSet without a deploy label: exclude the node in its node selector"
    if pod.owner is PodOwner.MIRROR:
        return "a static pod: remove its manifest from the node"
    if pod.owner is PodOwner.NONE and not limits.force:
        return "that no controller creates again: delete it, or set force"
    if pod.has_empty_dir and not limits.delete_empty_dir:
        return "with an emptyDir: delete it, or set deleteEmptyDir"
    return ""
