"""What the node's objects say about each cache: pure.

The present digest is shown where the node is to have it, has it, or could not get it; a former one while pods use it,
while it is what the name is bound to, or where it could not be removed.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from agent.kernelcache.node_status import CacheFacts, DigestFacts
from api.cache_name import CacheName
from api.image_reference import Digest
from api.kinds.gkmcachenode import CachePod
from kernelcache.store_plan import PostponeReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kernelcache.cache_decision import CacheDecision
    from agent.kernelcache.content.store_layout import StoredContent
    from agent.kernelcache.volume_uses import VolumeUse
    from api.kinds.gkmcache import GKMCache
    from api.kinds.gkmcachenode import GKMCacheNode
    from kernelcache.store_plan import StorePlan


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The store at one moment."""

    contents: "Mapping[Digest, StoredContent]"
    names: "Mapping[CacheName, Digest]"
    faults: "Mapping[Digest, str]" = field(default_factory=dict)
    removal_faults: "Mapping[Digest, str]" = field(default_factory=dict)
    extracting: "frozenset[Digest]" = frozenset()
    plan: "StorePlan | None" = None
    store_fault: str = ""
    """Why the store cannot be used at all."""


def report_of(
    store: StoreState,
    decisions: "Mapping[CacheName, tuple[GKMCache, CacheDecision]]",
    *,
    uses: "Iterable[VolumeUse]",
    published: "Mapping[str, GKMCacheNode]",
) -> "dict[str, dict[str, CacheFacts]]":
    """Return namespace -> name -> cache; of each cache at least one digest."""
    pods = _pods_by_content(uses)
    failed = _reported_with(store.removal_faults, published)
    report: dict[str, dict[str, CacheFacts]] = {}
    for name in sorted({*decisions, *pods, *failed}):
        cache, decision = decisions.get(name, (None, None))
        users = pods.get(name, {})
        digests = {
            digest: _former(digest, users.get(digest, ()), store)
            for digest in {*users, *failed.get(name, ())}
        }
        if name in store.names and cache is not None and not cache.is_deleting:
            bound = store.names[name]
            digests.setdefault(bound, _former(bound, (), store))
        current = decision.digest if decision is not None else None
        if decision is not None and current is not None:
            has = current in digests
            digests.pop(current, None)
            if has or decision.is_due:
                digests[current] = _present(current, decision, users.get(current, ()), store=store)
        if digests:
            report.setdefault(name.namespace, {})[name.name] = CacheFacts(
                current=current,
                is_deleting=cache is None or cache.is_deleting,
                digests=digests,
            )
    return report


def _present(
    digest: "Digest",
    decision: "CacheDecision",
    pods: tuple[CachePod, ...],
    *,
    store: StoreState,
) -> DigestFacts:
    content = store.contents.get(digest)
    fault = decision.incompatibility
    if not fault and content is None and not decision.waits_for:
        fault = store.faults.get(digest, "") or store.store_fault
    fits = decision.compatibility
    return DigestFacts(
        is_extracted=content is not None,
        size_bytes=content.size_bytes if content is not None else 0,
        pods=pods,
        pull_fault=fault,
        removal_fault=store.removal_faults.get(digest, ""),
        progress=decision.waits_for or progress_of(digest, store),
        compatible=None if fits is None else fits.compatible,
        incompatible=None if fits is None else tuple(fits.incompatible),
    )


def _former(digest: "Digest", pods: tuple[CachePod, ...], store: StoreState) -> DigestFacts:
    content = store.contents.get(digest)
    return DigestFacts(
        is_extracted=content is not None,
        size_bytes=content.size_bytes if content is not None else 0,
        pods=pods,
        removal_fault=store.removal_faults.get(digest, ""),
    )


def progress_of(digest: "Digest", store: StoreState) -> str:
    """Return what is done about a digest that is not there, in words that stay while that lasts."""
    if digest in store.extracting:
        return "it is being extracted"
    for item in store.plan.postponed if store.plan is not None else ():
        if item.digest == digest and item.reason is PostponeReason.NO_SPACE:
            return (
                f"{item.reason.value}: {item.missing_bytes} bytes are missing; raise the quota,"
                " free space on the disk, or remove other caches"
            )
    return "it waits to be extracted"


def _pods_by_content(
    uses: "Iterable[VolumeUse]",
) -> "dict[CacheName, dict[Digest, tuple[CachePod, ...]]]":
    found: dict[CacheName, dict[Digest, list[CachePod]]] = {}
    for use in uses:
        if use.cache is None:
            continue
        pod = CachePod(
            pod_namespace=use.pod_namespace,
            pod_name=use.pod_name,
            volume_id=use.reference.volume_id or "",
        )
        found.setdefault(use.cache, {}).setdefault(use.reference.digest, []).append(pod)
    return {
        name: {digest: tuple(sorted(pods, key=_order)) for digest, pods in digests.items()}
        for name, digests in found.items()
    }


def _order(pod: CachePod) -> tuple[str, str, str]:
    return pod.pod_namespace, pod.pod_name, pod.volume_id


def _reported_with(
    faults: "Mapping[Digest, str]", published: "Mapping[str, GKMCacheNode]"
) -> "dict[CacheName, set[Digest]]":
    """Return the caches whose objects show a digest that could not be removed."""
    found: dict[CacheName, set[Digest]] = {}
    for namespace, node in published.items():
        for name, digests in (node.status.caches or {}).items():
            for digest in digests.keys() & faults.keys():
                found.setdefault(CacheName(namespace=namespace, name=name), set()).add(
                    Digest(digest)
                )
    return found
