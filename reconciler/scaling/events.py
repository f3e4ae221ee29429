"""Texts of the Events of autoscaling. Pure: controllers record them on the waiting pods and on the pool."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from api.text import listed, truncate
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from api.names import PoolName
    from autoscaling import scaling_model
    from kube.event_recorder import EventRecorder, ObjectReference
    from pool.model import PodSelection

ACTION: Final = "Scale"


@final
@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """An Event about a request for a node."""

    reason: EventReason
    note: str
    is_warning: bool = False

    def record(self, recorder: "EventRecorder", regarding: "ObjectReference") -> None:
        """Record it on an object; a repeat within ten minutes is a count on the first one."""
        emit = recorder.warning if self.is_warning else recorder.normal
        emit(regarding, self.reason, self.note, action=ACTION)


def node_requested(request: "scaling_model.NodeRequest") -> ScalingEvent:
    shape = request.shape
    note = (
        f"pool {request.pool} asks for a node of shape {shape.name} ({_devices(shape.devices)}, NodePool"
        f" {shape.node_pool}): request {request.id}"
    )
    return ScalingEvent(EventReason.NODE_REQUESTED, note)


def node_awaited(request: "scaling_model.ObservedRequest") -> ScalingEvent:
    """Return the Event of a pod that gets units of a node that was asked for before."""
    claim = request.claim
    progress = f", NodeClaim {claim.name}" if claim is not None else ""
    note = f"the pod gets units of request {request.id} of pool {request.pool} ({request.phase.value}{progress})"
    return ScalingEvent(EventReason.NODE_REQUESTED, note)


def with_omissions(event: ScalingEvent, selection: "PodSelection | None") -> ScalingEvent:
    """Return the Event of a request with what of the pod's demands it leaves out."""
    if selection is None or not selection.omitted:
        return event
    note = (
        f"{event.note}; the request leaves out {listed(selection.omitted)}: if the node does not suit the pod, another zone"
        " or instance type is asked for"
    )
    return replace(event, note=note)


def node_launched(request: "scaling_model.ObservedRequest") -> ScalingEvent:
    claim = request.claim
    name = claim.name if claim is not None else ""
    kind = f" ({details})" if claim is not None and (details := claim_details(claim)) else ""
    note = f"NodeClaim {name}{kind} is made for request {request.id} of pool {request.pool}; its node is to register"
    return ScalingEvent(EventReason.NODE_LAUNCHED, note)


def node_registered(request: "scaling_model.ObservedRequest") -> ScalingEvent:
    note = (
        f"node {_node_of(request)} is registered for request {request.id} of pool {request.pool}; its driver and"
        " agent are to report its devices"
    )
    return ScalingEvent(EventReason.NODE_REGISTERED, note)


def node_ready(request: "scaling_model.ObservedRequest") -> ScalingEvent:
    note = f"devices of node {_node_of(request)} are in pool {request.pool} (request {request.id})"
    return ScalingEvent(EventReason.NODE_READY, note)


def node_failed(request: "scaling_model.ObservedRequest") -> ScalingEvent:
    shape = f" of shape {request.shape.name}" if request.shape is not None else ""
    note = f"request {request.id} of pool {request.pool} for a node{shape} failed: {truncate(request.message)}"
    return ScalingEvent(EventReason.NODE_FAILED, note, is_warning=True)


def request_blocked(wait: "scaling_model.PodWait") -> ScalingEvent:
    note = f"no node is asked for: {wait.reason.value}: {wait.message}"
    return ScalingEvent(EventReason.NODE_REQUEST_BLOCKED, note, is_warning=True)


def request_cancelled(cancel: "scaling_model.Cancel") -> ScalingEvent:
    return ScalingEvent(
        EventReason.NODE_REQUEST_CANCELLED, f"request {cancel.id} is withdrawn: {cancel.message}"
    )


def node_without_devices(pool: "PoolName", claim: "scaling_model.ClaimFacts") -> ScalingEvent:
    note = (
        f"NodeClaim {claim.name} is deleted: its node {claim.node} is registered and has no device of pool {pool};"
        f" check the driver and the agent of the nodes of NodePool {claim.node_pool}, and the pool's deviceSelector"
    )
    return ScalingEvent(EventReason.NODE_WITHOUT_DEVICES, note, is_warning=True)


def node_with_fewer_devices(request: "scaling_model.ObservedRequest") -> ScalingEvent:
    note = (
        f"request {request.id}: {truncate(request.message)}; look into the driver and the devices of the node, and"
        " correct what the shape says of its devices: after two such nodes it is left out until spec.autoscaling changes"
    )
    return ScalingEvent(EventReason.NODE_WITH_FEWER_DEVICES, note, is_warning=True)


def foreign_claim(pool: "PoolName", claim: "scaling_model.ClaimFacts") -> ScalingEvent:
    note = (
        f"NodeClaim {claim.name} has the label of request {claim.request}, which pool {pool} did not make; its node"
        " is used if its devices match the pool, and nothing waits for it; remove what creates it, or the label"
    )
    return ScalingEvent(EventReason.FOREIGN_NODE_CLAIM, note, is_warning=True)


def scaling_misconfigured(message: str) -> ScalingEvent:
    return ScalingEvent(EventReason.SCALING_MISCONFIGURED, message, is_warning=True)


def budget_exhausted(message: str) -> ScalingEvent:
    return ScalingEvent(EventReason.BUDGET_EXHAUSTED, message, is_warning=True)


def claim_details(claim: "scaling_model.ClaimFacts") -> str:
    """Return instance type, zone and capacity type, as far as they are known."""
    return ", ".join(
        item for item in (claim.instance_type, claim.zone, claim.capacity_type) if item
    )


def _node_of(request: "scaling_model.ObservedRequest") -> str:
    node: scaling_model.RequestedNode | None = request.node
    if node is not None:
        return node.name
    return request.claim.node if request.claim is not None else ""


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"
