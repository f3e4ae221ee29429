"""Actions of an upgrade at the API server: each says what it changes only if that is still as it was read.

A Node is read again before it is written, and written by its resourceVersion, so that two writers never undo each other.
What is there already is not written.
"""

from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    CORDON_MANAGER,
    DEPLOYED,
    DRIVER_UPGRADE,
    PAUSED_FOR_UPGRADE,
    UNITS_WITHHELD_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UpgradeState,
)
from api.foreign.core import Node
from kube.errors import Conflict, NotFound, TooManyRequests
from kube.event_recorder import ObjectReference
from kube.resources import NODES, PODS
from manifests.install.rbac import PolicyRule
from operands.upgrade import actions as acts
from reconciler.runtime.eviction import BUDGET_CAUSE, Eviction
from telemetry.metrics import EVICTIONS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from operands.upgrade.actions import NodeUpgrade, UpgradeAction
    from reconciler.driver_upgrade.eviction_budgets import RefusedEvictions
    from reconciler.driver_upgrade.upgrading_nodes import UpgradingNode

Json = dict[str, Any]

RBAC: Final = (
    PolicyRule(resources=("nodes",), verbs=("get", "patch")),
    PolicyRule(resources=("pods/eviction",), verbs=("create",)),
)
NAMESPACED_RBAC: Final = (PolicyRule(resources=("pods",), verbs=("delete",)),)
ACTION: Final = "UpgradeDriver"
"""Action of events."""
_ATTEMPTS: Final = 4
"""Writes of one change: kubelet and others write the Node, too."""

_log = structlog.get_logger()


class OvertakenError(Exception):
    """Another client changed what the action is for: the next pass decides again."""


