"""Which pool each device of a node belongs to, and what is to be done about it.

All devices of a node are decided on at once, because `maxDevicesPerNode` is about all of them. The rules, of
which the first that applies decides (docs/design/0005-from-slot-to-pool.md):

1. A device belongs to whom `status.poolRef` names, and to nobody else until that is empty.
2. Its annotation says which pool it is for. Without one, an owner that takes devices without an annotation,
   and still approves of this one, keeps it; a free device is for the oldest pool that approves of it.
3. A pool keeps and takes at most `maxDevicesPerNode` devices of a node: those that it has stay first, then the
   order is that of PCI addresses. A device on its way out counts until it is gone.
4. What its pool does not want any more drains: nothing of it is given out, and once nobody uses it, it is
   released. It is released only while its object says that it drains: whoever else decides knows it then.
5. A pool that is unsupported or misconfigured takes nothing and keeps what it has. Only what is not in a pool
   waits for the node's readiness, its own facts and its health.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, final

from api.names import ASSIGNMENT_ANNOTATION, PoolName
from api.text import listed
from inventory.assignment.eligibility import (
    AssignmentObstacle,
    Reason,
    incomplete,
    is_approved,
    kept_out,
    off_limits,
    pool_not_found,
    terminating,
    unselected,
    unsound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import DeviceName, NodeName
    from inventory.assignment.candidates import PoolCandidates


class Action(Enum):
    """What is to be done with a device's poolRef."""

    CLAIM = "claim"
    """Write the new owner, if nobody else has meanwhile."""
    KEEP = "keep"
    DRAIN = "drain"
    """It leaves its owner: give out nothing of it, say so, and wait until nobody uses it."""
    RELEASE = "release"
    """It drains, and nobody uses it: take the owner off."""
    NOTHING = "nothing"
    """It is free and stays free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What is known of a node when its devices are decided on."""

    node: "NodeName"
    devices: "Sequence[GPUDevice]"
    """All of the node, in any order."""
    labels: "Mapping[str, str] | None"
    """Of the Node; None while it is not known."""
    unready: str = ""
    """Why the node is not ready for pooling; empty where it is, or nobody judges that."""
    duplicates: "AbstractSet[DeviceName]" = frozenset()
    """Devices that show a UUID of another one."""
    users: "Mapping[DeviceName, AbstractSet[str]]" = field(default_factory=dict)
    """Device -> resources of the pods and reservations that have a unit of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is decided on one device."""

    device: "DeviceName"
    action: Action
    owner: PoolName | None
    """Whose it is once the action is done."""
    meant_for: PoolName | None
    """The pool that will have it as things are: the owner, or the one that waits for it."""
    reason: Reason
    message: str
    """For people; it stays the same while nothing changes."""
    contenders: tuple[PoolName, ...] = ()
    """Pools that want it, and cannot have it because it is another's."""
    loser: PoolName | None = None
    """The pool that it leaves, or has left; None for all other actions."""


def decide(view: NodeView, candidates: "PoolCandidates") -> tuple[Decision, ...]:
    """Decide on all devices of a node; by name, whatever the order of devices and pools."""
    deciding = _Deciding(view, candidates)
    ordered = sorted(view.devices, key=_position)
    found = [deciding.owned(one) for one in ordered if one.status.pool_ref is not None]
    found += [deciding.free(one) for one in ordered if one.status.pool_ref is None]
    devices = {one.name: one for one in ordered}
    told = [deciding.with_contenders(one, devices[one.device]) for one in found]
    return tuple(sorted(told, key=lambda one: one.device))


def _position(device: "GPUDevice") -> tuple[str, str]:
    return (device.status.pci.address, device.name)


