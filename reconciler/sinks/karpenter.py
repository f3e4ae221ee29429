"""`nodeclaim.index`: Karpenter's NodeClaims and NodePools as facts.

A NodeClaim that Karpenter gives up is deleted, and its conditions say why: the last facts of those that were deleted before
they were initialized are kept, until many more were deleted.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final, final

from cachetools import LRUCache

from api.foreign.karpenter import (
    CAPACITY_TYPE_LABEL,
    INITIALIZED,
    LAUNCHED,
    NODE_POOL_LABEL,
    REGISTERED,
)
from api.names import SCALE_REQUEST_LABEL
from api.quantity import parse_decimal
from api.status_conditions import parse_time
from api.text import truncate
from api.well_known_labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from autoscaling.scaling_model import (
    UNKNOWN_CONDITION,
    ClaimFacts,
    ConditionFacts,
    NodePoolFacts,
    RequestId,
)
from kube.batches import steps
from kube.resources import NODE_CLAIMS, NODE_POOLS
from kube.store import IndexedStore
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from api.foreign.karpenter import NodeClaim, NodePool
    from api.meta import Condition

RBAC: Final = (
    PolicyRule(
        group=NODE_CLAIMS.group,
        resources=(NODE_CLAIMS.plural, NODE_POOLS.plural),
        verbs=("list", "watch"),
    ),
)

_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
_REMEMBERED: Final = 1024
"""Deleted NodeClaims of which the last facts are kept: ten times the most nodes that one pool may have in flight."""


def observe_claim(claim: "NodeClaim") -> ClaimFacts:
    meta, status = claim.metadata, claim.status
    by_type = {condition.type: condition for condition in status.conditions or ()}
    request = meta.label(SCALE_REQUEST_LABEL)
    return ClaimFacts(
        name=meta.name,
        uid=meta.uid,
        node_pool=meta.label(NODE_POOL_LABEL) or "",
        request=RequestId(request) if request else None,
        created=parse_time(meta.creation_timestamp or "") or _EPOCH,
        node=status.node_name,
        is_terminating=meta.deletion_timestamp is not None,
        launched=condition_facts(by_type.get(LAUNCHED)),
        registered=condition_facts(by_type.get(REGISTERED)),
        initialized=condition_facts(by_type.get(INITIALIZED)),
        instance_type=meta.label(INSTANCE_TYPE_LABEL) or "",
        zone=meta.label(ZONE_LABEL) or "",
        capacity_type=meta.label(CAPACITY_TYPE_LABEL) or "",
    )


def observe_node_pool(pool: "NodePool") -> NodePoolFacts:
    spec, template = pool.spec, pool.spec.template
    ready = next(
        (condition for condition in pool.status.conditions or () if condition.type == "Ready"), None
    )
    return NodePoolFacts(
        name=pool.metadata.name,
        uid=pool.metadata.uid,
        labels=template.metadata.labels or {},
        requirements=tuple(template.spec.requirements or ()),
        taints=tuple(template.spec.taints or ()),
        startup_taints=tuple(template.spec.startup_taints or ()),
        consolidation_policy=spec.disruption.consolidation_policy,
        consolidate_after=spec.disruption.consolidate_after,
        expire_after=spec.template.spec.expire_after,
        limits=whole_counts(spec.limits),
        used=whole_counts(pool.status.resources),
        replicas=spec.replicas,
        ready=condition_facts(ready),
    )


def condition_facts(condition: "Condition | None") -> ConditionFacts:
    if condition is None:
        return UNKNOWN_CONDITION
    return ConditionFacts(
        status=condition.status,
        reason=truncate(condition.reason),
        message=truncate(condition.message),
        since=parse_time(condition.last_transition_time),
    )


def whole_counts(quantities: "Mapping[str, str | int | float] | None") -> "dict[str, int]":
    """Return amounts of resources: CPU in thousandths, memory in MiB, others whole. What is no quantity is left out."""
    found = {}
    for name, quantity in (quantities or {}).items():
        try:
            amount = parse_decimal(str(quantity))
        except ValueError:
            continue
        if name == "cpu":
            amount *= 1000
        elif name in {"memory", "ephemeral-storage"}:
            amount /= 2**20
        found[name] = int(amount)
    return found


def node_pool_store() -> "IndexedStore[str, str, NodePoolFacts]":
    """Return a store of NodePools by name; publishes the names of changed ones."""
    return IndexedStore(
        lambda item: item.name,
        lambda item: item.name,
        identify=lambda unread: (unread.name, unread.name),
    )


@final
class NodeClaimSink:
    """NodeClaims by name, with the last facts of those that were deleted."""

    def __init__(self) -> None:
        store: IndexedStore[str, str, ClaimFacts] = IndexedStore(
            lambda item: item.name,
            lambda item: item.name,
            identify=lambda unread: (unread.name, unread.name),
        )
        self._store = store
        self._deleted: LRUCache[str, ClaimFacts] = LRUCache(_REMEMBERED)
        # uid -> last facts
        self.changes = store.changes
        """Names of NodeClaims that came, changed or went."""
        self.get = store.get
        self.known = store.known
        self.replace_unread = store.replace_unread

    def __iter__(self) -> "Iterator[ClaimFacts]":
        for name in sorted(self._store.keys()):
            found = self._store.get(name)
            if found is not None:
                yield found

    @property
    def unread(self) -> "AbstractSet[str]":
        """Names of NodeClaims that exist and of which no state is known."""
        return self._store.unread

    def names(self) -> "AbstractSet[str]":
        return self._store.keys()

    def deleted(self) -> "tuple[ClaimFacts, ...]":
        """Return the last facts of NodeClaims of requests that were deleted before they were initialized."""
        return tuple(self._deleted.values())

    def replace_all(self, items: "Sequence[ClaimFacts]") -> None:
        """Take over a full list: NodeClaims that are not in it were deleted."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[ClaimFacts]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        uids = {item.uid for item in items}
        for key in steps(sorted(self._store.keys())):
            for name in key:
                known = self._store.get(name)
                if known is not None and known.uid not in uids:
                    self.discard(known)
            yield
        yield from self._store.replace_in_steps(items)

    def upsert(self, item: ClaimFacts) -> None:
        known = self._store.get(item.name)
        if known is not None and known.uid != item.uid:
            self._keep(known)
        self._store.upsert(item)

    def discard(self, item: ClaimFacts) -> None:
        known = self._store.get(item.name)
        if known is None or known.uid != item.uid:
            return
        self._keep(item)
        self._store.remove(item.name)

    def _keep(self, claim: ClaimFacts) -> None:
        if claim.request is not None and not claim.initialized.is_true:
            self._deleted[claim.uid] = claim
