"""Events of assignment: one for each change, and one for a device or node that stays idle.

An Event of a change accompanies its write, so that the device's conditions show which ones were recorded.
Idle devices: one Event when the grace period ends; not repeated after a restart.
"""

import math
from typing import TYPE_CHECKING, Final, final

from api.names import ASSIGNMENT_ANNOTATION
from api.status_conditions import parse_time
from inventory.assignment.decide import Action
from inventory.assignment.eligibility import Reason
from kube.event_recorder import ObjectReference
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from reconciler.assignment.status import current_condition, text_of
from reconciler.assignment.view import readiness_of
from telemetry.conditions import DeviceAssigned, DeviceCondition
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from api.clock import Instant
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.meta import Condition
    from api.names import NodeName
    from inventory.assignment.decide import Decision
    from kube.event_recorder import EventRecorder

ACTION: Final = "Assign"
GRACE_S: Final = 300.0
"""A device that is new, or just released, may be without a pool for so long before it is reported."""
_REPORTED: Final = -math.inf
"""The end of a grace period that is over and reported."""

_WAITS: Final = frozenset(
    {
        Reason.INVENTORY_INCOMPLETE,
        Reason.NODE_NOT_READY_FOR_POOLING,
        Reason.OWNED_BY_OTHER_POOL,
        Reason.OTHER_PLUGIN,
    }
)
"""Transient reasons: the annotation is valid."""
_UNDECIDED: Final = frozenset(
    {DeviceAssigned.NO_POOL_WANTS_IT.value, DeviceAssigned.AWAITS_DECISION.value}
)


@final
class AssignmentEvents:
    """Records Events of devices, and of nodes without a pool."""

    def __init__(self, recorder: "EventRecorder", now: "Callable[[], Instant]") -> None:
        self._recorder = recorder
        self._now = now
        self._waiting: dict[NodeName, dict[str, float]] = {}
        # node -> uid of an idle object -> end of its grace period in monotonic seconds, at the last reconcile

    def record(self, device: "GPUDevice", decision: "Decision") -> None:
        """Record a decision that was just written; `device` is the object before the write."""
        regarding, current = ObjectReference.to(GPU_DEVICES, device.metadata), _assigned(device)
        reason, text = DeviceAssigned[decision.reason.name].value, text_of(decision)
        is_new = current is None or (current.reason, current.message) != (reason, text)
        match decision.action:
            case Action.CLAIM:
                self._recorder.normal(regarding, EventReason.DEVICE_ASSIGNED, text, action=ACTION)
            case Action.RELEASE:
                note = f"has left pool {decision.former_owner}"
                self._recorder.normal(regarding, EventReason.DEVICE_RELEASED, note, action=ACTION)
            case Action.DRAIN:
                if is_new:
                    self._recorder.normal(
                        regarding, EventReason.DEVICE_DRAINING, text, action=ACTION
                    )
            case Action.NOTHING:
                if is_new and device.assignment is not None and decision.reason not in _WAITS:
                    self._recorder.warning(
                        regarding, EventReason.ANNOTATION_MISMATCH, text, action=ACTION
                    )
            case Action.KEEP | Action.HOLD:
                pass
        if decision.contenders and is_new:
            self._recorder.warning(regarding, EventReason.ASSIGNMENT_CONFLICT, text, action=ACTION)

    def check_idle(
        self,
        node: "NodeName",
        inventory: "GPUNodeInventory | None",
        devices: "Sequence[GPUDevice]",
    ) -> float | None:
        """Record objects that are idle for `GRACE_S`; return the seconds until the next pass, if any."""
        waited = self._waiting.pop(node, {})
        due = [self._check_device(device, waited) for device in devices]
        if inventory is not None:
            due.append(self._check_node(inventory, devices, waited))
        uids = {device.metadata.uid for device in devices}
        if inventory is not None:
            uids.add(inventory.metadata.uid)
        if waits := {uid: end for uid, end in waited.items() if uid in uids}:
            self._waiting[node] = waits
        return min((item for item in due if item is not None), default=None)

    def _check_device(self, device: "GPUDevice", waiting: dict[str, float]) -> float | None:
        condition = _assigned(device)
        if (
            condition is None
            or condition.status == "True"
            or condition.reason not in _UNDECIDED
            or device.status.pool_ref is not None
        ):
            waiting.pop(device.metadata.uid, None)
            return None
        left_s = self._remaining_s(device.metadata.uid, [condition], waiting)
        if left_s == 0:
            self._recorder.warning(
                ObjectReference.to(GPU_DEVICES, device.metadata),
                EventReason.UNASSIGNED_DEVICE,
                condition.message,
                action=ACTION,
            )
        return left_s or None

    def _check_node(
        self,
        inventory: "GPUNodeInventory",
        devices: "Sequence[GPUDevice]",
        waiting: dict[str, float],
    ) -> float | None:
        readiness = readiness_of(inventory)
        is_without = bool(devices) and all(device.status.pool_ref is None for device in devices)
        if readiness is None or readiness.status != "True" or not is_without:
            waiting.pop(inventory.metadata.uid, None)
            return None
        conditions = [item for item in map(_assigned, devices) if item is not None]
        left_s = self._remaining_s(inventory.metadata.uid, [readiness, *conditions], waiting)
        if left_s == 0:
            text = (
                "the node is ready and none of its devices is in a pool: annotate them with"
                f" {ASSIGNMENT_ANNOTATION}=<pool>, or let a pool select them without an annotation"
            )
            reference = ObjectReference.to(GPU_NODE_INVENTORIES, inventory.metadata)
            self._recorder.warning(reference, EventReason.NODE_WITHOUT_POOL, text, action=ACTION)
        return left_s or None

    def _remaining_s(
        self, uid: str, conditions: "Iterable[Condition]", waiting: dict[str, float]
    ) -> float | None:
        """Return the seconds that are left of an idle object's grace period; 0 once when it ends, then None."""
        now = self._now()
        times = (parse_time(condition.last_transition_time) for condition in conditions)
        since = max((at or now.utc for at in times), default=now.utc)
        left_s = GRACE_S - (now.utc - since).total_seconds()
        if left_s > GRACE_S:  # a clock that was ahead wrote it
            left_s = waiting.get(uid, now.monotonic + GRACE_S) - now.monotonic
        if left_s > 0:
            waiting[uid] = now.monotonic + left_s
            return left_s
        if waiting.get(uid, _REPORTED) == _REPORTED:
            return None
        waiting[uid] = _REPORTED
        return 0


def _assigned(device: "GPUDevice") -> "Condition | None":
    return current_condition(device, DeviceCondition.ASSIGNED)
