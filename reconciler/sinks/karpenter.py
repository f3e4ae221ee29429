"""`nodeclaim.index`: Karpenter's NodeClaims and NodePools as facts.

A NodeClaim that Karpenter gives up is deleted, and its conditions say why: the last facts of those that were deleted before
they were initialized are kept, until many more were deleted.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final, final

from cachetools import LRUCache

from api.foreign import karpenter
from api.names import SCALE_REQUEST_LABEL
from api.quantity import parse_decimal
from api.status_conditions import parse_time
from api.text import truncate
from api.well_known_labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from autoscaling import scaling_model
from kube.batches import steps
from kube.resources import NODE_CLAIMS, NODE_POOLS
from kube.store import IndexedStore
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

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


def observe_claim(claim: "karpenter.NodeClaim") -> scaling_model.ClaimFacts:
    meta, status = claim.metadata, claim.status
    by_type = {condition.type: condition for condition in status.conditions or ()}
    request = meta.label(SCALE_REQUEST_LABEL)
    return scaling_model.ClaimFacts(
        name=meta.name,
        uid=meta.uid,
        node_pool=meta.label(karpenter.NODE_POOL_LABEL) or "",
        request=scaling_model.RequestId(request) if request else None,
        created=parse_time(meta.creation_timestamp or "") or _EPOCH,
        node=status.node_name,
        is_terminating=meta.deletion_timestamp is not None,
        launched=condition_facts(by_type.get(karpenter.LAUNCHED)),
        registered=condition_facts(by_type.get(karpenter.REGISTERED)),
        initialized=condition_facts(by_type.get(karpenter.INITIALIZED)),
        instance_type=meta.label(INSTANCE_TYPE_LABEL) or "",
        zone=meta.label(ZONE_LABEL) or "",
        capacity_type=meta.label(karpenter.CAPACITY_TYPE_LABEL) or "",
    )


def observe_node_pool(pool: "karpenter.NodePool") -> scaling_model.NodePoolFacts:
    spec, template = pool.spec, pool.spec.template
    ready = next(
        (condition for condition in pool.status.conditions or () if condition.type == "Ready"), None
    )
    return scaling_model.NodePoolFacts(
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


def condition_facts(condition: "Condition | None") -> scaling_model.ConditionFacts:
    if condition is None:
        return scaling_model.UNKNOWN_CONDITION
    return scaling_model.ConditionFacts(
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


def node_pool_store() -> "IndexedStore[str, str, scaling_model.NodePoolFacts]":
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
        store: IndexedStore[str, str, scaling_model.ClaimFacts] = IndexedStore(
            lambda item: item.name,
            lambda item: item.name,
            identify=lambda unread: (unread.name, unread.name),
        )
        self._store = store
        self._deleted: LRUCache[str, scaling_model.ClaimFacts] = LRUCache(_REMEMBERED)
        # uid -> last facts
        self.changes = store.changes
        """Names of NodeClaims that came, changed or went."""
        self.get = store.get
        self.last_read = store.last_read
        self.replace_unread = store.replace_unread

    def __iter__(self) -> "Iterator[scaling_model.ClaimFacts]":
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

    def deleted(self) -> "tuple[scaling_model.ClaimFacts, ...]":
        """Return the last facts of NodeClaims of requests that were deleted before they were initialized."""
        return tuple(self._deleted.values())

    def replace_all(self, items: "Sequence[scaling_model.ClaimFacts]") -> None:
        """Take over a full list: NodeClaims that are not in it were deleted."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[scaling_model.ClaimFacts]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        uids = {item.uid for item in items}
        for key in steps(sorted(self._store.keys())):
            for name in key:
                current = self._store.get(name)
                if current is not None and current.uid not in uids:
                    self.discard(current)
            yield
        yield from self._store.replace_in_steps(items)

    def upsert(self, item: scaling_model.ClaimFacts) -> None:
        current = self._store.get(item.name)
        if current is not None and current.uid != item.uid:
            self._keep(current)
        self._store.upsert(item)

    def discard(self, item: scaling_model.ClaimFacts) -> None:
        current = self._store.get(item.name)
        if current is None or current.uid != item.uid:
            return
        self._keep(item)
        self._store.remove(item.name)

    def _keep(self, claim: scaling_model.ClaimFacts) -> None:
        if claim.request is not None and not claim.initialized.is_true:
            self._deleted[claim.uid] = claim
