"""`node.features`: NodeFeatures by node, read as they come.

Only the parsed reports are kept: NFD's own objects are large. A heartbeat alone is no change, unless it ends
a silence.
"""

import dataclasses
import datetime as dt
from dataclasses import dataclass
from sys import intern
from typing import TYPE_CHECKING, Final, final

from api.names import NodeName
from inventory.discovery.sources import feature_report
from kube.resources import NODE_FEATURES
from manifests.install.rbac import PolicyRule
from reconciler.runtime.batches import steps
from reconciler.runtime.event_source import EventSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.foreign.nodefeature import NodeFeature
    from inventory.discovery.sources import FeatureReport

RBAC: Final = (
    PolicyRule(
        group=NODE_FEATURES.group, resources=(NODE_FEATURES.plural,), verbs=("list", "watch")
    ),
)

SILENCE: Final = dt.timedelta(minutes=1)
"""A heartbeat so long after the last one is a change: the node may count as silent."""


@final
@dataclass(frozen=True, slots=True)
class ObservedFeature:
    """The report of a NodeFeature."""

    key: str
    """`namespace/name`."""
    node: NodeName
    report: "FeatureReport"


def observe_feature(feature: "NodeFeature") -> ObservedFeature:
    meta = feature.metadata
    key = f"{meta.namespace}/{meta.name}"
    return ObservedFeature(key, NodeName(intern(feature.node)), feature_report(feature))


@final
class NodeFeatureSink:
    """Keeps the reports of NodeFeatures equal to the API server's."""

    def __init__(self) -> None:
        self._by_key: dict[str, ObservedFeature] = {}
        self._by_node: dict[NodeName, dict[str, ObservedFeature]] = {}
        self.changes: EventSource[NodeName] = EventSource()
        """Nodes; both where a feature changed its node."""

    def on_node(self, node: NodeName) -> "list[FeatureReport]":
        """Return the node's reports by key; NFD's own, which has the node's name, comes last."""
        found = self._by_node.get(node, {})
        order = sorted(found, key=lambda key: (key.partition("/")[2] == node, key))
        return [found[key].report for key in order]

    def nodes(self) -> "list[NodeName]":
        return list(self._by_node)

    def heartbeat(self, node: NodeName) -> dt.datetime | None:
        """Return the time of the latest heartbeat, if there is one."""
        return max(
            (one.heartbeat for one in self.on_node(node) if one.heartbeat is not None), default=None
        )

    def health(self, node: NodeName) -> "Mapping[str, tuple[str, str]]":
        """Return the health of the node's devices: UUID -> health and reason."""
        found: dict[str, tuple[str, str]] = {}
        for report in reversed(self.on_node(node)):
            found |= report.health
        return found

    def replace_all(self, items: "Sequence[ObservedFeature]") -> None:
        """Take over a full list; features that are not in it are removed."""
        for _ in self.replacing(items):
            pass

    def replacing(self, items: "Sequence[ObservedFeature]") -> "Iterator[None]":
        """Take over a full list in steps; removals come first."""
        keys = {item.key for item in items}
        for gone in steps(sorted(self._by_key.keys() - keys)):
            for key in gone:
                self._forget(key)
            yield
        for some in steps(items):
            for item in some:
                self.upsert(item)
            yield

    def upsert(self, item: ObservedFeature) -> None:
        before = self._by_key.get(item.key)
        if before is not None and before.node != item.node:
            self._forget(item.key)
            before = None
        self._by_key[item.key] = item
        self._by_node.setdefault(item.node, {})[item.key] = item
        if before is None or _is_change(before.report, item.report):
            self.changes.publish(item.node)

    def discard(self, item: ObservedFeature) -> None:
        self._forget(item.key)

    def _forget(self, key: str) -> None:
        item = self._by_key.pop(key, None)
        if item is None:
            return
        others = self._by_node[item.node]
        del others[key]
        if not others:
            del self._by_node[item.node]
        self.changes.publish(item.node)


def _is_change(before: "FeatureReport", now: "FeatureReport") -> bool:
    if before.heartbeat is None or now.heartbeat is None:
        return before != now
    if now.heartbeat - before.heartbeat >= SILENCE:
        return True
    return dataclasses.replace(before, heartbeat=now.heartbeat) != now
