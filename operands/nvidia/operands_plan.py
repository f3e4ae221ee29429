"""What a ClusterPolicy and NVIDIADrivers bring to each node, and why not more, without a cluster.

The objects are built as the controllers build them. A state runs on a node where the selector of one of its DaemonSets
matches the labels that the node has, or will have once `node.deploy-labels` has labelled it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX, DEPLOYED
from api.kinds.nvidia.clusterpolicy import ClusterPolicy, active_policy
from api.names import DRIVER_OWNER_LABEL
from api.text import listed
from operands.asset_files import load_assets
from operands.nvidia import driver_daemonsets
from operands.nvidia.deploy_labels import deploy_labels, label_parameters
from operands.nvidia.deploy_record import DEPLOY_LABELS
from operands.nvidia.driver_daemonsets import DRIVER_STATE, DriverOperands
from operands.nvidia.driver_owners import (
    DriverSurvey,
    driver_owners,
    idle_text,
    owner_value,
    survey_drivers,
)
from operands.nvidia.drivers.groups import DriverGrouping, software_without_driver
from operands.nvidia.label_change import LabelReason
from operands.nvidia.node_software import RUNTIME_LABEL, HostSoftware, recorded_software
from operands.nvidia.policy_operands import PolicyOperands, StateSettingsError
from operands.nvidia.policy_states import POLICY_STATES
from operands.nvidia.states import driver as state_driver
from operands.operand_state import ALL_KINDS_SERVED, OperandState
from operands.transforms import pod_spec_of

if TYPE_CHECKING:
    from api.kinds.nvidia.nvidiadriver import NVIDIADriver
    from api.kinds.nvidia.sandbox_operands import WorkloadType
    from operands.nvidia.label_change import LabelChange, LabelledNode

Json = dict[str, Any]

_VGPU_MANAGER: Final = "state-vgpu-manager"


class PlanReason(Enum):
    """Why a state does not run on a node, where no label and no fault of the state says so."""

    SOFTWARE_UNKNOWN = "NodeSoftwareUnknown"
    """The node's software is unknown, and the image or the DaemonSet depends on it."""
    NOT_SELECTED = "NotSelected"
    """The DaemonSet selects a label that the node does not have."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OperandSources:
    """What a plan is made of."""

    policies: Sequence[ClusterPolicy]
    """One at least; the oldest counts."""
    drivers: "Sequence[NVIDIADriver]" = ()
    nodes: "Mapping[str, LabelledNode]"
    namespace: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Image variables."""
    config_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """ConfigMap -> its keys."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StateOnNode:
    """A state on one node: by which DaemonSet it runs, or why it does not."""

    state: str
    daemon_set: str = ""
    """Empty: it does not run."""
    images: tuple[tuple[str, str], ...] = ()
    """Container and image, the operand's own first; without init containers."""
    reason: str = ""
    message: str = ""

    @property
    def runs(self) -> bool:
        return bool(self.daemon_set)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The software of one node with a GPU."""

    name: str
    workload: "WorkloadType | None"
    """None: the node gets no operands."""
    software: HostSoftware
    driver: str
    """Kind and name of the object that describes its driver; empty: none does."""
    states: tuple[StateOnNode, ...] = ()
    """Those that are on, in their order; without those of another workload type."""
    notes: tuple[str, ...] = ()
    """Notes about the node as a whole, or its driver."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFault:
    """Something that has to be mended: a state that cannot be built, NVIDIADrivers that contradict each other."""

    subject: str
    reason: str
    message: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OperandPlan:
    policy: str
    ignored: tuple[str, ...] = ()
    """Further ClusterPolicies."""
    nodes: tuple[NodePlan, ...] = ()
    """Those with a GPU, by name."""
    without_gpu: tuple[str, ...] = ()
    cluster: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """State without a DaemonSet -> kind and name of its objects."""
    off: Mapping[str, str] = field(default_factory=dict)
    """State that is switched off -> why."""
    faults: tuple[PlanFault, ...] = ()
    hints: tuple[str, ...] = ()
    """Worth a look, and no fault."""


