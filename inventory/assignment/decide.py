"""Assignment of all devices of a node to pools, and the action for each device.

All devices of a node are decided at once, because `maxDevicesPerNode` is about all of them. The first rule
that applies decides (docs/design/0005-from-slot-to-pool.md):

1. A device belongs to the pool in `status.poolRef`, and to no other pool until that field is empty.
2. Its annotation names the pool it is for. Without one, an owner that takes devices without an annotation, and
   still approves of this one, keeps it; a free device is for the oldest pool that approves of it.
3. A pool keeps and takes at most `maxDevicesPerNode` devices of a node: those that it has come first, then the
   order is that of PCI addresses. A draining device counts until it is released.
4. A device that its pool no longer wants drains: it is not allocated, and is released once it is unused. It is
   released only while its object says that it drains, so that every other decision sees that first.
5. A device of a pool that exists and cannot be read stays as it is, and is taken by no other pool.
6. An unsupported or misconfigured pool takes nothing and keeps its devices. Only a free device waits for the
   node's readiness, its own facts and its health, and then for NVIDIA's own device plugin to leave the node and for
   pods that have the device by it: two plugins would give one device to two pods.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.names import ASSIGNMENT_ANNOTATION, PoolName
from api.text import listed
from inventory.assignment.eligibility import (
    AssignmentObstacle,
    Reason,
    decided_by,
    exclusion_obstacles,
    incomplete,
    is_approved,
    node_selector_obstacles,
    pool_not_found,
    selector_obstacles,
    terminating,
    validity_obstacles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName, NodeName
    from inventory.assignment.candidates import PoolCandidates


class Action(Enum):
    """The change of a device's poolRef."""

    CLAIM = "claim"
    """Write the new owner, on the condition that there is none yet."""
    KEEP = "keep"
    DRAIN = "drain"
    """It leaves its owner: it is not allocated, its object says so, and it waits until it is unused."""
    RELEASE = "release"
    """It drains and is unused: remove the owner."""
    NOTHING = "nothing"
    """It stays free."""
    HOLD = "hold"
    """Its pool cannot be read: everything of the device stays as it is, draining or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node, as the decision needs it."""

    node: "NodeName"
    devices: "Sequence[GPUDevice]"
    """All devices of the node, in any order."""
    labels: "Mapping[str, str] | None"
    """Labels of the Node; None while the Node is unknown."""
    unready: str = ""
    """Why the node is not ready for pooling; empty for a ready node, and without readiness checks."""
    duplicates: "AbstractSet[DeviceName]" = frozenset()
    """Devices with the UUID of another device."""
    users: "Mapping[DeviceName, AbstractSet[str]]" = field(default_factory=dict)
    """Device -> resources of the pods and reservations with a unit of it."""
    plugin: str = ""
    """Why NVIDIA's own device plugin may give a device of the node to a pod; empty: it does not."""
    plugin_users: "Mapping[DeviceName, AbstractSet[str]]" = field(default_factory=dict)
    """Device -> pods to which NVIDIA's own device plugin gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on one device."""

    device: "DeviceName"
    action: Action
    owner: PoolName | None
    """The pool in poolRef once the action is done."""
    meant_for: PoolName | None
    """The pool that will have it: the owner, or the pool that waits for it."""
    reason: Reason
    message: str
    """Text for the condition; stable while nothing changes."""
    contenders: tuple[PoolName, ...] = ()
    """Pools that want it while another pool has it."""
    candidates: tuple[PoolName, ...] = ()
    """Pools that would take it now, were it annotated with them: it waits for nothing else."""
    former_owner: PoolName | None = None
    """The pool that it leaves or has left; None for all other actions."""


def decide(view: NodeView, candidates: "PoolCandidates") -> tuple[Decision, ...]:
    """Decide on all devices of a node; ordered by name, independent of the order of devices and pools."""
    decisions = _NodeDecisions(view, candidates)
    ordered = sorted(view.devices, key=_position)
    found = [decisions.owned(item) for item in ordered if item.status.pool_ref is not None]
    found += [decisions.free(item) for item in ordered if item.status.pool_ref is None]
    devices = {item.name: item for item in ordered}
    completed = [decisions.with_contenders(item, devices[item.device]) for item in found]
    return tuple(sorted(completed, key=lambda item: item.device))