@final
class NodeActions:
    """Carries out what is decided for one node after the other."""

    def __init__(
        self,
        client: "KubeClient",
        recorder: "EventRecorder",
        refused: "RefusedEvictions",
        *,
        monotonic: "Callable[[], float]",
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._refused = refused
        self._monotonic = monotonic

    async def carry_out(self, answer: "NodeUpgrade", node: "UpgradingNode") -> None:
        """Carry out the actions in their order; the first that fails is the last.

        Raises:
            OvertakenError: another client was faster.
            NotFound: the node is gone.
            KubeError: an action failed, or its outcome is unknown.
        """
        for action in answer.actions:
            await self._perform(action, answer, node)

    async def _perform(
        self, action: "UpgradeAction", answer: "NodeUpgrade", node: "UpgradingNode"
    ) -> None:
        match action:
            case acts.Cordon():
                await self._cordon(node)
            case acts.Uncordon():
                await self._apply_cordon(node)
            case acts.EvictPod():
                await self._evict(action)
            case acts.DeletePod():
                await self._delete(action)
            case acts.ReportReason():
                self._report(answer, node)
            case acts.WaitUntil():
                pass
            case _:
                await self._change(node, lambda seen: change_of(action, seen))

    async def _change(self, node: "UpgradingNode", change: "Callable[[Node], Json]") -> None:
        """Write the change of metadata that the Node as it is now asks for; nothing where that is empty."""
        for attempt in range(_ATTEMPTS):
            seen = await self._read(node)
            metadata = change(seen)
            if not metadata:
                return
            metadata["resourceVersion"] = seen.metadata.resource_version
            try:
                await self._client.merge_patch(NODES, {"metadata": metadata}, name=node.name)
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return

    async def _read(self, node: "UpgradingNode") -> Node:
        seen = await self._client.get(NODES, Node, node.name)
        if seen.metadata.uid != node.uid:
            raise OvertakenError(f"node {node.name} was deleted and created again")
        return seen

    async def _cordon(self, node: "UpgradingNode") -> None:
        for attempt in range(_ATTEMPTS):
            seen = await self._read(node)
            if seen.spec.unschedulable:
                return
            try:
                version = seen.metadata.resource_version
                await self._apply_cordon(node, {"unschedulable": True}, version=version)
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return

    async def _apply_cordon(
        self, node: "UpgradingNode", spec: "Json | None" = None, *, version: str = ""
    ) -> None:
        """Apply what we say of `spec`: nothing takes back what we said, and leaves what others say.

        A cordon is of the very object that was read as schedulable, by its version.
        """
        # By its uid no other Node is made or changed.
        metadata = {"name": node.name, "uid": node.uid}
        body: Json = {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata}
        if spec is not None:
            metadata["resourceVersion"] = version
            body["spec"] = spec
        await self._client.apply(NODES, body, field_manager=CORDON_MANAGER)

    async def _evict(self, action: acts.EvictPod) -> None:
        """Ask for the eviction; a refusal by a budget is kept for the next pass, and fails nothing."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": action.name, "namespace": action.namespace},
            "deleteOptions": {"preconditions": {"uid": action.uid}},
        }
        try:
            await self._client.create(PODS, body, subresource="eviction")
        except (NotFound, Conflict):
            EVICTIONS.labels(Eviction.GONE.value).inc()
        except TooManyRequests as error:
            causes = (error.details.causes or ()) if error.details is not None else ()
            reported = next(
                (cause.message for cause in causes if cause.reason == BUDGET_CAUSE), None
            )
            if reported is None:
                EVICTIONS.labels(Eviction.FAILED.value).inc()
                raise
            EVICTIONS.labels(Eviction.REFUSED.value).inc()
            self._refused.note(action.uid, reported or error.message, self._monotonic())
        else:
            EVICTIONS.labels(Eviction.EVICTED.value).inc()
            pod = f"{action.namespace}/{action.name}"
            _log.info("pod evicted for an upgrade of the driver", pod=pod, node=action.node)

    async def _delete(self, action: acts.DeletePod) -> None:
        try:
            await self._client.delete(PODS, action.name, namespace=action.namespace, uid=action.uid)
        except (NotFound, Conflict):
            return
        _log.info("pod deleted for an upgrade of the driver", pod=action.name, node=action.node)

    def _report(self, answer: "NodeUpgrade", node: "UpgradingNode") -> None:
        progress = answer.progress
        note = (
            f"{progress.state.value or 'no upgrade'}: {progress.reason.value}: {progress.message}"
        )
        regarding = ObjectReference.to(NODES, node)
        if progress.state is UpgradeState.UPGRADE_FAILED:
            reason = EventReason.DRIVER_UPGRADE_FAILED
            self._recorder.warning(regarding, reason, note, action=ACTION)
        else:
            self._recorder.normal(regarding, EventReason.DRIVER_UPGRADE, note, action=ACTION)
        _log.info(
            "driver upgrade",
            node=progress.node,
            state=progress.state.value,
            reason=progress.reason.value,
            note=progress.message,
        )


def change_of(action: "UpgradeAction", seen: Node) -> Json:
    """Return what an action changes in the metadata of the Node as it is now; empty where all is there.

    Raises:
        OvertakenError: another client changed the state.
    """
    match action:
        case acts.WithholdUnits():
            return _difference(seen, annotations={UNITS_WITHHELD_ANNOTATION: DRIVER_UPGRADE})
        case acts.ReturnUnits():
            return _only_from(
                seen, ("annotations", UNITS_WITHHELD_ANNOTATION), before=DRIVER_UPGRADE
            )
        case acts.SetState():
            return _state_change(seen, action)
        case acts.Annotate(annotations=annotations):
            return _difference(seen, annotations=annotations)
        case _:
            return _label_change(action, seen)


def _label_change(action: "UpgradeAction", seen: Node) -> Json:
    match action:
        case acts.PauseOperand(label=label):
            return _only_from(seen, ("labels", label), before=DEPLOYED, after=PAUSED_FOR_UPGRADE)
        case acts.ResumeOperand(label=label):
            return _only_from(seen, ("labels", label), before=PAUSED_FOR_UPGRADE, after=DEPLOYED)
        case acts.ReleaseAgent():
            return _difference(seen, labels={AGENT_DEPLOY_LABEL: PAUSED_FOR_UPGRADE})
        case acts.ReturnAgent():
            return _only_from(seen, ("labels", AGENT_DEPLOY_LABEL), before=PAUSED_FOR_UPGRADE)
        case _:
            return {}


def _only_from(
    seen: Node, where: tuple[str, str], *, before: str, after: str | None = None
) -> Json:
    """Replace a value, or remove it, only while it is the one that is meant."""
    kind, key = where
    current: Mapping[str, str] = getattr(seen.metadata, kind) or {}
    return {kind: {key: after}} if current.get(key) == before else {}


def _state_change(seen: Node, action: acts.SetState) -> Json:
    label = (seen.metadata.labels or {}).get(UPGRADE_STATE_LABEL, "")
    if label != action.before:
        if label == action.state.value:
            return {}
        raise OvertakenError(f"{UPGRADE_STATE_LABEL} is {label!r}, and was {action.before!r}")
    label_after = {UPGRADE_STATE_LABEL: action.state.value or None}
    return _difference(seen, labels=label_after, annotations=action.annotations)


def _difference(
    seen: Node,
    *,
    labels: "Mapping[str, str | None] | None" = None,
    annotations: "Mapping[str, str | None] | None" = None,
) -> Json:
    """Return the part of `metadata` that is to be written; empty where all is there."""
    changed: Json = {}
    for kind, desired, current in (
        ("labels", labels or {}, seen.metadata.labels or {}),
        ("annotations", annotations or {}, seen.metadata.annotations or {}),
    ):
        different = {key: value for key, value in desired.items() if current.get(key) != value}
        if different:
            changed[kind] = different
    return changed
