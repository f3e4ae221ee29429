"""One reading of the objects of a request for a node: its phase, deadline and failure."""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.status_conditions import parse_time
from autoscaling.claim_failure import claim_failure, node_pool_hint
from autoscaling.scaling_model import Failure, ObservedRequest, RequestPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.autoscaling import ScaleRequestStatus
    from autoscaling.scaling_model import (
        ClaimFacts,
        RequestedNode,
        RequestId,
        ScalingParameters,
        ShapeParameters,
        SignalFacts,
    )

ANSWERED_WITHIN: Final = dt.timedelta(seconds=60)
"""Karpenter gathers pods for 10 s at most, and answers within a second."""
LAUNCHED_WITHIN: Final = dt.timedelta(minutes=6)
"""Time allowed after the NodeClaim's creation; Karpenter gives up after five."""
REGISTERED_WITHIN: Final = dt.timedelta(minutes=16)
"""Time allowed after the launch; Karpenter gives up after 15."""
COMPLETE_WITHIN: Final = dt.timedelta(minutes=3)
"""Time allowed after the first usable unit of a node: the time in which its other devices are partitioned and join
the pool."""
_READY: Final = frozenset({RequestPhase.AGENT_READY.value, RequestPhase.RESERVED.value})
_AWAITED: Final = frozenset({RequestPhase.REGISTERED.value, RequestPhase.INCOMPLETE.value})
_WITH_NODE: Final = _READY | _AWAITED
ON_ITS_WAY: Final = _WITH_NODE | {RequestPhase.SIGNALLED.value, RequestPhase.LAUNCHED.value}
NOT_OURS: Final = "its NodeClaim has the label of a request that this control plane did not make"


@final
@dataclass(slots=True)
class RequestTrace:
    """Objects of one request."""

    request: "RequestId"
    signals: "list[SignalFacts]"
    claims: "list[ClaimFacts]"
    deleted: "list[ClaimFacts]"


