"""Conditions of a pod that other components write: kube-scheduler's refusal, and the leader's condition on units."""

from typing import TYPE_CHECKING, Final

from api.names import UNITS_CONDITION

if TYPE_CHECKING:
    from api.foreign.core import Pod, PodCondition

_SCHEDULED: Final = "PodScheduled"


def scheduler_refusal(pod: "Pod") -> str:
    """Return the message with which kube-scheduler last refused the pod; empty where it did not."""
    found = _condition(pod, _SCHEDULED)
    return found.message if found is not None and found.status == "False" else ""


def leader_condition(pod: "Pod") -> "PodCondition | None":
    """Return the leader's condition on the pod's units; None where it has written none."""
    return _condition(pod, UNITS_CONDITION)


def _condition(pod: "Pod", type_: str) -> "PodCondition | None":
    return next(
        (condition for condition in pod.status.conditions or () if condition.type == type_), None
    )