@final
class _Deciding:
    """One pass over a node's devices."""

    def __init__(self, view: NodeView, candidates: "PoolCandidates") -> None:
        self._view = view
        self._candidates = candidates
        self._open: dict[PoolName, bool] = {}
        # pool -> may it take devices of this node
        self._members = Counter(
            PoolName(one.status.pool_ref.name)
            for one in view.devices
            if one.status.pool_ref is not None
        )
        # pool -> devices that it has, or is about to have; those that leave are in it until they are gone
        self._kept: Counter[PoolName] = Counter()

    def owned(self, device: "GPUDevice") -> Decision:
        """Decide on a device that is in a pool."""
        ref = device.status.pool_ref
        if ref is None:
            raise ValueError(f"device {device.name} is in no pool")
        owner = PoolName(ref.name)
        obstacle = self._leaving(device, owner)
        if obstacle is None:
            return _in_pool(device, owner, Action.KEEP)
        is_free = device.is_draining and not self._view.users.get(device.name)
        next_, _ = self._target(device) if not any(kept_out(device)) else (None, None)
        return Decision(
            device=device.name,
            action=Action.RELEASE if is_free else Action.DRAIN,
            owner=None if is_free else owner,
            meant_for=next_.name if next_ is not None else None,
            reason=obstacle.reason,
            message=f"leaves pool {owner} once no pod uses it: {obstacle.text}",
            loser=owner,
        )

    def free(self, device: "GPUDevice") -> Decision:
        """Decide on a device that is in no pool."""
        target, refusal = self._target(device)
        out = list(kept_out(device))
        obstacles = [*out, *self._not_yet(device, target)]
        if refusal is not None:
            obstacles.append(refusal)
        if target is not None and not obstacles:
            self._members[target.name] += 1
            return _in_pool(device, target.name, Action.CLAIM)
        first = min(obstacles, key=lambda one: one.reason.value)
        return Decision(
            device=device.name,
            action=Action.NOTHING,
            owner=None,
            meant_for=target.name if target is not None and not out else None,
            reason=first.reason,
            message=first.text,
        )

    def with_contenders(self, decision: Decision, device: "GPUDevice") -> Decision:
        """Say who else wants the device; asked when everything is decided, and it is known who has room."""
        if decision.owner is None:
            return decision
        if decision.action is Action.DRAIN:
            waiting = () if decision.meant_for is None else (decision.meant_for,)
            return replace(decision, contenders=waiting)
        contenders = self._contenders(device, decision.owner)
        if not contenders:
            return decision
        message = (
            f"{decision.message}; {listed(contenders)} would take it, too: let only one pool select it, or"
            f" annotate it with {ASSIGNMENT_ANNOTATION}"
        )
        return replace(decision, contenders=contenders, message=message)

    def _contenders(self, device: "GPUDevice", owner: PoolName) -> tuple[PoolName, ...]:
        if device.assignment is not None:
            return ()
        return tuple(
            pool.name
            for pool in self._takers(device)
            if pool.name != owner and self._has_room(pool)
        )

    # --- what speaks against it ----------------------------------------------------------------

    def _leaving(self, device: "GPUDevice", owner: PoolName) -> AssignmentObstacle | None:
        """Return why the owner does not want the device any more."""
        pool = self._candidates.pools.get(owner)
        if pool is None:
            gone = AssignmentObstacle(Reason.POOL_NOT_FOUND, "there is no such pool any more")
            return next(kept_out(device), gone)
        found = next(self._objections(device, pool), None)
        if found is not None:
            return found
        cap = pool.spec.allocation.max_devices_per_node
        if cap is not None and self._kept[owner] >= cap:
            return _too_many(pool)
        self._kept[owner] += 1
        return None

    def _objections(self, device: "GPUDevice", pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
        yield from kept_out(device)
        yield from terminating(pool)
        assignment = device.assignment
        if assignment is not None and assignment != pool.name:
            yield self._moved(device)
        elif assignment is None and pool.spec.assignment.require_annotation:
            text = (
                f"it has no annotation {ASSIGNMENT_ANNOTATION}, and the pool takes devices by"
                " annotation only"
            )
            yield AssignmentObstacle(Reason.NO_POOL_WANTS_IT, text)
        elif assignment is None and not is_approved(pool, device):
            text = f"the pool's autoApproveSelector does not match it; annotate it with {ASSIGNMENT_ANNOTATION}"
            yield AssignmentObstacle(Reason.SELECTOR_MISMATCH, text)
        yield from unselected(pool, device)
        if self._view.labels is not None:
            yield from off_limits(pool, self._view.node, self._view.labels)

    def _moved(self, device: "GPUDevice") -> AssignmentObstacle:
        """Return why a device leaves whose annotation names another pool than its owner."""
        target, refusal = self._target(device)
        if refusal is not None:
            return refusal
        name = target.name if target is not None else device.assignment
        return AssignmentObstacle(
            Reason.OWNED_BY_OTHER_POOL, f"pool {name} has it after that, as annotated"
        )

    def _target(self, device: "GPUDevice") -> "tuple[GPUPool | None, AssignmentObstacle | None]":
        """Return the pool that the device is for, or why there is none."""
        if device.assignment is not None:
            return self._annotated_target(device, device.assignment)
        full: GPUPool | None = None
        for pool in self._takers(device):
            if self._has_room(pool):
                return pool, None
            full = full or pool
        if full is not None:
            return None, _too_many(full)
        text = f"no pool takes it by itself: annotate it with {ASSIGNMENT_ANNOTATION}=<pool>"
        return None, AssignmentObstacle(Reason.NO_POOL_WANTS_IT, text)

    def _annotated_target(
        self, device: "GPUDevice", assignment: str
    ) -> "tuple[GPUPool | None, AssignmentObstacle | None]":
        pool = self._candidates.pools.get(PoolName(assignment))
        if pool is None:
            return None, pool_not_found(assignment)
        obstacles = (
            *self._against(pool),
            *unselected(pool, device),
            *self._node_against(pool),
            *(() if self._has_room(pool) else (_too_many(pool),)),
        )
        if not obstacles:
            return pool, None
        first = obstacles[0]
        return None, AssignmentObstacle(first.reason, f"not in pool {pool.name}: {first.text}")

    def _not_yet(
        self, device: "GPUDevice", target: "GPUPool | None"
    ) -> "Iterator[AssignmentObstacle]":
        """Yield what a free device has to wait for."""
        if device.name in self._view.duplicates:
            text = (
                "another device had its UUID first: delete the GPUDevice of the two whose card is not"
                " there, or correct what reports it"
            )
            yield AssignmentObstacle(Reason.AMBIGUOUS_UUID, text)
        yield from incomplete(device)
        if device.is_faulted:
            text = "it is faulted (see its condition Healthy): it is assigned once it is healthy"
            yield AssignmentObstacle(Reason.FAULTED, text)
        if self._view.unready:
            text = f"node {device.node} is not ready for pooling: {self._view.unready}"
            yield AssignmentObstacle(Reason.NODE_NOT_READY_FOR_POOLING, text)
        users = self._view.users.get(device.name, frozenset())
        if target is not None and (others := users - {target.resource_name}):
            text = f"pods that were given {listed(others)} still use it: wait until they end"
            yield AssignmentObstacle(Reason.OWNED_BY_OTHER_POOL, text)

    def _against(self, pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
        yield from terminating(pool)
        yield from unsound(self._candidates.verdicts(pool.name))

    def _node_against(self, pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
        if self._view.labels is not None:
            yield from off_limits(pool, self._view.node, self._view.labels)
        elif pool.spec.node_selector is not None:
            text = f"node {self._view.node} is not known, and the pool has a nodeSelector"
            yield AssignmentObstacle(Reason.NODE_SELECTOR_MISMATCH, text)

    def _takers(self, device: "GPUDevice") -> "Iterator[GPUPool]":
        """Yield the pools that take the device without an annotation, be there room or not."""
        for pool in self._candidates.takers(device):
            is_open = self._open.get(pool.name)
            if is_open is None:
                obstacles = (*self._against(pool), *self._node_against(pool))
                is_open = self._open[pool.name] = not obstacles
            if is_open:
                yield pool

    def _has_room(self, pool: "GPUPool") -> bool:
        cap = pool.spec.allocation.max_devices_per_node
        return cap is None or self._members[pool.name] < cap


def _in_pool(device: "GPUDevice", pool: PoolName, action: Action) -> Decision:
    way = (
        f"as its annotation {ASSIGNMENT_ANNOTATION} says"
        if device.assignment is not None
        else "which takes it without an annotation"
    )
    return Decision(
        device=device.name,
        action=action,
        owner=pool,
        meant_for=pool,
        reason=Reason.ASSIGNED,
        message=f"in pool {pool}, {way}",
    )


def _too_many(pool: "GPUPool") -> AssignmentObstacle:
    cap = pool.spec.allocation.max_devices_per_node
    text = f"pool {pool.name} takes {cap} devices of a node at most: raise its allocation.maxDevicesPerNode"
    return AssignmentObstacle(Reason.MAX_DEVICES_PER_NODE, text)
