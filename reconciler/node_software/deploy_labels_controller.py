"""`node.deploy-labels`: labels and annotations of nodes for the operands of the ClusterPolicy that counts.

What a node gets is pure (`operands.nvidia.deploy_labels`). It is written by one merge patch under the resourceVersion
that was read, since users and the driver's and MIG's programs write the same labels. The times of holds are kept in
memory: after a change of leaders they begin again, so that a removal comes later, and never too early. No label changes
while a ClusterPolicy exists that this version cannot read, and no owner of a driver while an NVIDIADriver does.
A label that another client keeps removing is put back every `RESTORE_PAUSE_S` at most, and reported once.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.meta import ObjectMeta
from kube.errors import Conflict, NotFound
from kube.event_recorder import ObjectReference
from kube.event_source import EventSource
from kube.resources import NODES
from manifests.install.rbac import PolicyRule
from operands.nvidia.deploy_labels import deploy_labels, label_parameters
from operands.nvidia.label_change import Hold, LabelChange, LabelledNode
from operands.nvidia.node_software import UNKNOWN_SYSTEM
from reconciler.assignment.other_plugin import PLUGIN_LABEL, waits_for_plugin
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger, inventories
from reconciler.pool.index_changes import NODES as INDEX_NODES
from reconciler.runtime.expectations import Expectations
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.clock import Instant
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.names import NodeName
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from operands.nvidia.deploy_labels import LabelParameters
    from pool.index.figures import IndexFigures
    from pool.model import NodeFacts
    from reconciler.informer_stores import InformerStores
    from reconciler.sinks.operator_objects import OperatorObjects

RBAC: Final = (PolicyRule(resources=("nodes",), verbs=("patch",)),)
ACTION: Final = "LabelNode"
"""Action of events."""
HOLD_S: Final = 300.0
"""Node Feature Discovery is restarted, rolled out or repaired within this, and moves no driver meanwhile."""
RESTORE_PAUSE_S: Final = 10.0
CONFLICT_RETRY_S: Final = 0.5
"""The watch shows a node's newer object within this; asking earlier would conflict again."""
WORKERS: Final = 4
"""Nodes at a time, when a policy is created or an autoscaler adds nodes together."""

_log = structlog.get_logger()


def labelled_node(
    index: "IndexFigures",
    node: "NodeFacts",
    inventory: "GPUNodeInventory | None",
    *,
    is_joining: bool = False,
) -> LabelledNode:
    """Return what decides about the labels of a node.

    Args:
        index: says which pools it is in.
        node: the node.
        inventory: its inventory; None: there is none yet.
        is_joining: whether a device of it waits for NVIDIA's device plugin to leave.
    """
    return LabelledNode(
        labels=node.labels,
        recorded=node.deploy_labels,
        upgrade_enabled=node.upgrade_enabled,
        runtime_version=node.runtime,
        kernel_version=node.kernel,
        system=inventory.status.system if inventory is not None else UNKNOWN_SYSTEM,
        is_in_pool=is_joining or bool(index.pools_on(node.name)),
    )


def nodes_with_labels(index: "IndexFigures") -> "list[NodeName]":
    """Return the nodes that have labels of a ClusterPolicy by us: none once its teardown is through with them."""
    return sorted(node.name for node in index.nodes.values() if node.deploy_labels)


@final
class CurrentParameters:
    """The parameters of the policy that counts, and the moments when they change."""

    def __init__(self, objects: "OperatorObjects") -> None:
        self._objects = objects
        self.parameters: LabelParameters | None = None
        self.is_read = True
        """Whether every ClusterPolicy could be read: otherwise nodes keep their labels as they are."""
        self.is_policy_going = False
        """Whether the policy is being deleted, so that labels are removed at once."""
        self.changes: EventSource[str] = EventSource()
        self._read()

    def object_changed(self, key: str) -> None:
        """Compare after a change of an object; most change nothing here, such as those of a status."""
        before = self.parameters, self.is_policy_going, self.is_read
        self._read()
        if before != (self.parameters, self.is_policy_going, self.is_read):
            self.changes.publish(key)

    def _read(self) -> None:
        policy, drivers = self._objects.active, self._objects.driver_store
        self.is_read = not self._objects.policy_store.unread
        self.parameters = label_parameters(policy, drivers.by_name.values(), unread=drivers.unread)
        self.is_policy_going = policy is not None and self.parameters is None


def current_parameters(context: ControllerContext) -> CurrentParameters:
    found = CurrentParameters(context.stores.operator_objects)
    context.follow(context.stores.operator_objects.changes, found.object_changed)
    return found


