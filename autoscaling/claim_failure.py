"""Why a NodeClaim came to nothing, from its conditions as they were last seen.

Karpenter deletes a NodeClaim that fails. Lack of capacity leaves no condition, only an Event: without another cause it is
assumed, and the message says so.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

from autoscaling.scaling_model import Failure

if TYPE_CHECKING:
    from autoscaling.scaling_model import ClaimFacts, ShapeParameters

LAUNCH_LIMIT: Final = dt.timedelta(minutes=5)
"""Karpenter's, of a NodeClaim without an instance."""
REGISTRATION_LIMIT: Final = dt.timedelta(minutes=15)
"""Karpenter's, of an instance without a Node."""
_SLACK: Final = dt.timedelta(seconds=30)
"""Slack between a limit and the deletion that is seen, clocks apart."""
_NO_REASON: Final = frozenset({"", "AwaitingReconciliation"})


def claim_failure(
    claim: "ClaimFacts", now: dt.datetime, devices_within: dt.timedelta
) -> tuple[Failure, str]:
    """Return why a NodeClaim is deleted, or overdue, and the message with its cure.

    Args:
        claim: the NodeClaim.
        now: the time.
        devices_within: how long a registered Node may be without devices.
    """
    if claim.registered.is_true:
        return _of_registered(claim, now, devices_within)
    if claim.launched.is_true:
        return _of_launched(claim, now)
    launched = claim.launched
    details = f": {launched.message}" if launched.message else ""
    if Failure.NODE_CLASS_NOT_READY.value in launched.reason:
        text = f"NodeClaim {claim.name}: its NodeClass is not ready{details}; see its conditions"
        return Failure.NODE_CLASS_NOT_READY, text
    if Failure.INSUFFICIENT_CAPACITY.value in launched.reason:
        return Failure.INSUFFICIENT_CAPACITY, f"NodeClaim {claim.name}: no capacity{details}"
    if launched.reason not in _NO_REASON:
        text = f"NodeClaim {claim.name} was not launched: {launched.reason}{details}"
        return Failure.LAUNCH_FAILED, text
    if now - claim.created >= LAUNCH_LIMIT - _SLACK:
        text = f"NodeClaim {claim.name} had no instance within {_minutes(LAUNCH_LIMIT)}: see Karpenter's log"
        return Failure.LAUNCH_TIMEOUT, text
    return (
        Failure.INSUFFICIENT_CAPACITY,
        f"NodeClaim {claim.name} was deleted before its launch; it shows no reason, so that lack of capacity is assumed"
        " (`kubectl get events` has it for an hour)",
    )


def node_pool_hint(shape: "ShapeParameters | None", signal: str) -> str:
    """Return what to look at where an autoscaler does not answer a signal."""
    name = f"NodePool {shape.node_pool}" if shape is not None else "its NodePool"
    return f"check that the autoscaler runs, that {name} allows one more node of this kind, and the Events of pod {signal}"


def _of_launched(claim: "ClaimFacts", now: dt.datetime) -> tuple[Failure, str]:
    if now - (claim.launched.since or claim.created) >= REGISTRATION_LIMIT - _SLACK:
        text = (
            f"the instance of NodeClaim {claim.name} did not register within {_minutes(REGISTRATION_LIMIT)}: check that"
            " its kubelet can join the cluster"
        )
        return Failure.REGISTRATION_TIMEOUT, text
    return Failure.NODE_LOST, f"NodeClaim {claim.name} was deleted before its Node registered"


def _of_registered(
    claim: "ClaimFacts", now: dt.datetime, devices_within: dt.timedelta
) -> tuple[Failure, str]:
    if now - (claim.registered.since or claim.created) >= devices_within - _SLACK:
        text = (
            f"node {claim.node} of NodeClaim {claim.name} had no devices within {_minutes(devices_within)}: check the"
            f" driver and the agent of the nodes of NodePool {claim.node_pool}; a driver that is compiled there needs"
            " spec.autoscaling.driverMinutes of the pool"
        )
        return Failure.NO_DEVICES, text
    return (
        Failure.NODE_LOST,
        f"node {claim.node} of NodeClaim {claim.name} is removed before its devices came",
    )


def _minutes(span: dt.timedelta) -> str:
    return f"{int(span.total_seconds() // 60)} minutes"
