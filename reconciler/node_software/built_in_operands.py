"""The operands of the built-in policy, which the server's settings describe: they run where no ClusterPolicy counts.

A ClusterPolicy takes the place of all of them: an object has the same name in both, so that none is there twice.
Beside one stay Service and ServiceMonitor of the node agents' metrics, unless it brings an exporter of its own.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from kube.errors import BadRequest, Invalid
from kube.event_recorder import ObjectReference
from manifests import constants
from operands.nvidia.built_in import telemetry
from operands.nvidia.policy_states import BUILT_IN_STATES, STATE_NAMES
from reconciler.node_software.desired_states import desired_state
from reconciler.node_software.objects import RESOURCES
from reconciler.node_software.state_outcomes import cure_of
from reconciler.runtime.object_applier import ACTION
from reconciler.runtime.rolling_update import Rollouts
from telemetry.metrics import BOOTSTRAP_HANDLER_ERRORS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
    from kube.event_recorder import EventRecorder
    from operands.nvidia.policy_operands import PolicyOperands
    from operands.operand_state import ServedKinds
    from pool.model import NodeFacts
    from reconciler.node_software.state_outcomes import DesiredState, StateOutcome
    from reconciler.runtime.object_applier import Refusal

_NAMES: Final = frozenset(state.name for state in BUILT_IN_STATES)
OF_CLUSTER_POLICIES: Final = frozenset(STATE_NAMES) - _NAMES
"""States that no built-in policy has."""
_SECTIONS: Final = {
    "gpu-feature-discovery": "gfd",
    "state-dcgm": "dcgm",
    "state-dcgm-exporter": "dcgm_exporter",
    "telemetry": "dcgm_exporter",
}
"""Section of a state below `bootstrap`, where its name is another."""

_log = structlog.get_logger()


@final
class BuiltInOperands:
    """What the built-in policy is to have, and what is said where it cannot."""

    def __init__(self, policy: "PolicyOperands", recorder: "EventRecorder") -> None:
        self._policy = policy
        self._recorder = recorder
        self._reported = ""
        self._rollouts = Rollouts(recorder)

    def desired(
        self, served: "ServedKinds", *, beside: "ClusterPolicySpec | None" = None
    ) -> "list[DesiredState]":
        """Return the states to apply, beside those of the ClusterPolicy with this spec."""
        if beside is None:
            states = BUILT_IN_STATES
        elif beside.dcgm_exporter.is_enabled:
            states = ()
        else:
            states = (telemetry.STATE,)
        return [desired_state(state, self._policy, served, without={}) for state in states]

    def report(self, outcomes: "Mapping[str, StateOutcome]", nodes: "Sequence[NodeFacts]") -> None:
        """Count every refusal, report the first one once, and show how far roll-outs are."""
        own = {name: item for name, item in outcomes.items() if name in _NAMES}
        refused = [refusal for item in own.values() for refusal in item.refusals]
        for refusal in refused:
            BOOTSTRAP_HANDLER_ERRORS.labels(refusal.state).inc()
        faults = [item.fault[1] for item in own.values() if item.fault is not None]
        self._record(refused, faults)
        found = {item["metadata"]["name"]: item for of in own.values() for item in of.daemon_sets}
        for name in constants.OPERANDS:
            if name in found:
                self._rollouts.report(found[name], nodes)
            else:
                self._rollouts.forget(name)

    def _record(self, refused: "list[Refusal]", faults: list[str]) -> None:
        text = refused[0].text if refused else faults[0] if faults else ""
        if text == self._reported:
            return
        self._reported = text
        if not text:
            _log.info("operands applied again")
            return
        kind, name, cure = "DaemonSet", "", ""
        if refused:
            kind, name, cure = refused[0].kind, refused[0].name, f" {own_cure_of(refused[0])}"
        others = max(len(refused), len(faults)) - 1
        more = f"; and {others} more objects" if others else ""
        resource = RESOURCES[kind]
        self._recorder.warning(
            ObjectReference(
                api_version=resource.api_version,
                kind=kind,
                name=name or constants.NAME,
                namespace=self._policy.namespace if resource.namespaced else "",
            ),
            EventReason.OPERAND_NOT_APPLIED,
            f"{text}{more}. The other operands go on.{cure}",
            action=ACTION,
        )
        _log.warning("operand cannot be applied", error=text, others=others)


def own_cure_of(refusal: "Refusal") -> str:
    """Return what to do; a field that the API server refuses is one of the settings."""
    if not isinstance(refusal.error, Invalid | BadRequest):
        return cure_of(refusal)
    section = f"bootstrap.{_SECTIONS.get(refusal.state, refusal.state)}"
    return f"Correct {section} in the settings of the server"
