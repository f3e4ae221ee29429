"""The one condition of a cache: of each digest on each node, and of the cache as a whole.

A digest is judged by itself, so that a new digest leaves the old one's state as it is. Outdated is a matter of the
digest alone: pods use it, and the cache names another one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.kinds.gkmcache import CacheConditionType
from api.status_conditions import find_condition, new_condition
from api.text import MAX_LISTED, truncate

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence

    from api.image_reference import Digest
    from api.kinds.gkmcachenode import CachedDigest
    from api.meta import Condition
    from api.names import NodeName

MESSAGES: Final = {
    CacheConditionType.PENDING: "Not yet complete",
    CacheConditionType.EXTRACTED: "The Kernel Cache has been extracted onto the host",
    CacheConditionType.RUNNING: "The Kernel Cache has been extracted and is in use by one or more pods",
    CacheConditionType.OUTDATED: "The Kernel Cache is in use by one or more pods but newer version exists",
    CacheConditionType.ERROR: "An error occurred trying to extract the Kernel Cache",
    CacheConditionType.UNLOAD_ERROR: "An error occurred trying to remove the extracted Kernel Cache",
}
"""GKM's texts; what is known beyond them follows behind a colon."""

_ORDER: Final = (
    CacheConditionType.ERROR,
    CacheConditionType.UNLOAD_ERROR,
    CacheConditionType.OUTDATED,
    CacheConditionType.RUNNING,
    CacheConditionType.EXTRACTED,
    CacheConditionType.PENDING,
)
"""The first that a node reports is the cache's."""
_WITH_NODES: Final = frozenset(
    {CacheConditionType.ERROR, CacheConditionType.UNLOAD_ERROR, CacheConditionType.OUTDATED}
)
_KEPT_FOR_FORMER_DIGESTS: Final = frozenset(
    {CacheConditionType.OUTDATED, CacheConditionType.UNLOAD_ERROR}
)
"""States that count for digests that the cache named before."""
_MAX_DETAIL: Final = 256
"""Greatest length of one node's text in the message of a cache."""


@final
@dataclass(frozen=True, slots=True)
class CacheState:
    """A state, and what there is to say about it."""

    type: CacheConditionType
    detail: str = ""

    @property
    def message(self) -> str:
        text = MESSAGES[self.type]
        return f"{text}: {self.detail}" if self.detail else text


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DigestOnNode:
    """What a node knows of one digest of a cache."""

    is_extracted: bool
    pods: int = 0
    """Pods that use it."""
    pull_fault: str = ""
    """Why the last attempt to pull or extract it failed, or why it fits no device."""
    removal_fault: str = ""
    """Why the last attempt to remove it failed."""
    progress: str = ""
    """What is being done, or waited for, while it is not extracted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DigestUse:
    """One digest of a cache on a node, as the node's object shows it."""

    state: CacheState
    pods: int = 0

    def counts_for_cache(self, *, is_current: bool) -> bool:
        """Return whether it counts for the cache's state: an error to pull a former digest is over."""
        return is_current or self.state.type in _KEPT_FOR_FORMER_DIGESTS


def reported_state(conditions: "Iterable[Condition] | None") -> CacheState:
    """Return the state that a status shows; Pending where it shows none, or one that is not known."""
    for type_ in _ORDER:
        found = find_condition(conditions, type_)
        if found is not None and found.status == "True":
            text = MESSAGES[type_]
            detail = found.message.removeprefix(text).removeprefix(": ")
            return CacheState(type_, detail)
    return CacheState(CacheConditionType.PENDING)


def reported_use(digest: "CachedDigest") -> DigestUse:
    """Return what a node's object shows of a digest."""
    return DigestUse(state=reported_state(digest.conditions), pods=len(digest.pods or ()))


def state_on_node(digest: DigestOnNode, *, is_current: bool) -> CacheState:
    """Return the state of one digest on one node.

    Args:
        digest: what the node knows of it.
        is_current: the cache names this digest; false for a digest that it named before.
    """
    if digest.pull_fault:
        return CacheState(CacheConditionType.ERROR, digest.pull_fault)
    if digest.pods and not is_current:
        return CacheState(CacheConditionType.OUTDATED)
    if digest.pods:
        return CacheState(CacheConditionType.RUNNING)
    if digest.removal_fault:
        return CacheState(CacheConditionType.UNLOAD_ERROR, digest.removal_fault)
    if digest.is_extracted:
        return CacheState(CacheConditionType.EXTRACTED)
    return CacheState(CacheConditionType.PENDING, digest.progress)


def state_of_cache(
    current: "Digest | None",
    nodes: "Mapping[NodeName, Mapping[Digest, DigestUse]]",
    *,
    progress: str = "",
) -> CacheState:
    """Return the state of a cache: the gravest that a node reports of a digest that counts.

    The present digest counts, and a former one while pods use it or a node cannot remove it. An error to pull a
    former digest is over.

    Args:
        current: the digest that the cache names; None while its image is not resolved.
        nodes: every digest of this cache, by node.
        progress: what is waited for while no node has anything.
    """
    found: dict[CacheConditionType, dict[NodeName, str]] = {}
    for node in sorted(nodes):
        for digest, use in sorted(nodes[node].items()):
            if use.counts_for_cache(is_current=digest == current):
                found.setdefault(use.state.type, {}).setdefault(node, use.state.detail)
    for type_ in _ORDER:
        if type_ in found:
            detail = _by_node(found[type_]) if type_ in _WITH_NODES else ""
            return CacheState(type_, detail)
    return CacheState(CacheConditionType.PENDING, progress)


def _by_node(details: "Mapping[NodeName, str]") -> str:
    """Return the nodes with their texts; nodes of one text stand together."""
    nodes: dict[str, list[NodeName]] = {}
    for node, detail in details.items():
        nodes.setdefault(truncate(detail, _MAX_DETAIL), []).append(node)
    parts = [_nodes(names) + (f": {detail}" if detail else "") for detail, names in nodes.items()]
    more = len(parts) - MAX_LISTED
    return "; ".join(parts[:MAX_LISTED]) + (f"; {more} other errors" if more > 0 else "")


def _nodes(names: "Sequence[NodeName]") -> str:
    first = ", ".join(truncate(name) for name in names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"node {first}" + (f" and {more} more" if more > 0 else "")


def cache_condition(
    state: CacheState, current: "Iterable[Condition] | None", *, generation: int, now: "dt.datetime"
) -> "list[Condition]":
    """Return the conditions of a status: exactly one, with the type as its reason.

    Args:
        state: the state to show.
        current: the conditions so far; one of the type keeps its transition time.
        generation: `metadata.generation` of the object.
        now: the transition time of a new condition.
    """
    return [
        new_condition(
            state.type,
            state.type,
            state.message,
            status=True,
            current=current,
            generation=generation,
            now=now,
        )
    ]