def _position(device: "GPUDevice") -> tuple[str, str]:
    return (device.status.pci.address, device.name)


@final
class _NodeDecisions:
    """One pass over a node's devices."""

    def __init__(self, view: NodeView, candidates: "PoolCandidates") -> None:
        self._view = view
        self._candidates = candidates
        self._open: dict[PoolName, bool] = {}
        # pool -> whether it may take devices of this node
        self._members = Counter(
            PoolName(device.status.pool_ref.name)
            for device in view.devices
            if device.status.pool_ref is not None
        )
        # pool -> its devices, with those that it takes now; draining devices count until they are released
        self._kept: Counter[PoolName] = Counter()

    def owned(self, device: "GPUDevice") -> Decision:
        """Decide on a device in a pool."""
        ref = device.status.pool_ref
        if ref is None:
            raise ValueError(f"device {device.name} is in no pool")
        owner = PoolName(ref.name)
        if owner in self._candidates.unread:
            return _held(device, owner)
        obstacle = self._leaving(device, owner)
        if obstacle is None:
            return _in_pool(device, owner, Action.KEEP)
        is_free = device.is_draining and not self._view.users.get(device.name)
        next_, _ = self._target(device) if not any(exclusion_obstacles(device)) else (None, None)
        return Decision(
            device=device.name,
            action=Action.RELEASE if is_free else Action.DRAIN,
            owner=None if is_free else owner,
            meant_for=next_.name if next_ is not None else None,
            reason=obstacle.reason,
            message=f"leaves pool {owner} once no pod uses it: {obstacle.text}",
            former_owner=owner,
        )

    def free(self, device: "GPUDevice") -> Decision:
        """Decide on a device in no pool."""
        if device.assignment in self._candidates.unread:
            return _held(device, None)
        target, refusal = self._target(device)
        out = list(exclusion_obstacles(device))
        obstacles = [*out, *self._postponements(device, target)]
        if refusal is not None:
            obstacles.append(refusal)
        if target is not None and not obstacles:
            self._members[target.name] += 1
            return _in_pool(device, target.name, Action.CLAIM)
        candidates: tuple[PoolName, ...] = ()
        if {obstacle.reason for obstacle in obstacles} <= _NOT_APPROVED:
            candidates = self._pools_to_approve(device)
        if candidates:
            obstacles = [_awaits_decision(device, candidates)]
        first = min(obstacles, key=lambda obstacle: obstacle.reason.value)
        return Decision(
            device=device.name,
            action=Action.NOTHING,
            owner=None,
            meant_for=target.name if target is not None and not out else None,
            reason=first.reason,
            message=first.text,
            candidates=candidates,
        )

    def with_contenders(self, decision: Decision, device: "GPUDevice") -> Decision:
        """Add the other pools that want the device; called once all decisions have shown which pools have capacity."""
        if decision.owner is None or decision.action is Action.HOLD:
            return decision
        if decision.action is Action.DRAIN:
            waiting = () if decision.meant_for is None else (decision.meant_for,)
            return replace(decision, contenders=waiting)
        contenders = self._contenders(device, decision.owner)
        if not contenders:
            return decision
        message = (
            f"{decision.message}; also selected by {listed(contenders)}: let only one pool select it, or"
            f" annotate it with {ASSIGNMENT_ANNOTATION}"
        )
        return replace(decision, contenders=contenders, message=message)

    def _contenders(self, device: "GPUDevice", owner: PoolName) -> tuple[PoolName, ...]:
        if device.assignment is not None:
            return ()
        return tuple(
            pool.name
            for pool in self._selecting_pools(device)
            if pool.name != owner and self._has_capacity(pool)
        )

    def _leaving(self, device: "GPUDevice", owner: PoolName) -> AssignmentObstacle | None:
        """Return why the owner no longer wants the device; None where it keeps it."""
        pool = self._candidates.pools.get(owner)
        if pool is None:
            gone = AssignmentObstacle(Reason.POOL_NOT_FOUND, "there is no such pool any more")
            return next(exclusion_obstacles(device), gone)
        found = next(self._objections(device, pool), None)
        if found is not None:
            return found
        cap = pool.spec.allocation.max_devices_per_node
        if cap is not None and self._kept[owner] >= cap:
            return _too_many(pool)
        self._kept[owner] += 1
        return None

    def _objections(self, device: "GPUDevice", pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
        yield from exclusion_obstacles(device)
        yield from terminating(pool)
        assignment = device.assignment
        if assignment is not None and assignment != pool.name:
            yield self._reassigned(device)
        elif assignment is None and pool.spec.assignment.require_annotation:
            text = (
                f"it has no annotation {ASSIGNMENT_ANNOTATION}{decided_by(device)}, and the pool takes devices by"
                " annotation only"
            )
            yield AssignmentObstacle(Reason.NO_POOL_WANTS_IT, text)
        elif assignment is None and not is_approved(pool, device):
            text = f"the pool's autoApproveSelector does not match it; annotate it with {ASSIGNMENT_ANNOTATION}"
            yield AssignmentObstacle(Reason.SELECTOR_MISMATCH, text)
        yield from selector_obstacles(pool, device)
        if self._view.labels is not None:
            yield from node_selector_obstacles(pool, self._view.node, self._view.labels)

    def _reassigned(self, device: "GPUDevice") -> AssignmentObstacle:
        """Return why a device leaves an owner that its annotation does not name."""
        target, refusal = self._target(device)
        if refusal is not None:
            return refusal
        name = target.name if target is not None else device.assignment
        return AssignmentObstacle(
            Reason.OWNED_BY_OTHER_POOL,
            f"its annotation assigns it to pool {name}{decided_by(device)}",
        )

    def _target(self, device: "GPUDevice") -> "tuple[GPUPool | None, AssignmentObstacle | None]":
        """Return the pool that the device is for, or the obstacle."""
        if device.assignment is not None:
            return self._annotated_target(device, device.assignment)
        full: GPUPool | None = None
        for pool in self._selecting_pools(device):
            if self._has_capacity(pool):
                return pool, None
            full = full or pool
        if full is not None:
            return None, _too_many(full)
        text = "no valid pool with room selects it and its node: create one, or correct the selectors of one"
        return None, AssignmentObstacle(Reason.NO_POOL_WANTS_IT, text)

    def _annotated_target(
        self, device: "GPUDevice", assignment: str
    ) -> "tuple[GPUPool | None, AssignmentObstacle | None]":
        pool = self._candidates.pools.get(PoolName(assignment))
        if pool is None:
            return None, pool_not_found(assignment)
        obstacles = (
            *self._pool_obstacles(pool),
            *selector_obstacles(pool, device),
            *self._node_obstacles(pool),
            *(() if self._has_capacity(pool) else (_too_many(pool),)),
        )
        if not obstacles:
            return pool, None
        first = obstacles[0]
        return None, AssignmentObstacle(first.reason, f"not in pool {pool.name}: {first.text}")

    def _postponements(
        self, device: "GPUDevice", target: "GPUPool | None"
    ) -> "Iterator[AssignmentObstacle]":
        """Yield the obstacles that a free device waits for."""
        if device.name in self._view.duplicates:
            text = (
                "another GPUDevice had its UUID first: delete the one whose device is gone, or correct"
                " the source that reports it"
            )
            yield AssignmentObstacle(Reason.AMBIGUOUS_UUID, text)
        yield from incomplete(device)
        if device.is_faulted:
            text = "it is faulted (see its condition Healthy): it is assigned once healthy"
            yield AssignmentObstacle(Reason.FAULTED, text)
        if self._view.unready:
            text = f"node {device.node} is not ready for pooling: {self._view.unready}"
            yield AssignmentObstacle(Reason.NODE_NOT_READY_FOR_POOLING, text)
        users = self._view.users.get(device.name, frozenset())
        if target is not None and (others := users - {*target.resources}):
            text = f"pods with {listed(others)} still use it: wait until they end"
            yield AssignmentObstacle(Reason.OWNED_BY_OTHER_POOL, text)
        if target is not None and self._view.plugin:
            yield AssignmentObstacle(Reason.OTHER_PLUGIN, self._view.plugin)
        if target is not None and (pods := self._view.plugin_users.get(device.name)):
            text = f"pods {listed(pods)} have it by NVIDIA's device plugin: it joins pool {target.name} once they end"
            yield AssignmentObstacle(Reason.OTHER_PLUGIN, text)

    def _pool_obstacles(self, pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
        yield from terminating(pool)
        yield from validity_obstacles(self._candidates.validity_of(pool.name))

    def _node_obstacles(self, pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
        if self._view.labels is not None:
            yield from node_selector_obstacles(pool, self._view.node, self._view.labels)
        elif pool.spec.node_selector is not None:
            text = f"node {self._view.node} is unknown, and the pool has a nodeSelector"
            yield AssignmentObstacle(Reason.NODE_SELECTOR_MISMATCH, text)

    def _selecting_pools(self, device: "GPUDevice") -> "Iterator[GPUPool]":
        """Yield the valid pools that take the device without an annotation, with or without capacity."""
        for pool in self._open_pools(device):
            if is_approved(pool, device):
                yield pool

    def _pools_to_approve(self, device: "GPUDevice") -> tuple[PoolName, ...]:
        """Return the valid pools with room that select the free device, and that do not take it by themselves."""
        if device.assignment is not None:
            return ()
        return tuple(
            pool.name
            for pool in self._open_pools(device)
            if not is_approved(pool, device) and self._has_capacity(pool)
        )

    def _open_pools(self, device: "GPUDevice") -> "Iterator[GPUPool]":
        """Yield the valid pools that select device and node."""
        for pool in self._candidates.matching(device):
            is_open = self._open.get(pool.name)
            if is_open is None:
                obstacles = (*self._pool_obstacles(pool), *self._node_obstacles(pool))
                is_open = self._open[pool.name] = not obstacles
            if is_open:
                yield pool

    def _has_capacity(self, pool: "GPUPool") -> bool:
        cap = pool.spec.allocation.max_devices_per_node
        return cap is None or self._members[pool.name] < cap


def _in_pool(device: "GPUDevice", pool: PoolName, action: Action) -> Decision:
    way = (
        f"by its annotation {ASSIGNMENT_ANNOTATION}{decided_by(device)}"
        if device.assignment is not None
        else "which takes devices without an annotation"
    )
    return Decision(
        device=device.name,
        action=action,
        owner=pool,
        meant_for=pool,
        reason=Reason.ASSIGNED,
        message=f"in pool {pool}, {way}",
    )


_NOT_APPROVED: Final = frozenset({Reason.NO_POOL_WANTS_IT, Reason.MAX_DEVICES_PER_NODE})
"""Obstacles of a device that waits for a decision alone: no pool takes it by itself, or has capacity for it."""


def _awaits_decision(device: "GPUDevice", candidates: tuple[PoolName, ...]) -> AssignmentObstacle:
    text = (
        f"selected by {listed(candidates)}; waits for a decision: `kubectl gpu approve {device.name}"
        f" {candidates[0]}`, or annotate it with {ASSIGNMENT_ANNOTATION}={candidates[0]}"
    )
    return AssignmentObstacle(Reason.AWAITS_DECISION, text)


def _held(device: "GPUDevice", owner: PoolName | None) -> Decision:
    assigned = None if device.assignment is None else PoolName(device.assignment)
    return Decision(
        device=device.name,
        action=Action.HOLD,
        owner=owner,
        meant_for=assigned or owner,
        reason=Reason.POOL_NOT_FOUND if owner is None else Reason.ASSIGNED,
        message="its pool exists, and cannot be read by this version",
    )


def _too_many(pool: "GPUPool") -> AssignmentObstacle:
    cap = pool.spec.allocation.max_devices_per_node
    text = f"pool {pool.name} takes at most {cap} devices per node: raise its allocation.maxDevicesPerNode"
    return AssignmentObstacle(Reason.MAX_DEVICES_PER_NODE, text)
