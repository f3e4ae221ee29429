"""What others left in a pod's conditions: kube-scheduler's refusal, and the leader's word on units."""

from typing import TYPE_CHECKING, Final

from api.names import UNITS_CONDITION

if TYPE_CHECKING:
    from api.foreign.core import Pod, PodCondition

_SCHEDULED: Final = "PodScheduled"


def scheduler_words(pod: "Pod") -> str:
    """Return what kube-scheduler said when it last refused the pod; empty where it did not."""
    found = _condition(pod, _SCHEDULED)
    return found.message if found is not None and found.status == "False" else ""


def leader_words(pod: "Pod") -> "PodCondition | None":
    """Return what the leader says of the pod's units; None where it has not spoken."""
    return _condition(pod, UNITS_CONDITION)


def _condition(pod: "Pod", type_: str) -> "PodCondition | None":
    return next(
        (condition for condition in pod.status.conditions or () if condition.type == type_), None
    )