def plan_operands(sources: OperandSources) -> OperandPlan:
    """Return what runs where.

    Raises:
        ValueError: there is no ClusterPolicy.
    """
    policy = active_policy(sources.policies)
    if policy is None:
        raise ValueError("there is no ClusterPolicy")
    labelled = _labelled(sources, policy)
    survey = _surveyed(sources, policy, labelled)
    built = _built(sources, policy, labelled)
    return OperandPlan(
        policy=policy.metadata.name,
        ignored=tuple(
            sorted(item.metadata.name for item in sources.policies if item is not policy)
        ),
        nodes=tuple(_node_plan(item, policy, built, survey=survey) for item in labelled),
        without_gpu=tuple(sorted(name for name, item in sources.nodes.items() if not item.has_gpu)),
        cluster={
            item.name: item.objects
            for item in built
            if item.is_on and not item.gate and not item.fault
        },
        off={item.name: item.off for item in built if item.off},
        faults=(
            *(item.fault for item in built if item.fault),
            *_conflicts(survey),
            *_unsupported(labelled),
        ),
        hints=_hints(sources, survey),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Labelled:
    """A node with a GPU, and what `node.deploy-labels` makes of it."""

    name: str
    labels: Mapping[str, str]
    """Once it is labelled."""
    change: "LabelChange"

    @property
    def software(self) -> HostSoftware:
        return recorded_software(self.labels)


def _labelled(sources: OperandSources, policy: ClusterPolicy) -> list[_Labelled]:
    parameters = label_parameters(policy, sources.drivers)
    found = []
    for name, node in sorted(sources.nodes.items()):
        if not node.has_gpu:
            continue
        change = deploy_labels(node, parameters)
        after = {**node.labels, **change.labels}
        labels = {key: value for key, value in after.items() if value is not None}
        found.append(_Labelled(name=name, labels=labels, change=change))
    return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _BuiltState:
    """A state, or the driver of one NVIDIADriver."""

    name: str
    owner: str = ""
    """Name of the NVIDIADriver."""
    gate: str = ""
    """Label of the nodes on which its DaemonSets run; empty without a DaemonSet."""
    daemon_sets: tuple[Json, ...] = ()
    objects: tuple[str, ...] = ()
    without: Mapping[HostSoftware, str] = field(default_factory=dict)
    """Software of nodes for which there is no DaemonSet, and why."""
    off: str = ""
    """Why it is switched off."""
    fault: PlanFault | None = None

    @property
    def is_on(self) -> bool:
        return not self.off


def _built(
    sources: OperandSources, policy: ClusterPolicy, nodes: Sequence[_Labelled]
) -> list[_BuiltState]:
    """Return every state, the drivers of NVIDIADrivers at the place of the policy's."""
    settings = PolicyOperands(
        name=policy.metadata.name,
        spec=policy.spec,
        namespace=sources.namespace,
        environment=sources.environment,
        software=tuple(sorted({node.software for node in nodes if node.change.workload})),
        config_keys=sources.config_keys,
    )
    found: list[_BuiltState] = []
    for state in POLICY_STATES:
        if off := state.why_off(settings):
            found.append(_BuiltState(name=state.name, off=off))
        else:
            found.append(_build_state(state, settings, without=_without(state.name, settings)))
        if state.name == state_driver.NAME and policy.spec.driver.is_left_to_driver_objects:
            found += _drivers(sources, policy, nodes)
    return found


def _without(state: str, settings: PolicyOperands) -> Mapping[HostSoftware, str]:
    if state == _VGPU_MANAGER:
        return software_without_driver(settings.software, DriverGrouping.SYSTEM)
    return state_driver.nodes_without_driver(settings) if state == state_driver.NAME else {}


def _drivers(
    sources: OperandSources, policy: ClusterPolicy, nodes: Sequence[_Labelled]
) -> list[_BuiltState]:
    """Return the driver of each NVIDIADriver, for the nodes that its label is on."""
    found: list[_BuiltState] = []
    for item in sorted(sources.drivers, key=lambda driver: driver.metadata.name):
        name = item.metadata.name
        owned = {n.software for n in nodes if n.labels.get(DRIVER_OWNER_LABEL) == owner_value(name)}
        if item.metadata.deletion_timestamp is not None or not owned:
            continue
        operands = DriverOperands(
            name=name,
            uid=item.metadata.uid,
            spec=item.spec,
            namespace=sources.namespace,
            environment=sources.environment,
            host_paths=policy.spec.host_paths,
            software=tuple(sorted(owned)),
            daemonsets=policy.spec.daemonsets,
            config_keys=sources.config_keys,
        )
        without = driver_daemonsets.nodes_without_driver(operands)
        found.append(_build_state(DRIVER_STATE, operands, without=without, owner=name))
    return found


def _build_state(
    state: "OperandState[Any]",
    settings: object,
    *,
    without: Mapping[HostSoftware, str],
    owner: str = "",
) -> _BuiltState:
    gate = _gate_of(load_assets(state.name))
    try:
        objects = state.objects(settings, ALL_KINDS_SERVED)
    except StateSettingsError as error:
        subject = f"NVIDIADriver {owner}" if owner else state.name
        fault = PlanFault(subject=subject, reason=error.fault.value, message=str(error))
        return _BuiltState(name=state.name, owner=owner, gate=gate, fault=fault)
    return _BuiltState(
        name=state.name,
        owner=owner,
        gate=_gate_of(objects) or gate,
        daemon_sets=tuple(object_ for object_ in objects if object_["kind"] == "DaemonSet"),
        objects=tuple(f"{object_['kind']}/{object_['metadata']['name']}" for object_ in objects),
        without=without,
    )


def _gate_of(objects: Sequence[Json]) -> str:
    """Return the deploy label by which the DaemonSets select nodes; empty without a DaemonSet."""
    for object_ in objects:
        if object_["kind"] == "DaemonSet":
            selector = pod_spec_of(object_).get("nodeSelector", {})
            return next((key for key in selector if key.startswith(DEPLOY_LABEL_PREFIX)), "")
    return ""


def _surveyed(
    sources: OperandSources, policy: ClusterPolicy, nodes: Sequence[_Labelled]
) -> DriverSurvey | None:
    """Return which NVIDIADriver owns which node; None where the policy describes the driver."""
    if not policy.spec.driver.is_left_to_driver_objects:
        return None
    owners = driver_owners(sources.drivers)
    return survey_drivers(owners, {node.name: node.labels for node in nodes})


def _conflicts(survey: DriverSurvey | None) -> tuple[PlanFault, ...]:
    if survey is None:
        return ()
    distinct = {conflict.drivers: conflict for conflict in survey.conflicts.values()}
    return tuple(
        PlanFault(
            subject=f"NVIDIADrivers {', '.join(drivers)}",
            reason=LabelReason.OWNER_CONFLICT.value,
            message=item.text,
        )
        for drivers, item in sorted(distinct.items())
    )


def _unsupported(nodes: Sequence[_Labelled]) -> tuple[PlanFault, ...]:
    reason = LabelReason.OS_UNSUPPORTED
    found = {
        node.name: note.message
        for node in nodes
        for note in node.change.notes
        if note.reason is reason
    }
    return tuple(
        PlanFault(
            subject=f"nodes {listed([name for name, of in found.items() if of == message])}",
            reason=reason.value,
            message=message,
        )
        for message in sorted(set(found.values()))
    )


def _hints(sources: OperandSources, survey: DriverSurvey | None) -> tuple[str, ...]:
    if survey is None:
        names = sorted(driver.metadata.name for driver in sources.drivers)
        return tuple(
            f"NVIDIADriver {name} does nothing: spec.driver.useNvidiaDriverCRD of the ClusterPolicy is not set"
            for name in names
        )
    claims = driver_owners(sources.drivers).claims
    return tuple(idle_text(claim) for claim in claims if survey.is_idle(claim.name))


def _node_plan(
    node: _Labelled,
    policy: ClusterPolicy,
    built: Sequence[_BuiltState],
    *,
    survey: DriverSurvey | None,
) -> NodePlan:
    found = (_on_node(node, item) for item in built if item.is_on and item.gate)
    states = [item for item in found if item is not None]
    notes = [
        note
        for note in node.change.notes
        if note.key not in DEPLOY_LABELS or note.reason is LabelReason.FOREIGN
    ]
    owner = next((note for note in notes if note.key == DRIVER_OWNER_LABEL), None)
    if owner is not None and all(item.state != state_driver.NAME for item in states):
        notes.remove(owner)
        states.insert(
            0,
            StateOnNode(state=state_driver.NAME, reason=owner.reason.value, message=owner.message),
        )
    return NodePlan(
        name=node.name,
        workload=node.change.workload,
        software=node.software,
        driver=_driver_of(node, policy, survey),
        states=tuple(states),
        notes=tuple(note.message for note in notes),
    )


def _driver_of(node: _Labelled, policy: ClusterPolicy, survey: DriverSurvey | None) -> str:
    if survey is None:
        return f"ClusterPolicy {policy.metadata.name}" if policy.spec.driver.is_enabled else ""
    owner = node.labels.get(DRIVER_OWNER_LABEL, "")
    names = [name for name in survey.nodes_by_driver if owner_value(name) == owner]
    return f"NVIDIADriver {names[0] if names else owner}" if owner else ""


def _on_node(node: _Labelled, built: _BuiltState) -> StateOnNode | None:
    """Return what becomes of a state on a node; None where the node's workload type does not have it."""
    if built.owner and node.labels.get(DRIVER_OWNER_LABEL) != owner_value(built.owner):
        return None
    if node.labels.get(built.gate) != DEPLOYED:
        note = next((item for item in node.change.notes if item.key == built.gate), None)
        if note is None:
            return None
        return StateOnNode(state=built.name, reason=note.reason.value, message=note.message)
    if built.fault is not None:
        return StateOnNode(state=built.name, reason=built.fault.reason, message=built.fault.message)
    for set_ in built.daemon_sets:
        if _missing(set_, node.labels) == {}:
            spec = pod_spec_of(set_)
            images = tuple(
                (container["name"], container["image"]) for container in spec["containers"]
            )
            name = set_["metadata"]["name"]
            return StateOnNode(state=built.name, daemon_set=name, images=images)
    return _not_selected(node, built)


def _missing(daemon_set: Json, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that the DaemonSet selects and the node does not have."""
    selector = pod_spec_of(daemon_set).get("nodeSelector", {})
    return {key: value for key, value in selector.items() if labels.get(key) != value}


def _not_selected(node: _Labelled, built: _BuiltState) -> StateOnNode:
    unknown = PlanReason.SOFTWARE_UNKNOWN.value
    if text := built.without.get(node.software):
        return StateOnNode(state=built.name, reason=unknown, message=text)
    selected = [_missing(set_, node.labels) for set_ in built.daemon_sets]
    if not node.software.runtime and all(RUNTIME_LABEL in item for item in selected):
        text = f"the node's container runtime is not known: set {RUNTIME_LABEL} to containerd, cri-o or docker"
        return StateOnNode(state=built.name, reason=unknown, message=text)
    absent = min(selected, key=len, default={})
    labels_text = ", ".join(f"{key}={value}" for key, value in sorted(absent.items()))
    text = (
        f"the node does not have the label {labels_text}" if labels_text else "it has no DaemonSet"
    )
    return StateOnNode(state=built.name, reason=PlanReason.NOT_SELECTED.value, message=text)
