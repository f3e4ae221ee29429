"""`nvidiadriver`: the driver of one NVIDIADriver on the nodes that it owns, its status, and its end.

It counts while the ClusterPolicy sets `driver.useNvidiaDriverCRD`; otherwise its objects are removed. Which node it owns
says a label of the node, which another controller sets. Two that select one node change nothing: both say so. Nor does
anything change without a ClusterPolicy, or while one or an NVIDIADriver exists that this version cannot read: only a
ClusterPolicy that is being deleted, or that says otherwise, removes a driver.
A DaemonSet of a group of nodes goes once no node is left that it selects and no pod of it either, so that a node whose
labels change does not lose its driver for that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from api.kinds.nvidia.nvidiadriver import NVIDIADriverState
from api.names import DRIVER_OWNER_LABEL, OPERAND_LABEL, POLICY_DRIVER_LABEL
from api.text import listed
from kube.backoff import Backoff
from kube.errors import Conflict
from kube.event_recorder import ObjectReference
from kube.resources import NVIDIA_DRIVERS
from operands.nvidia.daemon_set_readiness import selected_nodes
from operands.nvidia.driver_daemonsets import (
    DRIVER_STATE,
    DriverOperands,
    config_maps_of_driver,
    nodes_without_driver,
)
from operands.nvidia.driver_owners import (
    driver_owners,
    idle_text,
    owner_value,
    survey_drivers,
)
from operands.nvidia.policy_status import (
    BadReason,
    GoodReason,
    OverallReadiness,
    StateFacts,
    overall_readiness,
    state_status,
    with_unsupported,
)
from reconciler.controller_spec import ControllerSpec, Trigger
from reconciler.node_software.config_map_keys import ConfigMapKeys
from reconciler.node_software.daemon_pods import DaemonSetRollouts
from reconciler.node_software.desired_states import desired_state
from reconciler.node_software.gpu_nodes import gpu_nodes, software_groups
from reconciler.node_software.objects import RESOURCES, SoftwareObjects
from reconciler.node_software.operator_status_writer import OperatorStatusWriter
from reconciler.node_software.state_outcomes import StateOutcome, refusal_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from api.clock import Instant
    from api.kinds.nvidia.clusterpolicy import ClusterPolicy
    from api.kinds.nvidia.nvidiadriver import NVIDIADriver
    from kube.client import KubeClient, Propagation
    from kube.event_recorder import EventRecorder
    from operands.nvidia.driver_owners import DriverOwners
    from operands.nvidia.node_software import HostSoftware
    from reconciler.controller_spec import ControllerContext, Reconcile
    from reconciler.node_software.gpu_nodes import GpuNodes
    from reconciler.settings import NodeSoftwareParameters
    from reconciler.sinks.operator_objects import OperatorObjects

Json = dict[str, Any]

FIELD_MANAGER: Final = "gpu-control-plane/nvidiadriver"
KIND: Final = "NVIDIADriver"
KINDS: Final = {
    kind: resource
    for kind, resource in RESOURCES.items()
    if kind not in {"RuntimeClass", "Service", "ServiceMonitor", "PrometheusRule"}
}
"""Kinds of the objects of a driver."""
NOT_READY_S: Final = 5.0
RECHECK_S: Final = 10.0
REMOVAL_S: Final = 1.0
MOST_REFUSED_S: Final = 60.0
CONFLICT_RETRY_S: Final = 0.5
NODES_GATHER_S: Final = 0.5
_NO_POLICY: Final = (
    "there is no ClusterPolicy: create one with spec.driver.useNvidiaDriverCRD; until then what this driver has stays as"
    " it is, and nothing is added"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _DriverSoftware:
    """What is kept of one NVIDIADriver."""

    software: SoftwareObjects
    refused: Backoff


@final
class DriverController:
    """Reconciles one NVIDIADriver at a time."""

    def __init__(
        self,
        client: "KubeClient",
        objects: "OperatorObjects",
        nodes: "GpuNodes",
        *,
        parameters: "NodeSoftwareParameters",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._objects = objects
        self._nodes = nodes
        self._parameters = parameters
        self._recorder = recorder
        self._now = now
        self._rollouts = DaemonSetRollouts(client, parameters.namespace, now)
        self._config_maps = ConfigMapKeys(client, parameters.namespace)
        self._status = OperatorStatusWriter(
            client,
            NVIDIA_DRIVERS,
            field_manager=FIELD_MANAGER,
            namespace=parameters.namespace,
            now=now,
        )
        self._drivers: dict[str, _DriverSoftware] = {}

    async def reconcile(self, name: str) -> float | None:
        """Take the next step; return when to reconcile again."""
        if self._objects.unread:
            return None
        driver = self._objects.drivers.get(name)
        if driver is None:
            self._drivers.pop(name, None)
            return None
        driver_software = self._drivers.setdefault(name, self._new_software(name))
        try:
            return await self._reconcile(driver, driver_software)
        except Conflict:
            return CONFLICT_RETRY_S

    async def _reconcile(
        self, driver: "NVIDIADriver", driver_software: _DriverSoftware
    ) -> float | None:
        policy = self._objects.active
        if driver.metadata.deletion_timestamp is not None:
            if not self._status.has_finalizer(driver):
                return None
            pause = await self._remove(driver, driver_software, propagation="Foreground")
            if pause is None:
                await self._status.remove_finalizer(driver)
            return pause
        if policy is None:
            overall = OverallReadiness(reason=BadReason.PREREQUISITE_NOT_MET, message=_NO_POLICY)
            return await self._refuse(driver, overall)
        if policy.metadata.deletion_timestamp is not None:
            text = f"ClusterPolicy {policy.metadata.name} is being deleted"
            return await self._switch_off(driver, driver_software, text, propagation="Foreground")
        if not policy.spec.driver.is_left_to_driver_objects:
            text = (
                f"ClusterPolicy {policy.metadata.name} describes the driver of all nodes: set its"
                " spec.driver.useNvidiaDriverCRD, or delete this object"
            )
            # The pods stay for the ClusterPolicy's driver, which replaces them node by node.
            takes_over = policy.spec.driver.is_enabled
            how: Propagation = "Orphan" if takes_over else "Foreground"
            return await self._switch_off(driver, driver_software, text, propagation=how)
        await self._status.add_finalizer(driver)
        labels = self._nodes.labels_by_node()
        owners = driver_owners(self._objects.drivers.values())
        conflict = survey_drivers(owners, labels).conflict_of(driver.metadata.name)
        if conflict is not None:
            overall = OverallReadiness(
                reason=BadReason.CONFLICTING_NODE_SELECTOR, message=conflict.text
            )
            return await self._refuse(driver, overall)
        return await self._serve(driver, policy, driver_software, owners=owners)

    async def _serve(
        self,
        driver: "NVIDIADriver",
        policy: "ClusterPolicy",
        driver_software: _DriverSoftware,
        *,
        owners: "DriverOwners",
    ) -> float:
        name, labels = driver.metadata.name, self._nodes.labels_by_node()
        # Of the same moment: what is built is not for a node that gets its labels meanwhile.
        nodes = {**labels, **self._nodes.labels_by_new_node()}
        value = owner_value(name)
        owned = {
            node: item for node, item in labels.items() if item.get(DRIVER_OWNER_LABEL) == value
        }
        operands = await self._operands(driver, policy, software_groups(owned))
        live = await driver_software.software.read()
        desired = desired_state(
            DRIVER_STATE, operands, live.served, without=nodes_without_driver(operands)
        )
        outcomes = await driver_software.software.apply(
            [desired],
            live,
            propagation=lambda _state: "Foreground",
            keeps=lambda kind, found: kind == "DaemonSet" and _is_in_use(found, labels),
            owner=ObjectReference.to(NVIDIA_DRIVERS, driver.metadata),
            nodes=nodes,
        )
        outcome = outcomes[DRIVER_STATE.name]
        facts = StateFacts(
            name=DRIVER_STATE.name,
            objects=outcome.objects,
            fault=outcome.fault,
            left=tuple(outcome.left),
            daemon_sets=await self._rollouts.readiness(outcome.daemon_sets, labels),
        )
        states = [
            state_status(facts, current=self._status.current_states(driver), now=self._now().utc)
        ]
        overall = overall_readiness(
            f"{KIND} {name}",
            states,
            has_nfd_labels=True,
            has_gpu_nodes=bool(owned),
            unlabelled=owners.unlabelled_nodes(name, nodes),
        )
        claim = owners.claim(name)
        if overall.reason is GoodReason.NO_GPU_NODES and claim is not None:
            overall = OverallReadiness(reason=overall.reason, message=idle_text(claim))
        unsupported = {
            node: why
            for node, why in self._nodes.unsupported().items()
            if owners.owner_of(labels[node]) == name
        }
        overall = with_unsupported(overall, f"{KIND} {name}", unsupported)
        state = NVIDIADriverState.READY if overall.is_good else NVIDIADriverState.NOT_READY
        await self._status.write(driver, state=state, overall=overall, states=states)
        return _pause_s(outcome, driver_software.refused, is_good=overall.is_good)

    async def _operands(
        self,
        driver: "NVIDIADriver",
        policy: "ClusterPolicy",
        software: "tuple[HostSoftware, ...]",
    ) -> DriverOperands:
        def built(config_keys: Mapping[str, tuple[str, ...]]) -> DriverOperands:
            return DriverOperands(
                name=driver.metadata.name,
                uid=driver.metadata.uid,
                spec=driver.spec,
                namespace=self._parameters.namespace,
                environment=self._parameters.environment,
                host_paths=policy.spec.host_paths,
                software=software,
                daemonsets=policy.spec.daemonsets,
                config_keys=config_keys,
            )

        return built(await self._config_maps.of(config_maps_of_driver(built({}))))

    async def _refuse(self, driver: "NVIDIADriver", overall: OverallReadiness) -> float:
        """Say why nothing changes; what it has stays."""
        await self._status.write(
            driver,
            state=NVIDIADriverState.NOT_READY,
            overall=overall,
            states=self._status.current_states(driver),
        )
        return NOT_READY_S

    async def _switch_off(
        self,
        driver: "NVIDIADriver",
        driver_software: _DriverSoftware,
        cause: str,
        *,
        propagation: "Propagation",
    ) -> float | None:
        pause = await self._remove(driver, driver_software, propagation=propagation)
        if pause is None:
            overall = OverallReadiness(reason=BadReason.PREREQUISITE_NOT_MET, message=cause)
            state = NVIDIADriverState.DISABLED
            await self._status.write(driver, state=state, overall=overall, states=())
        return pause

    async def _remove(
        self,
        driver: "NVIDIADriver",
        driver_software: _DriverSoftware,
        *,
        propagation: "Propagation",
    ) -> float | None:
        """Take the next step of removing its objects; None once nothing is left."""
        live = await driver_software.software.read()
        left, refusals = await driver_software.software.remove_all(
            live,
            owner=ObjectReference.to(NVIDIA_DRIVERS, driver.metadata),
            propagation=propagation,
        )
        if refusals:
            await self._report_removal(driver, refusal_text(refusals[0]))
            return driver_software.refused.fail()
        driver_software.refused.succeed()
        if left:
            await self._report_removal(driver, f"still there: {listed(left)}")
        return REMOVAL_S if live.objects else None

    async def _report_removal(self, driver: "NVIDIADriver", left: str) -> None:
        overall = OverallReadiness(
            reason=BadReason.OPERAND_NOT_READY, message=f"{KIND} is being removed; {left}"
        )
        await self._refuse(driver, overall)

    def _new_software(self, name: str) -> _DriverSoftware:
        return _DriverSoftware(
            software=SoftwareObjects(
                self._client,
                self._recorder,
                self._now,
                namespace=self._parameters.namespace,
                field_manager=FIELD_MANAGER,
                label_selector=f"{OPERAND_LABEL},{POLICY_DRIVER_LABEL}={owner_value(name)}",
                resources=KINDS,
            ),
            refused=Backoff(base_s=NOT_READY_S, cap_s=MOST_REFUSED_S, jitter=0),
        )


def _is_in_use(found: Json, labels: Mapping[str, Mapping[str, str]]) -> bool:
    """Say whether a DaemonSet has pods, or a node that it selects."""
    status = found.get("status") or {}
    pods = status.get("desiredNumberScheduled", 0) + status.get("numberMisscheduled", 0)
    return bool(pods) or bool(selected_nodes(found, labels))


def _pause_s(outcome: StateOutcome, refused: Backoff, *, is_good: bool) -> float:
    if outcome.refusals:
        return refused.fail()
    refused.succeed()
    if outcome.left:
        return REMOVAL_S
    return RECHECK_S if is_good else NOT_READY_S


@final
class DriverClaims:
    """Decides which NVIDIADrivers a change concerns: those whose claims could meet, and else the changed one."""

    def __init__(self, objects: "OperatorObjects") -> None:
        self._objects = objects
        self._owners: DriverOwners | None = None

    def concerned(self, key: str) -> "Iterable[str]":
        """Return the names of drivers to reconcile after a change of `<Kind>/<name>`."""
        kind, _, name = key.partition("/")
        store = self._objects.driver_store
        owners = driver_owners(store.by_name.values(), unread=store.unread)
        is_changed, self._owners = owners != self._owners, owners
        if kind != KIND or is_changed:
            return sorted({*self._objects.drivers, *([name] if kind == KIND else ())})
        return (name,)


def driver_claims(context: "ControllerContext") -> DriverClaims:
    return DriverClaims(context.stores.operator_objects)


def _all_drivers(context: "ControllerContext") -> "tuple[Hashable, ...]":
    return tuple(sorted(context.stores.operator_objects.drivers))


def _build(context: "ControllerContext") -> "Reconcile":
    return DriverController(
        context.client,
        context.stores.operator_objects,
        context.shared(gpu_nodes),
        parameters=context.settings.node_software,
        recorder=context.recorder,
        now=context.now,
    ).reconcile


SPEC: Final = ControllerSpec(
    name="nvidiadriver",
    triggers=(
        Trigger(
            source=lambda context: context.stores.operator_objects.changes,
            keys=lambda context, key: context.shared(driver_claims).concerned(key),
        ),
        Trigger(
            source=lambda context: context.shared(gpu_nodes).changes,
            keys=lambda context, _node: _all_drivers(context),
            delay_s=NODES_GATHER_S,
        ),
    ),
    initial=_all_drivers,
    is_enabled=lambda settings: settings.node_software.is_enabled,
    build=_build,
)
