"""Why pods wait, as documents: what is read of them, what explains it, and what others said."""

from typing import TYPE_CHECKING, Final, assert_never, final

import msgspec

from api.meta import Model, ObjectMeta
from api.names import UNITS_CONDITION
from api.text import listed, truncate
from kube.resources import EVENTS
from kubectl_gpu.answer_forms import Document, Entry
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import ForbiddenError
from kubectl_gpu.waiting.pool_reading import read_pools
from kubectl_gpu.waiting.wait_reading import explain_wait, explain_waits
from pool.demand import BadQuantity, ManyPools, TooLarge, demand_of
from pool.facts import pod_facts
from pool.model import Demand, PodPhase
from pool.pods.conditions import leader_condition, scheduler_refusal
from pool.what_if.explanation import Explanation
from telemetry.explanation_texts import wait_summary
from telemetry.reasons import RefusalReason, too_large_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.foreign.core import Pod
    from kubectl_gpu.cluster_lists import ClusterLists
    from pool.demand import Unserved


_REFUSALS: Final = frozenset({"FailedCreate", "ReplicaSetCreateError"})
"""Reasons of the Events that Kubernetes' controllers emit where an object of theirs is refused."""


@final
class LeaderCondition(Entry, frozen=True, kw_only=True):
    """The pod's condition gpu.deckhouse.io/UnitsAvailable, as the leader wrote it."""

    reason: str
    message: str


@final
class PodExplanation(Document, frozen=True, kw_only=True):
    """Document of the verb `why` with a pod."""

    namespace: str
    name: str
    state: str
    """Waits, Bound, Ended, AsksForNoUnits, or Invalid: admission refuses such a pod. Of a workload Refused or NotRefused."""
    created: str = ""
    message: str
    """One sentence."""
    node: str = ""
    """Node of a bound pod."""
    explanation: Explanation | None = None
    """Explanation of a pod that waits, where the user may read its pool."""
    leader: LeaderCondition | None = None
    kube_scheduler: str = ""
    """Its last refusal."""
    autoscaling: str = ""
    """Note of the last Event about a node for the pod."""
    read_from: str


@final
class PodExplanationList(Document, frozen=True, kw_only=True):
    """Document of the verb `why` without a pod: the pods that wait."""

    items: tuple[PodExplanation, ...]


def wait_of(lists: "ClusterLists", pod: "Pod") -> PodExplanation:
    """Return why a pod waits, or that it does not."""
    demand = demand_of(pod.spec, pod.metadata.namespace)
    answer = PodExplanation(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        state="Waits",
        created=pod.metadata.creation_timestamp or "",
        message="",
        kube_scheduler=scheduler_refusal(pod),
        leader=_leader_condition(pod),
        read_from=lists.source.origin,
    )
    outcome = _outcome(pod, demand)
    if outcome is not None:
        state, message = outcome
        return msgspec.structs.replace(
            answer, state=state, message=message, node=pod.spec.node_name
        )
    facts = pod_facts(pod)
    if facts is None:
        raise AssertionError(
            f"{pod.metadata.namespace}/{pod.metadata.name} has a demand and no facts"
        )
    try:
        pools = read_pools(lists)
        explanation = explain_wait(lists, pod, facts, pools=pools)
    except ForbiddenError as error:
        return _without_rights(answer, error)
    scaling = {pool.name for pool in pools if pool.spec.autoscaling is not None}
    return msgspec.structs.replace(
        answer,
        explanation=explanation,
        message=wait_summary(explanation),
        autoscaling=_autoscaling_event(lists, pod) if explanation.pool in scaling else "",
    )


class _EventSeries(Model, frozen=True):
    last_observed_time: str = ""


class _Event(Model, frozen=True):
    regarding: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    """Of an Event in the older form, as Kubernetes' controllers write them."""
    series: _EventSeries | None = None

    @property
    def last_time(self) -> str:
        of_series = (self.series or _EventSeries()).last_observed_time
        return of_series or self.event_time or self.deprecated_last_timestamp or ""


def refusal_of(lists: "ClusterLists", kind: str, name: str) -> PodExplanation:
    """Return why the last pod, or object between, of a workload was refused, by what its controllers were told.

    Events last an hour. Controllers name what they make after what it is made of.
    """
    namespace = lists.source.namespace()
    query = ListQuery(EVENTS, namespace, fields="type=Warning")
    events = lists.read(
        query,
        _Event,
        lambda event: event if _is_refusal(event, name) else None,
    )
    last = max(events, key=lambda event: event.last_time, default=None)
    return PodExplanation(
        namespace=namespace,
        name=name,
        state="NotRefused" if last is None else "Refused",
        message=f"no Event of the last hour says that a pod of {kind} {name} was refused"
        if last is None
        else truncate(last.note, 1024),
        read_from=lists.source.origin,
    )


