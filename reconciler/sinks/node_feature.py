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
from kube.store import IndexedStore
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.foreign.nodefeature import NodeFeature
    from inventory.discovery.sources import FeatureReport
    from inventory.health.device import HealthReport

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
    created: str = ""
    """Creation time."""

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


def observe_feature(feature: "NodeFeature") -> ObservedFeature:
    meta = feature.metadata
    key = f"{meta.namespace}/{meta.name}"
    return ObservedFeature(
        key,
        NodeName(intern(feature.node)),
        feature_report(feature),
        created=meta.creation_timestamp or "",
    )


@final
class NodeFeatureSink:
    """Keeps the reports of NodeFeatures equal to the API server's."""

    def __init__(self) -> None:
        store: IndexedStore[str, NodeName, ObservedFeature] = IndexedStore(
            lambda item: item.key,
            lambda item: item.node,
            is_change=_is_change,
            identify=lambda unread: (f"{unread.namespace}/{unread.name}", NodeName("")),
        )
        self._store = store
        self.changes = store.changes
        """Nodes; both where a feature changed its node."""
        self.replace_all = store.replace_all
        self.replace_in_steps = store.replace_in_steps
        self.upsert = store.upsert
        self.discard = store.discard
        self.last_read = store.last_read

    def on_node(self, node: NodeName) -> "list[FeatureReport]":
        """Return the node's reports by key; NFD's own, which has the node's name, comes last.

        Of several with one name, in different namespaces, the newest counts: their writer was moved, and no one keeps
        the others current.
        """
        newest: dict[str, ObservedFeature] = {}
        for _, feature in sorted(self._store.of(node).items()):
            current = newest.setdefault(feature.name, feature)
            if feature.created > current.created:
                newest[feature.name] = feature
        order = sorted(newest.values(), key=lambda feature: (feature.name == node, feature.key))
        return [feature.report for feature in order]

    def nodes(self) -> "list[NodeName]":
        return list(self._store.groups())

    def heartbeat(self, node: NodeName) -> dt.datetime | None:
        """Return the time of the latest heartbeat, if there is one."""
        return max(
            (item.heartbeat for item in self.on_node(node) if item.heartbeat is not None),
            default=None,
        )

    def health(self, node: NodeName) -> "Mapping[str, HealthReport]":
        """Return the health of the node's devices: UUID -> health and reason."""
        found: dict[str, HealthReport] = {}
        for report in reversed(self.on_node(node)):
            found |= report.health
        return found


def _is_change(before_item: ObservedFeature, item: ObservedFeature) -> bool:
    before, now = before_item.report, item.report
    if before_item.created != item.created:
        return True
    if before.heartbeat is None or now.heartbeat is None:
        return before != now
    if now.heartbeat - before.heartbeat >= SILENCE:
        return True
    return dataclasses.replace(before, heartbeat=now.heartbeat) != now
