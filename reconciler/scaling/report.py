"""The ScalingView as JSON for a person: `/debug/scale`.

The figures of a whole pool are complete; lists that grow with the number of pods are cut, and say so.
"""

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from api.names import PodUid
    from autoscaling.scaling_model import ScalingPlan
    from reconciler.scaling.view import PoolScaling, ScalingView

    PodName = Callable[[PodUid], str]

MOST_ENTRIES: Final = 100
"""Entries of each list."""


def scaling_report(view: "ScalingView", pod_name: "PodName") -> bytes:
    """Return what was seen, planned and asked for; `pod_name` names a pod for a person."""
    pools = [_pool(view.pools[name], pod_name) for name in sorted(view.pools)]
    return msgspec.json.encode({"leading": True, "pools": pools}, enc_hook=_encodable)


def _pool(seen: "PoolScaling", pod_name: "PodName") -> dict[str, Any]:
    supply, parameters = seen.supply, seen.parameters
    return {
        "name": parameters.pool.name,
        "at": seen.at,
        "terms": parameters,
        "backendFault": supply.backend_fault,
        "nodePoolFaults": supply.node_pool_faults,
        "requests": _listed(seen.observed),
        "plan": _plan(seen.plan, pod_name),
        "history": _listed(seen.history),
        "money": {
            "perHourNowMicro": supply.running_micro,
            "spentTodayMicro": supply.spent_today_micro,
            "limitPerHourMicro": parameters.per_hour_micro,
            "limitPerDayMicro": parameters.per_day_micro,
        },
    }


def _plan(plan: "ScalingPlan", pod_name: "PodName") -> dict[str, Any]:
    def pods(uids: "Iterable[PodUid]") -> dict[str, Any]:
        return _listed([pod_name(uid) for uid in uids])

    return {
        "new": _listed(
            [
                {
                    "id": request.id,
                    "shape": request.shape.name,
                    "pods": pods(request.pods),
                }
                for request in plan.requests
            ]
        ),
        "assigned": _listed(
            [{"id": id_, "pods": pods(uids)} for id_, uids in sorted(plan.assigned.items())]
        ),
        "cancels": _listed(plan.cancels),
        "waitsByReason": Counter(wait.reason.value for wait in plan.waits.values()),
        "waits": _listed(
            [
                {"pod": pod_name(uid), "reason": wait.reason, "message": wait.message}
                for uid, wait in islice(plan.waits.items(), MOST_ENTRIES)
            ],
            count=len(plan.waits),
        ),
        "warmWait": plan.warm_wait,
    }


def _listed(entries: "tuple[Any, ...] | list[Any]", count: int | None = None) -> dict[str, Any]:
    return {
        "count": len(entries) if count is None else count,
        "shown": list(entries[:MOST_ENTRIES]),
    }


def _encodable(value: "Mapping[Any, Any]") -> dict[Any, Any]:
    """Return a mapping that msgspec does not know, such as a mapping proxy, as one that it does."""
    return dict(value)
