"""What Karpenter writes: a decision is a list of these."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

from api.meta import Condition
from api.status_conditions import format_time
from kube.resources import NODE_CLAIMS, NODES, PODS

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from api.meta import ObjectMeta
    from kube.resources import Resource
    from simulator.karpenter.observed_cluster import Look, SeenClaim

Json = dict[str, Any]
AWAITING: Final = "AwaitingReconciliation"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request to the API server."""

    verb: Literal["create", "patch", "delete"]
    resource: "Resource"
    name: str
    namespace: str | None = None
    body: Json | None = None
    subresource: str | None = None
    uid: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An Event."""

    resource: "Resource"
    regarding: "ObjectMeta"
    type: Literal["Normal", "Warning"]
    reason: str
    note: str


Action = Write | Report


def delete_claim(claim: "SeenClaim") -> Write:
    return Write(verb="delete", resource=NODE_CLAIMS, name=claim.name, uid=claim.metadata.uid)


def patch_claim(claim: "SeenClaim", body: Json, subresource: str | None = None) -> Write:
    return Write(
        verb="patch",
        resource=NODE_CLAIMS,
        name=claim.name,
        body=body,
        subresource=subresource,
    )


def patch_node(name: str, body: Json, subresource: str | None = None) -> Write:
    return Write(verb="patch", resource=NODES, name=name, body=body, subresource=subresource)


def delete_pod(meta: "ObjectMeta") -> Write:
    return Write(
        verb="delete", resource=PODS, name=meta.name, namespace=meta.namespace, uid=meta.uid
    )


def with_conditions(
    shown: "list[Condition] | None",
    now: "dt.datetime",
    *changes: tuple[str, str, str, str],
    without: "Iterable[str]" = (),
) -> list[Json] | None:
    """Return conditions with changes of type, status, reason and message; None where nothing changes."""
    by_type = {item.type: item for item in shown or ()}
    before = dict(by_type)
    for type_ in without:
        by_type.pop(type_, None)
    for type_, status, reason, message in changes:
        old = before.get(type_)
        is_same = old is not None and old.status == status
        by_type[type_] = Condition(
            type=type_,
            status=status,  # type: ignore[arg-type]  # one of the three
            reason=reason,
            message=message,
            last_transition_time=old.last_transition_time if old and is_same else format_time(now),
            observed_generation=old.observed_generation if old else 0,
        )
    if by_type == before:
        return None
    return [_json(item) for item in by_type.values()]


def _json(condition: Condition) -> Json:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or condition.type,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
        "observedGeneration": condition.observed_generation,
    }


def once(look: "Look", report: Report, *, for_s: float) -> list[Action]:
    """Return the Event unless an equal one was recorded a short time ago."""
    key = (report.regarding.uid, report.reason, report.note)
    if look.memory.recorded.get(key, look.now) > look.now:
        return []
    look.memory.recorded[key] = look.after(for_s)
    return [report]