@final
class RequestState:
    """One request, read once."""

    def __init__(  # noqa: PLR0917  # the parts of one pass
        self,
        parameters: "ScalingParameters",
        trace: RequestTrace,
        node: "RequestedNode | None",
        recorded: "ScaleRequestStatus | None",
        now: dt.datetime,
    ) -> None:
        self._parameters = parameters
        self._id = trace.request
        self._signals = tuple(sorted(trace.signals, key=lambda signal: (signal.name, signal.uid)))
        self._live = tuple(signal for signal in self._signals if not signal.is_terminating)
        self._node = node
        self._recorded = recorded
        self._now = now
        self._claim = _first_claim(trace.claims, recorded)
        self._duplicates = len({claim.uid for claim in trace.claims}) - 1
        self._gone = _gone_claim(trace, recorded) if self._claim is None else None

    def observed(self) -> ObservedRequest | None:
        """Return the request; None where nothing of it is on its way, or left over."""
        node, claim = self._node, self._claim
        if self._is_over():
            return None
        if node is not None and not self._is_starting(node):
            return self._released()
        if claim is not None:
            return self._by_claim(claim)
        if self._has_lost_claim():
            return self._without_claim()
        if node is not None:
            return self._by_node(node)
        return self._by_signals()

    @property
    def _shape_name(self) -> str:
        named = next((signal.shape for signal in self._signals if signal.shape), "")
        return named or (self._recorded.shape if self._recorded is not None else "")

    @property
    def _shape(self) -> "ShapeParameters | None":
        return self._parameters.shape(self._shape_name)

    def _is_over(self) -> bool:
        """Say whether nothing is on its way: an ordinary node of the pool, which may be going, or one that is gone."""
        if self._signals or (self._node is not None and self._is_starting(self._node)):
            return False
        claim = self._claim or self._gone
        # Karpenter has seen the node without its startup taint: it was handed over, whatever the last status says.
        if claim is not None and claim.initialized.is_true:
            return True
        claim = self._claim
        return self._recorded is None and (claim is None or claim.is_terminating)

    def _is_starting(self, node: "RequestedNode") -> bool:
        """Say whether the node is yet to be handed over.

        Without the startup taint, which its NodePool lacks then, a node is on its way as long as its signal is there or it
        was on its way before: an older node without devices is no request.
        """
        if node.has_startup_taint:
            return True
        if node.indexed_units:
            was_awaited = self._recorded is not None and self._recorded.phase in _AWAITED
            return was_awaited and node.is_short_of(self._shape)
        was_on_its_way = self._recorded is not None and self._recorded.phase in ON_ITS_WAY
        return bool(self._live) or was_on_its_way

    def _has_lost_claim(self) -> bool:
        """Say whether a NodeClaim was there and is gone, and no newer signal asks again."""
        if self._gone is not None:
            return not self._is_requested_again(self._gone.created)
        recorded = self._recorded
        if recorded is None or not recorded.node_claim:
            return False
        return not self._is_requested_again(parse_time(recorded.since))

    def _is_requested_again(self, since: dt.datetime | None) -> bool:
        return since is not None and any(item.created > since for item in self._live)

    # --- phases ---

    def _released(self) -> ObservedRequest | None:
        """Return the request while signals of a node that was handed over are left."""
        if not self._signals:
            return None
        return self._request(
            RequestPhase.RELEASED, self._since(RequestPhase.RELEASED), "its signal is to go"
        )

    def _by_claim(self, claim: "ClaimFacts") -> ObservedRequest | None:
        node = self._node
        is_registered = claim.registered.is_true or node is not None
        if claim.is_terminating or (node is not None and node.is_leaving):
            return self._ended(claim)
        if self._is_foreign(claim):
            phase = RequestPhase.REGISTERED if is_registered else RequestPhase.LAUNCHED
            return self._request(phase, self._no_later_than_now(claim.created), NOT_OURS)
        if not is_registered:
            return self._launched(claim)
        if node is None:
            return self._registered(claim.registered.since or claim.created)
        return self._by_node(node)

    def _by_node(self, node: "RequestedNode") -> ObservedRequest:
        if node.is_leaving:
            return self._failed(
                Failure.NODE_LOST, f"node {node.name} is removed before its devices came"
            )
        if node.is_short_of(self._shape):
            return self._with_too_few_units(node)
        if node.is_agent_ready:
            reserved = node.reserved_units
            phase = RequestPhase.RESERVED if reserved else RequestPhase.AGENT_READY
            text = f"the {node.indexed_units} units of node {node.name} are in the pool"
            if reserved:
                text = f"{text}, {reserved} of them reserved for pods that it came for"
            return self._request(phase, self._since(phase), text)
        return self._registered(self._registered_at(node))

    def _with_too_few_units(self, node: "RequestedNode") -> ObservedRequest:
        """Return a request whose node has fewer usable units than its shape promises: it fails once they are overdue.

        Units that kubelet does not allocate yet are awaited as the devices of a node that has none.
        """
        if self._failure is not None and self._failure[0] is Failure.FEWER_DEVICES:
            return self._failed(Failure.FEWER_DEVICES, self._delivered(node))
        if node.indexed_units > node.allocatable_units:
            found = self._registered(self._registered_at(node))
        else:
            since = self._since(RequestPhase.INCOMPLETE)
            text = f"{self._delivered(node)}; the others are awaited"
            found = self._request(
                RequestPhase.INCOMPLETE, since, text, deadline=since + COMPLETE_WITHIN
            )
        if found.deadline is not None and self._now >= found.deadline:
            return self._failed(Failure.FEWER_DEVICES, self._delivered(node))
        return found

    def _delivered(self, node: "RequestedNode") -> str:
        promised = self._shape.units if self._shape is not None else 0
        usable = min(node.indexed_units, node.allocatable_units)
        return (
            f"node {node.name} brings {usable} usable units of pool {self._parameters.pool.name}, and shape"
            f" {self._shape_name} promises {promised}"
        )

    def _registered_at(self, node: "RequestedNode") -> dt.datetime:
        since = self._claim.registered.since if self._claim is not None else None
        return since or node.created

    def _launched(self, claim: "ClaimFacts") -> ObservedRequest:
        if not claim.launched.is_true:
            since = self._phase_begin(claim.created, RequestPhase.LAUNCHED)
            deadline = since + LAUNCHED_WITHIN
            if self._now >= deadline:
                return self._failed_claim(claim, max(self._now, claim.created + LAUNCHED_WITHIN))
            reason = claim.launched.message or "its instance is being launched"
            return self._request(RequestPhase.LAUNCHED, since, reason, deadline=deadline)
        created = self._phase_begin(claim.created, RequestPhase.LAUNCHED)
        launched = claim.launched.since or claim.created
        since = launched if launched <= self._now else min(self._now, created + LAUNCHED_WITHIN)
        deadline = since + REGISTERED_WITHIN
        if self._now >= deadline:
            return self._failed_claim(claim, max(self._now, launched + REGISTERED_WITHIN))
        text = f"the instance of NodeClaim {claim.name} is launched; its Node is to register"
        return self._request(RequestPhase.LAUNCHED, created, text, deadline=deadline)

    def _registered(self, since: dt.datetime) -> ObservedRequest:
        since = self._no_later_than_now(since)
        recorded = self._recorded
        if recorded is not None and recorded.phase in _READY:
            since = self._now  # it was ready, and has as long again
        elif recorded is not None and recorded.phase == RequestPhase.REGISTERED.value:
            since = self._no_later_than_now(parse_time(recorded.since) or since)
        return self._request(
            RequestPhase.REGISTERED,
            since,
            self._missing(),
            deadline=since + self._parameters.devices_within,
        )

    def _missing(self) -> str:
        node = self._node
        if node is None:
            return "its Node is not in the cache yet"
        if not node.is_ready:
            return f"node {node.name} is not Ready"
        if not node.indexed_units:
            text = f"node {node.name} has no device of pool {self._parameters.pool.name} yet"
            return f"{text}: {node.obstacle}" if node.obstacle else text
        return (
            f"kubelet of node {node.name} allocates {node.allocatable_units} of {node.indexed_units} units of"
            f" {self._parameters.pool.resource}"
        )

    def _ended(self, claim: "ClaimFacts") -> ObservedRequest:
        """Return a request whose NodeClaim or Node is being deleted."""
        if self._failure is not None:
            return self._failed(*self._failure)
        recorded = self._recorded
        if recorded is not None and recorded.phase in _READY:
            text = (
                f"node {claim.node} of NodeClaim {claim.name} is removed before its pods were there"
            )
            return self._failed(Failure.NODE_LOST, text)
        return self._failed_claim(claim, self._now)

    def _without_claim(self) -> ObservedRequest | None:
        """Return a request whose NodeClaim was deleted; None once that was recorded, and nothing is left of it."""
        recorded = self._recorded
        if self._failure is not None:
            is_left = bool(self._signals) or self._node is not None
            return self._failed(*self._failure) if is_left else None
        if self._gone is not None:
            return self._failed_claim(self._gone, self._now)
        name = recorded.node_claim if recorded is not None else ""
        if recorded is not None and recorded.phase in _WITH_NODE:
            return self._failed(
                Failure.NODE_LOST, f"NodeClaim {name} was deleted before its devices came"
            )
        return self._failed(
            Failure.INSUFFICIENT_CAPACITY,
            f"NodeClaim {name} was deleted before its Node registered; no reason was seen, so that lack of capacity is"
            " assumed",
        )

    def _by_signals(self) -> ObservedRequest | None:
        if not self._live:
            if not self._signals:
                return None
            return self._request(RequestPhase.SUPERSEDED, self._now, "its signal is being deleted")
        asked = min(item.created for item in self._live)
        if self._failure is not None and not self._is_requested_again(self._reported_at):
            return self._failed(*self._failure)
        for signal in self._live:
            if signal.node:
                text = f"signal {signal.name} was bound to node {signal.node} by another client; it is deleted"
                return self._failed(Failure.SIGNAL_TAMPERED, text)
            if not signal.is_intact:
                text = f"signal {signal.name} was changed by another client; it is deleted"
                return self._failed(Failure.SIGNAL_TAMPERED, text)
        since = self._phase_begin(asked, RequestPhase.SIGNALLED)
        deadline = since + ANSWERED_WITHIN
        hint = node_pool_hint(self._shape, self._live[0].name)
        if self._now >= deadline:
            seconds = int(ANSWERED_WITHIN.total_seconds())
            return self._failed(
                Failure.NOT_SIGNALLED, f"no NodeClaim was made within {seconds} s: {hint}"
            )
        text = "the autoscaler was asked"
        return self._request(RequestPhase.SIGNALLED, since, text, deadline=deadline)

    # --- values ---

    @property
    def _failure(self) -> tuple[Failure, str] | None:
        """The failure that the last pass saw."""
        recorded = self._recorded
        if recorded is None or recorded.phase != RequestPhase.FAILED.value:
            return None
        name, _, message = recorded.message.partition(": ")
        failure = next((item for item in Failure if item.value == name), None)
        return (failure, message) if failure is not None else (Failure.NODE_LOST, recorded.message)

    @property
    def _reported_at(self) -> dt.datetime | None:
        return parse_time(self._recorded.since) if self._recorded is not None else None

    def _is_foreign(self, claim: "ClaimFacts") -> bool:
        return self._recorded is None and not self._signals and not claim.initialized.is_true

    def _no_later_than_now(self, moment: dt.datetime) -> dt.datetime:
        return min(moment, self._now)

    def _phase_begin(self, moment: dt.datetime, phase: RequestPhase) -> dt.datetime:
        """Return the moment at which a phase began; of one that this clock has not reached, when it was first seen."""
        return moment if moment <= self._now else self._since(phase)

    def _since(self, phase: RequestPhase) -> dt.datetime:
        recorded = self._recorded
        if recorded is not None and recorded.phase == phase.value:
            return self._no_later_than_now(parse_time(recorded.since) or self._now)
        return self._now

    def _failed_claim(self, claim: "ClaimFacts", now: dt.datetime) -> ObservedRequest:
        return self._failed(*claim_failure(claim, now, self._parameters.devices_within))

    def _failed(self, failure: Failure, message: str) -> ObservedRequest:
        return self._request(
            RequestPhase.FAILED, self._since(RequestPhase.FAILED), message, failure=failure
        )

    def _request(
        self,
        phase: RequestPhase,
        since: dt.datetime,
        message: str,
        *,
        deadline: dt.datetime | None = None,
        failure: Failure | None = None,
    ) -> ObservedRequest:
        shape = self._shape
        if shape is None and self._shape_name:
            message = (
                f"{message}; shape {self._shape_name} is not in spec.autoscaling.shapes any more"
            )
        if self._duplicates > 0:
            message = f"{message}; {self._duplicates} more NodeClaims have its label, whose empty nodes go"
        return ObservedRequest(
            id=self._id,
            pool=self._parameters.pool.name,
            shape=shape,
            phase=phase,
            since=since,
            deadline=deadline,
            failure=failure,
            message=message,
            signals=self._signals,
            claim=self._claim,
            node=self._node,
        )


def _first_claim(
    claims: "Iterable[ClaimFacts]", recorded: "ScaleRequestStatus | None"
) -> "ClaimFacts | None":
    """Return the NodeClaim that counts: one that stays, the known one, the oldest."""
    name = recorded.node_claim if recorded is not None else ""
    return min(
        claims,
        key=lambda claim: (claim.is_terminating, claim.name != name, claim.created, claim.name),
        default=None,
    )


def _gone_claim(trace: RequestTrace, recorded: "ScaleRequestStatus | None") -> "ClaimFacts | None":
    """Return the last facts of the latest NodeClaim that was deleted, the known one first."""
    name = recorded.node_claim if recorded is not None else ""
    return max(
        trace.deleted, key=lambda item: (item.name == name, item.created, item.name), default=None
    )
