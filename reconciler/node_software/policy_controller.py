"""`node.operands`: the objects of the ClusterPolicy that counts, its status, and its end; without one, of the built-in policy.

    which policy counts -> its finalizer -> states are built -> applied, pruned -> how far their pods are -> status

States do not wait for each other: order on a node is kept by init containers. A state that cannot be built, an object of
another client and a refusal are reported in the status of that state, and the others go on.
Nothing is removed for the absence of every ClusterPolicy: kinds that are not served for a moment look the same, and a
policy that is deleted is kept by its finalizer until its objects are gone. The built-in policy waits for that, too.
Nothing changes while a ClusterPolicy exists that this version cannot read, since that one may be the one that counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.kinds.nvidia.clusterpolicy import ClusterPolicyState
from api.kinds.nvidia.operator_status import StateReadiness
from api.names import OPERAND_LABEL, POLICY_DRIVER_LABEL
from api.text import listed
from kube.backoff import Backoff
from kube.errors import Conflict, KubeError, NotFound
from kube.event_recorder import ObjectReference
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, GPU_CLUSTERS
from operands.nvidia.driver_owners import owner_value
from operands.nvidia.policy_states import POLICY_STATES
from operands.nvidia.policy_status import (
    BadReason,
    GoodReason,
    OverallReadiness,
    StateFacts,
    overall_readiness,
    state_status,
    with_unsupported,
)
from operands.nvidia.states import driver as state_driver
from reconciler.controller_spec import ControllerSpec, Trigger
from reconciler.installation.pod_security import NamespacePodSecurity
from reconciler.node_software import built_in_rights
from reconciler.node_software.built_in_operands import OF_CLUSTER_POLICIES, BuiltInOperands
from reconciler.node_software.daemon_pods import DaemonSetRollouts
from reconciler.node_software.deploy_labels_controller import nodes_with_labels
from reconciler.node_software.desired_states import PolicyStates
from reconciler.node_software.gpu_nodes import gpu_nodes, is_upgrading, software_groups
from reconciler.node_software.objects import BUILT_IN_RESOURCES, RESOURCES, SoftwareObjects
from reconciler.node_software.operator_status_writer import OperatorStatusWriter
from reconciler.node_software.state_outcomes import DesiredState, StateOutcome, refusal_text
from reconciler.operator_gauges import (
    PolicyFigures,
    ReconcileOutcome,
    forget_node_software,
    show_policy,
)
from reconciler.runtime.live_objects import list_objects
from reconciler.runtime.rolling_update import allowing_for_unready_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from api.clock import Instant
    from api.kinds.nvidia.clusterpolicy import ClusterPolicy
    from api.kinds.nvidia.operator_status import StateStatus
    from api.names import NodeName
    from kube.client import KubeClient, Propagation
    from kube.event_recorder import EventRecorder
    from operands.nvidia.policy_operands import PolicyOperands
    from operands.operand_state import OperandState
    from reconciler.controller_spec import ControllerContext, Reconcile
    from reconciler.node_software.gpu_nodes import GpuNodes
    from reconciler.runtime.live_objects import LiveObjects
    from reconciler.settings import NodeSoftwareParameters
    from reconciler.sinks.operator_objects import OperatorObjects

FIELD_MANAGER: Final = "gpu-control-plane/operands"
KEY: Final = "policy"
KIND: Final = "ClusterPolicy"
LABEL_SELECTOR: Final = f"{OPERAND_LABEL},!{POLICY_DRIVER_LABEL}"
NOT_READY_S: Final = 5.0
NFD_MISSING_S: Final = 45.0
RECHECK_S: Final = 10.0
"""An object that was edited is put back within this, and a kind that comes is used."""
REMOVAL_S: Final = 1.0
"""Seconds between two passes over objects that are being removed."""
MOST_REFUSED_S: Final = 60.0
"""Longest pause while the API server refuses an object."""
CONFLICT_RETRY_S: Final = 0.5
NODES_GATHER_S: Final = 0.5

_log = structlog.get_logger()


@final
class PolicyController:
    """Reconciles the one ClusterPolicy that counts."""

    def __init__(  # noqa: PLR0913  # stores, settings and services
        self,
        client: "KubeClient",
        objects: "OperatorObjects",
        nodes: "GpuNodes",
        *,
        parameters: "NodeSoftwareParameters",
        built_in: "PolicyOperands",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
        labelled_nodes: "Callable[[], Sequence[NodeName]]",
        states: "Sequence[OperandState[PolicyOperands]]" = POLICY_STATES,
    ) -> None:
        """Take the parts.

        Args:
            client: of the API server.
            objects: the policies.
            nodes: with a GPU.
            parameters: settings.
            built_in: the policy of the settings.
            recorder: of Events.
            now: returns the time.
            labelled_nodes: returns the nodes that still have labels of a policy, which go first.
            states: all states.
        """
        namespace = built_in.namespace
        self._client = client
        self._objects = objects
        self._nodes = nodes
        self._parameters = parameters
        self._now = now
        self._labelled_nodes = labelled_nodes
        self._states = PolicyStates(client, parameters, states)
        self._built_in = BuiltInOperands(built_in, recorder)
        self._software = SoftwareObjects(
            client,
            recorder,
            now,
            namespace=namespace,
            field_manager=FIELD_MANAGER,
            label_selector=LABEL_SELECTOR,
            resources=RESOURCES if parameters.is_enabled else BUILT_IN_RESOURCES,
        )
        self._rollouts = DaemonSetRollouts(client, namespace, now)
        self._pod_security = NamespacePodSecurity(client, recorder)
        self._status = OperatorStatusWriter(
            client, CLUSTER_POLICIES, field_manager=FIELD_MANAGER, namespace=namespace, now=now
        )
        self._refused = Backoff(base_s=NOT_READY_S, cap_s=MOST_REFUSED_S, jitter=0)

    async def reconcile(self, _key: str) -> float | None:
        """Take the next step; return when to reconcile again."""
        try:
            return await self._reconcile()
        except Conflict:
            return CONFLICT_RETRY_S
        except KubeError:
            self._show(ReconcileOutcome.FAILED, ())
            raise

    async def _reconcile(self) -> float | None:
        if unread := self._objects.policy_store.unread:
            self._show(ReconcileOutcome.FAILED, ())
            _log.warning(
                "nothing changes for policies that cannot be read", policies=sorted(unread)
            )
            return None
        active = self._objects.active
        await self._ignore_others(active)
        if active is None:
            self._show(ReconcileOutcome.NO_POLICY, ())
            return await self._serve_built_in()
        if active.metadata.deletion_timestamp is not None:
            return await self._tear_down(active)
        await self._status.add_finalizer(active)
        if cluster := await self._gpu_cluster():
            return await self._refuse(active, cluster)
        return await self._serve(active)

    async def _serve_built_in(self) -> float | None:
        """Apply the built-in policy, and come again while an operand is on."""
        live = await self._software.read()
        if left := sorted(live.states & OF_CLUSTER_POLICIES):
            _log.warning(
                "operands of a ClusterPolicy that is gone stay as they are, and those of the settings are not applied:"
                " create it again, and delete it while node_software.enabled is set",
                states=left,
            )
            return RECHECK_S
        desired = self._allowing_for_unready_nodes(self._built_in.desired(live.served), live)
        outcomes = await self._software.apply(desired, live, propagation=lambda _: "Background")
        self._built_in.report(outcomes, self._nodes.all())
        if live.states - {item.name for item in desired if item.objects}:
            return REMOVAL_S
        has_more = any(item.objects for item in desired) or any(
            outcome.refusals for outcome in outcomes.values()
        )
        return RECHECK_S if has_more else None

    def _allowing_for_unready_nodes(
        self, desired: "Sequence[DesiredState]", live: "LiveObjects"
    ) -> list[DesiredState]:
        nodes, sets = self._nodes.all(), live.of_kind(DAEMON_SETS.kind)
        return [
            replace(item, objects=allowing_for_unready_nodes(item.objects, nodes, live=sets))
            for item in desired
        ]

    async def _serve(self, policy: "ClusterPolicy") -> float:
        labels, has_nfd = self._nodes.labels_by_node(), self._nodes.has_nfd_labels()
        # Of the same moment: what is built is not for a node that gets its labels meanwhile.
        unlabelled = self._nodes.labels_by_new_node()
        if policy.spec.psa.is_enabled:
            await self._pod_security.reconcile(self._parameters.namespace)
        live = await self._software.read()
        desired = self._allowing_for_unready_nodes(
            await self._states.desired(policy, software_groups(labels), live.served), live
        )
        own = self._built_in.desired(live.served, beside=policy.spec)
        outcomes = await self._software.apply(
            [*desired, *own],
            live,
            propagation=lambda state: _propagation(policy, state),
            owner=ObjectReference.to(CLUSTER_POLICIES, policy.metadata),
            nodes={**labels, **unlabelled},
        )
        self._built_in.report({item.name: outcomes[item.name] for item in own}, self._nodes.all())
        current = self._status.current_states(policy)
        states = [
            await self._state_status(item, outcomes[item.name], labels, current=current)
            for item in desired
        ]
        drivers = policy.spec.driver
        upgrading = [name for name, item in labels.items() if is_upgrading(item)]
        overall = overall_readiness(
            KIND,
            states,
            has_nfd_labels=has_nfd,
            has_gpu_nodes=bool(labels),
            unlabelled=unlabelled,
            upgrading=upgrading if drivers.is_left_to_driver_objects else (),
        )
        overall = with_unsupported(overall, KIND, self._nodes.unsupported())
        await self._write(policy, overall, states)
        return self._pause_s(overall, outcomes.values())

    async def _state_status(
        self,
        desired: DesiredState,
        outcome: StateOutcome,
        labels: Mapping[str, Mapping[str, str]],
        *,
        current: "Sequence[StateStatus]",
    ) -> "StateStatus":
        facts = StateFacts(
            name=desired.name,
            is_enabled=desired.is_enabled or desired.fault is not None,
            objects=outcome.objects,
            fault=outcome.fault,
            left=tuple(outcome.left),
            daemon_sets=await self._rollouts.readiness(outcome.daemon_sets, labels),
        )
        return state_status(facts, current=current, now=self._now().utc)

    async def _ignore_others(self, active: "ClusterPolicy | None") -> None:
        """Write into every other policy that it does not count, and which one does."""
        for name, policy in sorted(self._objects.policies.items()):
            if active is None or name == active.metadata.name:
                continue
            if policy.metadata.deletion_timestamp is not None:
                if self._status.has_finalizer(policy):
                    await self._status.remove_finalizer(policy)
                continue
            text = (
                f"{KIND} {active.metadata.name} is older and counts: put its spec there, or delete that one and"
                " what it brought"
            )
            await self._status.write(
                policy,
                state=ClusterPolicyState.IGNORED,
                overall=OverallReadiness(reason=BadReason.RECONCILE_FAILED, message=text),
                states=(),
            )

    async def _gpu_cluster(self) -> str:
        """Return the name of a GPUCluster; empty where there is none, or no such kind."""
        try:
            listing = await self._client.list_(GPU_CLUSTERS, dict[str, Any])
        except NotFound:
            if not await self._client.serves(GPU_CLUSTERS):
                return ""
            raise
        return next((str(item["metadata"]["name"]) for item in listing.items), "")

    async def _refuse(self, policy: "ClusterPolicy", cluster: str) -> float:
        text = (
            f"GPUCluster {cluster} describes the software of the same nodes: delete one of the two; until then every"
            " object stays as it is"
        )
        overall = OverallReadiness(reason=BadReason.RECONCILE_FAILED, message=text)
        await self._write(policy, overall, self._status.current_states(policy))
        return NOT_READY_S

    async def _tear_down(self, policy: "ClusterPolicy") -> float | None:
        """Remove what the policy brought: labels of nodes first, then DaemonSets, and what their pods needed."""
        if not self._status.has_finalizer(policy):
            return None
        if nodes := self._labelled_nodes():
            return await self._wait_for(policy, f"labels on nodes {listed(nodes)}")
        live = await self._software.read()
        owner = ObjectReference.to(CLUSTER_POLICIES, policy.metadata)
        left, refusals = await self._software.remove_all(live, owner=owner)
        if refusals:
            await self._wait_for(policy, refusal_text(refusals[0]))
            return self._refused.fail()
        if left:
            return await self._wait_for(policy, listed(left))
        if live.objects:
            # What was deleted a moment ago is looked for once more.
            return REMOVAL_S
        if left := await self._left_of_drivers():
            return await self._wait_for(policy, listed(left))
        await self._status.remove_finalizer(policy)
        _log.info("node software of a policy removed", policy=policy.metadata.name)
        return None

    async def _left_of_drivers(self) -> list[str]:
        """Return the objects of NVIDIADrivers, which their own controller removes; those of none any more hold nothing up."""
        names = {*self._objects.drivers, *self._objects.driver_store.unread}
        values = {owner_value(name) for name in names}
        if not values:
            return []
        live = await list_objects(
            self._client,
            RESOURCES,
            namespace=self._parameters.namespace,
            label_selector=f"{OPERAND_LABEL},{POLICY_DRIVER_LABEL} in ({','.join(sorted(values))})",
        )
        return [
            *(" ".join(name) for name in live.objects),
            *(f"objects of kind {kind}, which cannot be read" for kind in sorted(live.unreadable)),
        ]

    async def _wait_for(self, policy: "ClusterPolicy", left: str) -> float:
        text = f"{KIND} is being deleted; still there: {left}"
        overall = OverallReadiness(reason=BadReason.OPERAND_NOT_READY, message=text)
        await self._write(policy, overall, self._status.current_states(policy))
        return REMOVAL_S

    async def _write(
        self, policy: "ClusterPolicy", overall: OverallReadiness, states: "Sequence[StateStatus]"
    ) -> None:
        is_good = overall.is_good
        state = ClusterPolicyState.READY if is_good else ClusterPolicyState.NOT_READY
        await self._status.write(policy, state=state, overall=overall, states=states)
        self._show(ReconcileOutcome.READY if is_good else ReconcileOutcome.NOT_READY, states)

    def _pause_s(self, overall: OverallReadiness, outcomes: "Collection[StateOutcome]") -> float:
        """Return when to reconcile again: after growing pauses while the API server refuses an object."""
        if any(outcome.refusals for outcome in outcomes):
            return self._refused.fail()
        self._refused.succeed()
        match overall.reason:
            case BadReason.OPERAND_NOT_READY:
                return REMOVAL_S if any(outcome.left for outcome in outcomes) else NOT_READY_S
            case GoodReason.NFD_LABELS_MISSING:
                return NFD_MISSING_S
            case _:
                return RECHECK_S

    def _show(self, outcome: ReconcileOutcome, states: "Sequence[StateStatus]") -> None:
        if not self._parameters.is_enabled:
            return
        now_s = self._now().utc.timestamp()
        figures = PolicyFigures(
            outcome=outcome,
            gpu_nodes=len(self._nodes.labels_by_node()),
            has_nfd_labels=self._nodes.has_nfd_labels(),
            is_ready_by_state={
                item.name: item.state is StateReadiness.READY
                for item in states
                if item.state is not StateReadiness.DISABLED
            },
        )
        show_policy(figures, now_s=now_s)


def _propagation(policy: "ClusterPolicy", state: str) -> "Propagation":
    """Return how DaemonSets of a state are deleted.

    Pods of the driver stay where NVIDIADrivers take over: the upgrade of the driver replaces them, node by node. Of all
    others the DaemonSet is gone once its pods are.
    """
    driver = policy.spec.driver
    is_handed_over = driver.is_enabled and driver.is_left_to_driver_objects
    return "Orphan" if state == state_driver.NAME and is_handed_over else "Foreground"


def _of_policies(_context: "ControllerContext", key: str) -> "tuple[Hashable, ...]":
    return (KEY,) if key.startswith(f"{KIND}/") else ()


def _build(context: "ControllerContext") -> "Reconcile":
    context.ending.callback(forget_node_software)
    return PolicyController(
        context.client,
        context.stores.operator_objects,
        context.shared(gpu_nodes),
        parameters=context.settings.node_software,
        built_in=context.settings.operands,
        recorder=context.recorder,
        now=context.now,
        labelled_nodes=lambda: nodes_with_labels(context.index),
    ).reconcile


SPEC: Final = ControllerSpec(
    name="node.operands",
    rbac=built_in_rights.RBAC,
    namespaced_rbac=built_in_rights.NAMESPACED_RBAC,
    triggers=(
        Trigger(source=lambda context: context.stores.operator_objects.changes, keys=_of_policies),
        Trigger(
            source=lambda context: context.shared(gpu_nodes).changes,
            # The software of nodes decides about a ClusterPolicy's objects alone.
            keys=lambda context, _node: (KEY,) * context.settings.node_software.is_enabled,
            delay_s=NODES_GATHER_S,
        ),
    ),
    initial=lambda _context: (KEY,),
    build=_build,
)