@final
class NodeDeployLabels:
    """Writes the labels of one node."""

    def __init__(
        self,
        client: "KubeClient",
        index: "IndexFigures",
        current: CurrentParameters,
        *,
        stores: "InformerStores",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._index = index
        self._current = current
        self._stores = stores
        self._recorder = recorder
        self._now = now
        self._held_since: dict[NodeName, dict[Hold, float]] = {}
        # node with a removal that waits -> since when
        self._restored: dict[NodeName, tuple[float, frozenset[str]]] = {}
        # node -> when labels were put back last, and the keys that were reported
        self._noted: dict[NodeName, frozenset[str]] = {}
        # node with a mistake -> messages that were reported
        self._expected: Expectations[NodeName, dict[str, object]] = Expectations(now)

    async def reconcile(self, name: "NodeName") -> float | None:
        """Write the difference; return the seconds until a hold is over."""
        node = self._index.nodes.get(name)
        if node is None:
            self._forget(name)
            return None
        if not self._current.is_read:
            # A hold that began while it was unknown whether a policy counts has not begun.
            self._held_since.pop(name, None)
            return None
        now = self._now().monotonic
        expired = self._expired(name, now)
        change = deploy_labels(
            labelled_node(
                self._index,
                node,
                self._stores.inventories.by_name.get(name),
                is_joining=_is_joining(self._stores, node),
            ),
            self._current.parameters,
            expired=expired,
        )
        self._keep_time(name, change, expired, now=now)
        self._record(node, change)
        if not change:
            return self._next_s(name, now)
        paused_s = self._pause_s(name, change, now)
        if paused_s > 0:
            return paused_s
        return await self._write(node, change)

    def _forget(self, name: "NodeName") -> None:
        for entries in (self._held_since, self._restored, self._noted):
            entries.pop(name, None)

    def _expired(self, name: "NodeName", now: float) -> frozenset[Hold]:
        since = self._held_since.get(name, {})
        over = {hold for hold, at in since.items() if now - at >= HOLD_S}
        return frozenset(over | {Hold.POLICY} if self._current.is_policy_going else over)

    def _keep_time(
        self, name: "NodeName", change: LabelChange, expired: frozenset[Hold], *, now: float
    ) -> None:
        """Remember when holds began; one that is over is remembered until its change is written."""
        held_since = self._held_since.pop(name, {})
        since = {hold: held_since.get(hold, now) for hold in change.held}
        if change:
            since |= {hold: at for hold, at in held_since.items() if hold in expired}
        if since:
            self._held_since[name] = since

    def _next_s(self, name: "NodeName", now: float) -> float | None:
        since = self._held_since.get(name)
        return max(0.0, min(since.values()) + HOLD_S - now) if since else None

    def _pause_s(self, name: "NodeName", change: LabelChange, now: float) -> float:
        """Return how long to wait before labels are put back again."""
        if not change.restored or name not in self._restored:
            return 0.0
        return self._restored[name][0] + RESTORE_PAUSE_S - now

    async def _write(self, node: "NodeFacts", change: LabelChange) -> float | None:
        desired: dict[str, object] = {}
        if change.labels:
            desired["labels"] = dict(change.labels)
        if change.annotations:
            desired["annotations"] = dict(change.annotations)
        current = ObjectMeta(name=node.name, uid=node.uid, resource_version=node.resource_version)
        if self._expected.unseen(node.name, current) == desired:
            return self._next_s(node.name, self._now().monotonic)
        # Of a newer object another writer may have changed the labels.
        body = {"metadata": {**desired, "resourceVersion": node.resource_version}}
        try:
            await self._client.merge_patch(NODES, body, name=node.name)
        except NotFound:
            return None
        except Conflict:
            return CONFLICT_RETRY_S
        self._expected.expect_newer(node.name, desired, current)
        now = self._now().monotonic
        since = self._held_since.pop(node.name, {})
        if held := {hold: since.get(hold, now) for hold in change.held}:
            self._held_since[node.name] = held
        self._note_restored(node, change, now)
        _log.info("node labelled for operands", node=node.name, labels=len(change.labels))
        return self._next_s(node.name, now)

    def _note_restored(self, node: "NodeFacts", change: LabelChange, now: float) -> None:
        if not change.restored:
            return
        _, reported = self._restored.get(node.name, (0.0, frozenset()))
        new = [key for key in change.restored if key not in reported]
        self._restored[node.name] = (now, reported.union(new))
        if not new:
            return
        self._recorder.normal(
            _reference(node),
            EventReason.OPERAND_RESTORED,
            f"{', '.join(new)}: another client removed or changed what the ClusterPolicy puts on the node; it is put"
            " back. To keep an operand away, set its label to false",
            action=ACTION,
        )

    def _record(self, node: "NodeFacts", change: LabelChange) -> None:
        """Report mistakes in labels, each once as long as it stays."""
        found = frozenset(note.message for note in change.notes if note.is_reported)
        before = self._noted.pop(node.name, frozenset())
        if found:
            self._noted[node.name] = found
        for message in sorted(found - before):
            self._recorder.warning(
                _reference(node),
                EventReason.OPERAND_LABELS_WRONG,
                message,
                action=ACTION,
            )


def _is_joining(stores: "InformerStores", node: "NodeFacts") -> bool:
    """Say whether a device of the node waits for NVIDIA's device plugin to leave."""
    inventory = stores.inventories.by_name.get(node.name)
    pending = (inventory.status.pools.pending if inventory is not None else None) or ()
    names = {name for item in pending for name in item.devices}
    is_away = PLUGIN_LABEL not in node.labels
    return any(
        waits_for_plugin(device, is_pending=device.name in names, is_away=is_away)
        for device in stores.devices.on_node(node.name)
    )


def _reference(node: "NodeFacts") -> ObjectReference:
    return ObjectReference.to(NODES, ObjectMeta(name=node.name, uid=node.uid))


def _all_nodes(context: ControllerContext, _key: str) -> "Iterable[NodeName]":
    return list(context.index.nodes)


SPEC: Final = ControllerSpec(
    name="node.deploy-labels",
    rbac=RBAC,
    workers=WORKERS,
    triggers=(
        INDEX_NODES,
        Trigger(source=inventories),
        Trigger(source=lambda context: context.shared(current_parameters).changes, keys=_all_nodes),
        # Which devices are about to join a pool.
        Trigger(source=lambda context: context.stores.devices.changes),
    ),
    is_enabled=lambda settings: settings.node_software.is_enabled,
    build=lambda context: (
        NodeDeployLabels(
            context.client,
            context.index,
            context.shared(current_parameters),
            stores=context.stores,
            recorder=context.recorder,
            now=context.now,
        ).reconcile
    ),
)
