"""`node.present-label`: the label `gpu.deckhouse.io/present=true` on every node that has a device.

The node agent runs where it is. It is set as soon as one source says that there is a device, and removed once
none has said so for as long as a deleted Node is waited for, and no GPUDevice is left: a device that a pool has,
or that a pod uses, keeps its agent. The label has one writer: a value that another field manager set stays, such
as `false`, by which an administrator keeps the agent away.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.meta import ObjectMeta, PartialObjectMetadata
from api.names import PRESENT_LABEL, PRESENT_LABEL_MANAGER
from inventory.discovery.merge import merged_labels
from inventory.discovery.presence import has_device
from kube.errors import Conflict, NotFound
from kube.resources import NODES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import DEVICES, FEATURES, ControllerSpec
from reconciler.inventory.label_sources import source_labels
from reconciler.pool.index_changes import NODES as INDEX_NODES
from reconciler.runtime.expectations import Expectations

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.names import NodeName
    from kube.client import KubeClient
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from reconciler.runtime.device_store import DeviceStore
    from reconciler.sinks.node_feature import NodeFeatureSink

RBAC: Final = (PolicyRule(resources=("nodes",), verbs=("patch",)),)
CONFLICT_RETRY_S: Final = 0.5
"""The watch shows within this who set the label meanwhile, or that the Node is gone."""
WORKERS: Final = 4
"""Nodes at a time; when the control plane is installed, every node with a device gets its label."""

_log = structlog.get_logger()


@final
class NodePresentLabel:
    """Writes the label of one node."""

    def __init__(  # stores and services
        self,
        client: "KubeClient",
        index: "IndexFigures",
        features: "NodeFeatureSink",
        *,
        devices: "DeviceStore",
        absent_for_s: float,
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._index = index
        self._features = features
        self._devices = devices
        self._absent_for_s = absent_for_s
        self._now = now
        self._absent_since: dict[NodeName, float] = {}
        # node with our label that no source says has a device -> since when
        self._expected: Expectations[NodeName, bool] = Expectations(now)

    async def reconcile(self, name: "NodeName") -> float | None:
        """Set or remove the label; return the seconds until a removal is due."""
        node = self._index.nodes.get(name)
        if node is None:
            self._absent_since.pop(name, None)
            return None
        features = self._features.on_node(name)
        labels = source_labels(node)
        if has_device(merged_labels(labels, features), features):
            self._absent_since.pop(name, None)
            if PRESENT_LABEL in node.labels:
                return None
            return await self._write(node, is_present=True)
        if not node.owns_present_label or self._devices.on_node(name):
            self._absent_since.pop(name, None)
            return None
        now = self._now().monotonic
        left_s = self._absent_since.setdefault(name, now) + self._absent_for_s - now
        return left_s if left_s > 0 else await self._write(node, is_present=False)

    async def _write(self, node: "NodeFacts", *, is_present: bool) -> float | None:
        """Apply the label or its absence, which the API server refuses where another manager has it."""
        current = ObjectMeta(name=node.name, uid=node.uid, resource_version=node.resource_version)
        if self._expected.unseen(node.name, current) is is_present:
            return None
        labels = {PRESENT_LABEL: "true"} if is_present else {}
        body = {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            # By its uid no other Node is made or changed.
            "metadata": {"name": node.name, "uid": node.uid, "labels": labels},
        }
        try:
            written = await self._client.apply(
                NODES, body, field_manager=PRESENT_LABEL_MANAGER, force=False
            )
        except NotFound:
            return None
        except Conflict:
            return CONFLICT_RETRY_S
        metadata = written.decode(PartialObjectMetadata).metadata
        self._expected.expect(node.name, is_present, metadata)
        self._absent_since.pop(node.name, None)
        _log.info("node labelled", node=node.name, label=PRESENT_LABEL, is_present=is_present)
        return None


SPEC: Final = ControllerSpec(
    name="node.present-label",
    rbac=RBAC,
    triggers=(DEVICES, FEATURES, INDEX_NODES),
    workers=WORKERS,
    is_enabled=lambda settings: settings.is_labelling_nodes,
    build=lambda context: (
        NodePresentLabel(
            context.client,
            context.index,
            context.stores.features,
            devices=context.stores.devices,
            absent_for_s=context.settings.inventory.gone_for.total_seconds(),
            now=context.now,
        ).reconcile
    ),
)