def _is_refusal(event: _Event, name: str) -> bool:
    about = event.regarding.name
    return (
        event.reason in _REFUSALS
        and (about == name or about.startswith(f"{name}-"))
        and any(f"{reason.value}:" in event.note for reason in RefusalReason)
    )


def _autoscaling_event(lists: "ClusterLists", pod: "Pod") -> str:
    """Return the note of the pod's last Event about a node; empty where there is none, as an hour later."""
    meta = pod.metadata
    query = ListQuery(EVENTS, meta.namespace, fields=f"regarding.uid={meta.uid}")
    without = "whether a node is asked for is unknown"
    events = lists.read_if_allowed(
        query,
        _Event,
        lambda event: event if event.reason.startswith("GPUNode") else None,
        without=without,
    )
    last = max(events or (), key=lambda event: event.last_time, default=_Event())
    return truncate(last.note, 1024)


def _outcome(pod: "Pod", demand: "Demand | Unserved | None") -> tuple[str, str] | None:
    """Return state and sentence of a pod that does not wait for units; None for one that may."""
    facts = pod_facts(pod)
    if pod.metadata.deletion_timestamp and not pod.spec.node_name:
        return "Ended", "it is being deleted, and kube-scheduler binds it no more"
    if pod.has_ended or (facts is not None and facts.phase is PodPhase.ENDED):
        return "Ended", "it has ended, and has no units any more"
    if demand is None:
        return "AsksForNoUnits", "it asks for no unit of a pool: no GPU pool keeps it waiting"
    if pod.spec.node_name:
        given = facts.devices if facts is not None else None
        ids = [unit for item in (given or {}).values() for unit in item]
        devices = f" with {listed(ids)}" if ids else "; its devices are unknown"
        return "Bound", f"it does not wait: it is bound to node {pod.spec.node_name}{devices}"
    if not isinstance(demand, Demand):
        return "Invalid", f"{_fault(demand)}; create the pod again as admission allows it"
    return None


def _fault(demand: "Unserved") -> str:
    match demand:
        case ManyPools(resources=resources):
            return f"it asks for units of several pools: {listed(resources)}"
        case BadQuantity(container=container, resource=resource, value=value):
            return f"container {container} asks for {resource}: {value}, which is no whole number"
        case TooLarge():
            return too_large_text(demand)
        case _:
            assert_never(demand)


def _leader_condition(pod: "Pod") -> LeaderCondition | None:
    words = leader_condition(pod)
    return None if words is None else LeaderCondition(reason=words.reason, message=words.message)


def _without_rights(answer: PodExplanation, error: ForbiddenError) -> PodExplanation:
    """Return the leader's condition as the message, for a user who may not read the pod's pool.

    Raises:
        ForbiddenError: the leader has written no condition either.
    """
    if answer.leader is None:
        raise ForbiddenError(
            f"{error}; the pod has no condition {UNITS_CONDITION} either, which the"
            " control plane writes some seconds after the pod begins to wait"
        ) from error
    return msgspec.structs.replace(
        answer, message=f"{answer.leader.reason}: {answer.leader.message}"
    )


def waits_of(lists: "ClusterLists", pods: "Sequence[Pod]") -> "Iterator[PodExplanation]":
    """Yield why each pod waits, without remedies; what the leader said where pools may not be read."""
    facts = [found for pod in pods if (found := pod_facts(pod)) is not None]
    try:
        explained = explain_waits(lists, facts)
    except ForbiddenError as error:
        lists.gaps.append(f"{error}: reasons are those that the leader wrote")
        explained = {}
    for pod in pods:
        explanation = explained.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
        leader = _leader_condition(pod)
        yield PodExplanation(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            state="Waits",
            created=pod.metadata.creation_timestamp or "",
            message=_message(explanation, leader),
            explanation=explanation,
            leader=leader,
            kube_scheduler=scheduler_refusal(pod),
            read_from=lists.source.origin,
        )


def _message(explanation: Explanation | None, leader: LeaderCondition | None) -> str:
    if explanation is not None:
        return wait_summary(explanation)
    return leader.message if leader is not None else ""
