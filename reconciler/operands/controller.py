"""`node.operands`: the objects of the operands in our namespace are those that the settings ask for.

What is desired is pure (`operands.nvidia.policy_states`) and depends on the settings and on the optional kinds that the
cluster serves. An object is written where it lacks a field of the desired one, by one server-side apply, and deleted
by its state's label where no state wants it. An object that cannot be written stops no other.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.names import OPERAND_LABEL
from kube.event_recorder import ObjectReference
from manifests import constants
from manifests.node.device_plugin import signed
from operands.nvidia.policy_states import BUILT_IN_STATES
from operands.rollout import outdated_nodes, unready_reason
from reconciler.controller_spec import ControllerSpec
from reconciler.operands import rights
from reconciler.operands.live_operands import RESOURCES, read_operands
from reconciler.operands.refusals import cure_of
from reconciler.runtime.live_objects import LiveObjects, ObjectName
from reconciler.runtime.object_applier import ACTION, ObjectApplier, Refusal
from reconciler.runtime.rolling_update import passing_dead_nodes
from telemetry.metrics import BOOTSTRAP_HANDLER_ERRORS, DAEMON_SET_OUTDATED
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from api.clock import Instant
    from api.names import NodeName
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from operands.nvidia.policy_operands import PolicyOperands
    from pool.model import NodeFacts

Json = dict[str, Any]

FIELD_MANAGER: Final = "gpu-control-plane/operands"
KEY: Final = "operands"
RECHECK_S: Final = 10.0
"""An object that was edited is put back within this, and a kind that comes is used."""

_log = structlog.get_logger()


@final
class NodeOperands:
    """Reconciles the objects of all operands."""

    def __init__(
        self,
        client: "KubeClient",
        settings: "PolicyOperands",
        recorder: "EventRecorder",
        *,
        now: "Callable[[], Instant]",
        nodes: "Mapping[NodeName, NodeFacts]",
    ) -> None:
        self._client = client
        self._applier = ObjectApplier(
            client,
            RESOURCES,
            field_manager=FIELD_MANAGER,
            recorder=recorder,
            now=now,
            source="bootstrap in the settings of the server",
        )
        self._settings = settings
        self._nodes = nodes
        self._recorder = recorder
        self._reported = ""
        self._unready: dict[str, str] = {}

    async def reconcile(self, _key: str) -> float | None:
        """Write differences, delete what no state wants; look again while an operand is on."""
        live = await read_operands(self._client, self._settings.namespace)
        desired = self._desired(live)
        refusals: list[Refusal | None] = [
            Refusal("", kind, "", error)
            for kind, error in live.unreadable.items()
            if desired or kind == "DaemonSet"
        ]
        for name, (state, body) in desired.items():
            is_readable, found = name[0] not in live.unreadable, live.objects.get(name)
            if is_readable and self._applier.differs(body, found):
                refusals.append(await self._applier.write(state, body, found))
        for name, found in reversed(list(live.objects.items())):
            if name not in desired:
                state = found["metadata"]["labels"][OPERAND_LABEL]
                refusals.append(await self._applier.delete(state, name, found))
                DAEMON_SET_OUTDATED.remove(name[1])
        refused = [refusal for refusal in refusals if refusal is not None]
        self._report(refused)
        self._note_rollouts(desired, live)
        return RECHECK_S if desired or refused else None

    def _desired(self, live: LiveObjects) -> dict[ObjectName, tuple[str, Json]]:
        nodes = list(self._nodes.values())
        return {
            (node["kind"], node["metadata"]["name"]): (state.name, node)
            for state in BUILT_IN_STATES
            for node in passing_dead_nodes(
                map(signed, state.objects(self._settings, live.served)), nodes
            )
        }

    def _report(self, refused: list[Refusal]) -> None:
        """Count every refusal, and report the first one once."""
        for item in refused:
            BOOTSTRAP_HANDLER_ERRORS.labels(item.state or KEY).inc()
        text = refused[0].text if refused else ""
        if text == self._reported:
            return
        self._reported = text
        if not refused:
            _log.info("operands applied again")
            return
        first, others = refused[0], len(refused) - 1
        more = f"; and {others} more objects" if others else ""
        note = f"{text}{more}. The other operands go on. {cure_of(first)}"
        resource = RESOURCES[first.kind]
        self._recorder.warning(
            ObjectReference(
                api_version=resource.api_version,
                kind=first.kind,
                name=first.name or constants.NAME,
                namespace=self._settings.namespace if resource.namespaced else "",
            ),
            EventReason.OPERAND_NOT_APPLIED,
            note,
            action=ACTION,
        )
        _log.warning("operand cannot be applied", error=text, others=others)

    def _note_rollouts(
        self, desired: Mapping[ObjectName, tuple[str, Json]], live: LiveObjects
    ) -> None:
        """Log when an operand becomes ready, or ceases to be."""
        unready: dict[str, str] = {}
        for name, (state, _) in desired.items():
            # One that was not there is written now, and judged at the next look.
            found = live.objects.get(name)
            if found is not None and name[0] == "DaemonSet":
                DAEMON_SET_OUTDATED.labels(name[1]).set(outdated_nodes(found))
            if found is not None and (reason := unready_reason(name[0], found)):
                unready.setdefault(state, f"{' '.join(name)}: {reason}")
        states = {state for state, _ in desired.values()}
        for state in sorted(states - unready.keys() & self._unready.keys()):
            _log.info("operand is ready", operand=state)
        for state, reason in unready.items():
            if state not in self._unready:
                _log.info("operand is not ready", operand=state, reason=reason)
        self._unready = unready


SPEC: Final = ControllerSpec(
    name="node.operands",
    rbac=rights.RBAC,
    namespaced_rbac=rights.NAMESPACED_RBAC,
    triggers=(),
    initial=lambda _context: (KEY,),
    build=lambda context: (
        NodeOperands(
            context.client,
            context.settings.operands,
            context.recorder,
            now=context.now,
            nodes=context.index.nodes,
        ).reconcile
    ),
)
