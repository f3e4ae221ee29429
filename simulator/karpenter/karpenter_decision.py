"""All that Karpenter does at one look."""

from typing import TYPE_CHECKING, Any, Literal

from api.quantity import parse_milli
from kube.resources import NODE_POOLS, PODS
from simulator.karpenter.karpenter_writes import Report, Write, once, with_conditions
from simulator.karpenter.node_claims import advance, create
from simulator.karpenter.node_disruption import disrupt, mark
from simulator.karpenter.observed_cluster import add, total_of
from simulator.karpenter.provisioning import NODES_LIMIT, pack

if TYPE_CHECKING:
    from simulator.karpenter.karpenter_writes import Action
    from simulator.karpenter.observed_cluster import Look, SeenNodePool, SeenPod


def decide(look: "Look") -> "list[Action]":
    """Return what is to be written now; the look's memory takes over what no object keeps."""
    memory, claims = look.memory, look.sight.claims
    memory.awaited -= claims.keys()
    for name in [name for name, until in memory.nominated.items() if until <= look.now]:
        del memory.nominated[name]
    written: list[Action] = []
    for _, pool in sorted(look.sight.node_pools.items()):
        written += _node_pool_status(look, pool)
    for _, claim in sorted(claims.items()):
        written += advance(look, claim) or mark(look, claim)
    # what is not stored yet is not decided upon
    if not written:
        written += disrupt(look)
    if _is_batch_complete(look):
        memory.batch_from = memory.batch_until = None
        # until the next batch, where a NodeClaim is not launched yet
        if not memory.awaited and all(
            item.is_launched or item.is_going for item in claims.values()
        ):
            written += _provision(look)
    return written


def has_work(look: "Look") -> bool:
    """Return whether time alone may make something due."""
    memory, sight = look.memory, look.sight
    return bool(sight.claims or memory.batch_from or memory.awaited) or any(
        pod.is_provisionable for pod in sight.pods.values()
    )


def _is_batch_complete(look: "Look") -> bool:
    """Take notice of new and changed pods, and of those that have waited; return whether the batch is complete."""
    memory, now = look.memory, look.now
    waiting = {uid: pod for uid, pod in look.sight.pods.items() if pod.is_provisionable}
    for uid in memory.triggered.keys() - waiting.keys():
        del memory.triggered[uid]
    for uid, pod in waiting.items():
        version, at = memory.triggered.get(uid, ("", now))
        is_news = version != pod.metadata.resource_version
        if is_news or look.has_passed(at, look.times.retrigger_s):
            memory.triggered[uid] = (pod.metadata.resource_version, now)
            memory.batch_from = memory.batch_from or now
            memory.batch_until = look.after(look.times.batch_idle_s)
    if memory.batch_from is None or memory.batch_until is None:
        return False
    return now >= memory.batch_until or look.has_passed(memory.batch_from, look.times.batch_max_s)


def _provision(look: "Look") -> "list[Action]":
    memory, sight = look.memory, look.sight
    pods = [pod for pod in sight.pods.values() if pod.is_provisionable]
    unavailable = frozenset(key for key, until in memory.unavailable.items() if until > look.now)
    results = pack(sight, pods, unavailable=unavailable)
    written: list[Action] = []
    kept = look.after(look.times.nomination_s)
    for pod, at in results.nominated:
        memory.nominated[at] = kept
        target = f"node/{at}" if at in sight.nodes else f"nodeclaim/{at}"
        report = _about(pod, "Nominated", f"Pod should schedule on: {target}")
        written += once(look, report, for_s=look.times.retrigger_s)
    for new in results.new:
        write = create(new, memory)
        memory.awaited.add(write.name)
        memory.nominated[write.name] = kept
        written.append(write)
        note = f"Pod should schedule on: nodeclaim/{write.name}"
        written += [_about(pod, "Nominated", note) for pod in new.pods]
    for pod, why in results.failed:
        report = _about(pod, "FailedScheduling", f"Failed to schedule pod, {why}")
        written += once(look, report, for_s=look.times.told_s)
    return written


def _about(pod: "SeenPod", reason: str, note: str) -> Report:
    type_: Literal["Normal", "Warning"] = "Normal" if reason == "Nominated" else "Warning"
    return Report(resource=PODS, regarding=pod.metadata, type=type_, reason=reason, note=note)


def _node_pool_status(look: "Look", pool: "SeenNodePool") -> "list[Action]":
    """Return conditions and resources of a NodePool, where they change."""
    is_ready = pool.name not in look.faults.not_ready
    status, reason = ("True", "Ready") if is_ready else ("False", "NodeClassNotReady")
    conditions = with_conditions(
        pool.status.conditions,
        look.now,
        ("NodeClassReady", status, "NodeClassReady" if is_ready else reason, ""),
        ("ValidationSucceeded", "True", "ValidationSucceeded", ""),
        ("Ready", status, reason, "" if is_ready else "NodeClass is not ready"),
    )
    claims = look.sight.claims_of(pool.name)
    used = total_of(
        {name: parse_milli(str(text)) for name, text in (claim.status.allocatable or {}).items()}
        for claim in claims
    )
    add(used, {NODES_LIMIT: 1000 * len(claims)})
    shown = {name: parse_milli(str(text)) for name, text in (pool.status.resources or {}).items()}
    body: dict[str, Any] = {}
    if conditions is not None:
        body["conditions"] = conditions
    if used != {**dict.fromkeys(used, 0), **shown} or shown.keys() - used.keys():
        gone = dict.fromkeys(shown.keys() - used.keys())
        body["resources"] = {name: _text(amount) for name, amount in used.items()} | gone
    if not body:
        return []
    return [
        Write(
            verb="patch",
            resource=NODE_POOLS,
            name=pool.name,
            body={"status": body},
            subresource="status",
        )
    ]


def _text(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else str(milli // 1000)
