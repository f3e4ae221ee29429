"""Objects of a policy or of an NVIDIADriver: applied where they differ, removed where no state wants them.

An object counts as ours by the label of its state, or by a field manager of ours where that label was taken off, unless another
controller owns it. Every other object of a desired name is another client's: it is neither changed nor removed, and its
state says so. Names are those of NVIDIA's GPU Operator, so that its objects may well be there.

DaemonSets name their ClusterPolicy or NVIDIADriver as controller, by which NVIDIA's validator knows the driver for ours.
Finalizers of the two kinds remove all objects, in an order, and not the garbage collector: a DaemonSet has its
ServiceAccount as a second owner, which goes after it, so that neither a foreground deletion nor an owner that vanishes
takes a driver away. Pods of the validator's checks, which copy its owners, are gone with both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from api.names import OPERAND_LABEL
from kube.errors import NotFound
from kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DAEMON_SETS,
    PROMETHEUS_RULES,
    ROLE_BINDINGS,
    ROLES,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
    VERTICAL_POD_AUTOSCALERS,
    Resource,
)
from manifests.constants import NAME
from manifests.node.device_plugin import signed
from operands.nvidia.adoption import has_operators_pods
from operands.nvidia.policy_status import StateReason
from operands.rollout import selector_migration_step
from reconciler.node_software.operator_daemon_sets import OperatorDaemonSets
from reconciler.node_software.state_outcomes import (
    DesiredState,
    StateOutcome,
    state_of,
    unobserved,
)
from reconciler.runtime.concurrent_writes import write_until_failure
from reconciler.runtime.live_objects import LiveObjects, list_objects
from reconciler.runtime.object_applier import ObjectApplier, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.clock import Instant
    from kube.client import KubeClient, Propagation
    from kube.event_recorder import EventRecorder, ObjectReference
    from reconciler.runtime.live_objects import ObjectName

Json = dict[str, Any]

STATES_AT_A_TIME: Final = 4
"""States do not wait for each other's round trips; objects of one state are written in order."""
RESOURCES: Final[Mapping[str, Resource]] = {
    item.kind: item
    for item in (
        SERVICE_ACCOUNTS,
        ROLES,
        CLUSTER_ROLES,
        ROLE_BINDINGS,
        CLUSTER_ROLE_BINDINGS,
        RUNTIME_CLASSES,
        CONFIG_MAPS,
        SERVICES,
        SERVICE_MONITORS,
        VERTICAL_POD_AUTOSCALERS,
        PROMETHEUS_RULES,
        DAEMON_SETS,
    )
}
"""Kinds of the objects of all states."""
BUILT_IN_RESOURCES: Final[Mapping[str, Resource]] = {
    kind: resource
    for kind, resource in RESOURCES.items()
    if resource not in {RUNTIME_CLASSES, PROMETHEUS_RULES}
}
"""Kinds of the objects of the built-in policy, which every server may read."""
_REMOVAL_STAGES: Final = (
    frozenset({"DaemonSet"}),
    frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ServiceAccount"}),
    frozenset({"RuntimeClass"}),
    frozenset({"PrometheusRule"}),
    frozenset({"ConfigMap", "Service", "ServiceMonitor", "VerticalPodAutoscaler"}),
)
"""Kinds in the order in which they go: pods need the others until they have ended."""


def _never(_kind: str, _found: Json) -> bool:
    return False


@final
@dataclass(slots=True, kw_only=True)
class _Pass:
    live: LiveObjects
    outcomes: dict[str, StateOutcome]
    propagation: "Callable[[str], Propagation]"
    keeps: "Callable[[str, Json], bool]"
    owner: "ObjectReference | None"
    nodes: Mapping[str, Mapping[str, str]]
    names: "set[ObjectName]" = field(default_factory=set)


@final
class SoftwareObjects:
    """The objects that one controller applies, found by one label selector."""

    def __init__(  # noqa: PLR0913  # services, and what is its own
        self,
        client: "KubeClient",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
        *,
        namespace: str,
        field_manager: str,
        label_selector: str,
        resources: Mapping[str, Resource] = RESOURCES,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._resources = resources
        self._applier = ObjectApplier(
            client,
            resources,
            field_manager=field_manager,
            recorder=recorder,
            now=now,
            source="its ClusterPolicy or NVIDIADriver, or bootstrap in the settings of the server,",
        )
        self._operators = OperatorDaemonSets(client, self._applier, namespace)

    async def read(self) -> LiveObjects:
        """List what has the label.

        Raises:
            KubeError: the API server gives no answer.
        """
        return await list_objects(
            self._client,
            self._resources,
            namespace=self._namespace,
            label_selector=self._label_selector,
        )

    async def apply(
        self,
        desired: Sequence[DesiredState],
        live: LiveObjects,
        *,
        propagation: "Callable[[str], Propagation]",
        keeps: "Callable[[str, Json], bool]" = _never,
        owner: "ObjectReference | None" = None,
        nodes: Mapping[str, Mapping[str, str]] = {},
    ) -> dict[str, StateOutcome]:
        """Write differences, and remove what no state wants; a refusal stops nothing else.

        Args:
            desired: every state.
            live: what was read.
            propagation: how the DaemonSets of a state are deleted.
            keeps: says of kind and object whether one that no state wants stays for now.
            owner: the ClusterPolicy or NVIDIADriver; None: the settings, which are no object.
            nodes: labels of the nodes with a GPU.

        Raises:
            KubeError: it is not known whether an object was written.
        """
        if owner is not None:
            desired = await self._operators.without_running_duplicates(desired, nodes)
        work = _Pass(
            live=live,
            outcomes={item.name: StateOutcome(fault=item.fault) for item in desired},
            propagation=propagation,
            keeps=keeps,
            owner=owner,
            nodes=nodes,
        )

        async def apply_state(state: DesiredState) -> None:
            for body in await self._not_taken_over(work, state):
                work.names.add((body["kind"], body["metadata"]["name"]))
                refusal = await self._apply_one(work, state.name, body)
                if refusal is not None:
                    work.outcomes[state.name].note(refusal)

        failures = await write_until_failure(desired, apply_state, at_a_time=STATES_AT_A_TIME)
        if failures:
            raise failures[0]
        await self._prune(work, {item.name: item for item in desired})
        _note_unreadable(live, desired, work.outcomes)
        return work.outcomes

    async def remove_all(
        self,
        live: LiveObjects,
        *,
        owner: "ObjectReference",
        propagation: "Propagation" = "Foreground",
    ) -> tuple[list[str], list[Refusal]]:
        """Take the next step of removing everything of an owner; return what is left, and refusals.

        Raises:
            KubeError: it is not known whether an object was deleted.
        """
        left, refusals = await self._remove(
            {name: item for name, item in live.objects.items() if not _is_foreign(item, owner)},
            propagation=lambda _state: propagation,
        )
        refusals += [Refusal("", kind, "", error) for kind, error in live.unreadable.items()]
        return left, refusals

    async def _not_taken_over(self, work: _Pass, state: DesiredState) -> list[Json]:
        """Take over what NVIDIA's GPU Operator made; return the objects that are to be applied as usual."""
        found = [
            item
            for item in work.live.of_kind(DAEMON_SETS.kind).values()
            if state_of(item) == state.name and not _is_foreign(item, work.owner)
        ]
        taken, objects = await self._operators.take_over(
            state,
            found,
            work.outcomes[state.name],
            nodes=work.nodes,
            owners=partial(self._owners, work),
        )
        work.names.update(("DaemonSet", name) for name in taken)
        return objects

    async def _apply_one(self, work: _Pass, state: str, body: Json) -> Refusal | None:
        kind, name = body["kind"], body["metadata"]["name"]
        if kind in work.live.unreadable:
            return Refusal(state, kind, name, work.live.unreadable[kind])
        outcome = work.outcomes[state]
        found = work.live.objects.get((kind, name))
        is_listed = found is not None
        if found is None:
            found = await self._find(kind, name)
        if found is not None and self._is_another_clients(
            found, is_listed=is_listed, owner=work.owner
        ):
            if _serves_as_it_is(body, found):
                return None
            outcome.fault = outcome.fault or (
                StateReason.OBJECT_OWNED_BY_ANOTHER,
                f"{kind} {name} is there and is not of this control plane: {_cure(found, work.owner)}",
            )
            return None
        if found is not None and found["metadata"].get("deletionTimestamp"):
            outcome.left.append(f"{kind} {name}")
            return None
        if kind == "DaemonSet" and work.owner is not None:
            body = self._owned(work, body)
        return await self._write(state, body, found=found, outcome=outcome)

    def _owned(self, work: _Pass, body: Json) -> Json:
        """Return a DaemonSet with its owners, which are no part of its pods' template."""
        metadata = body["metadata"] | {"ownerReferences": self._owners(work, body)}
        metadata["annotations"] = dict(metadata["annotations"])
        return signed(body | {"metadata": metadata})

    def _owners(self, work: _Pass, body: Json) -> list[Json]:
        """Return the owners of a DaemonSet: its controller, and the account of its pods once that is there."""
        owner = work.owner
        if owner is None:
            return []
        reference = {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
        }
        owners = [reference | {"controller": True}]
        pod = body["spec"]["template"]["spec"]
        account = "ServiceAccount", pod.get("serviceAccountName", "")
        found = work.live.objects.get(account)
        uid = found["metadata"]["uid"] if found else self._applier.uid_of(account)
        if uid:
            kind, name = account
            owners.append({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
        return owners

    async def _write(
        self, state: str, body: Json, *, found: Json | None, outcome: StateOutcome
    ) -> Refusal | None:
        """Write an object that differs, or take the next step of replacing a DaemonSet whose selector does."""
        if body["kind"] == "DaemonSet" and found is not None:
            step = selector_migration_step(body, found)
            if isinstance(step, str):
                name = body["kind"], body["metadata"]["name"]
                outcome.left.append(" ".join(name))
                return await self._applier.delete(state, name, found, propagation=step)
            body = dict(step)
        if self._applier.differs(body, found):
            refusal = await self._applier.write(state, body, found)
            if refusal is not None:
                outcome.objects += found is not None
                return refusal
            # What was just written says nothing yet about its pods.
            found = unobserved(body, found)
        outcome.objects += 1
        if body["kind"] == "DaemonSet" and found is not None:
            outcome.daemon_sets.append(found)
        return None

    async def _find(self, kind: str, name: str) -> Json | None:
        """Return an object of any client by its name; a list takes no right beyond that of the label."""
        resource = self._resources[kind]
        try:
            listing = await self._client.list_(
                resource,
                dict[str, Any],
                namespace=self._namespace if resource.namespaced else None,
                field_selector=f"metadata.name={name}",
            )
        except NotFound:
            if not await self._client.serves(resource):
                return None
            raise
        return next(iter(listing.items), None)

    def _is_another_clients(
        self, found: Json, *, is_listed: bool, owner: "ObjectReference | None"
    ) -> bool:
        """Say whose the object is; one with the label that our list does not have is another owner's."""
        meta = found["metadata"]
        if is_listed or _is_foreign(found, owner):
            return _is_foreign(found, owner)
        if OPERAND_LABEL in (meta.get("labels") or {}):
            return True
        managers = meta.get("managedFields") or ()
        return not any(item.get("manager", "").startswith(f"{NAME}/") for item in managers)

    async def _prune(self, work: _Pass, desired: Mapping[str, DesiredState]) -> None:
        """Remove what no state wants; what states have that cannot be built stays, and the operator's that have pods."""
        outcomes = work.outcomes
        surplus: dict[str, dict[ObjectName, Json]] = {}
        for name, found in work.live.objects.items():
            state = state_of(found)
            if name in work.names or _is_foreign(found, work.owner):
                continue
            kept = state in desired and (
                desired[state].fault is not None
                or work.keeps(name[0], found)
                or (
                    name[0] == "DaemonSet"
                    and desired[state].is_enabled
                    and has_operators_pods(found)
                )
            )
            if kept:
                outcomes[state].objects += 1
                if name[0] == "DaemonSet":
                    outcomes[state].daemon_sets.append(found)
                continue
            surplus.setdefault(state, {})[name] = found
        for state, objects in surplus.items():
            left, refusals = await self._remove(objects, propagation=work.propagation)
            outcome = outcomes.get(state)
            if outcome is None:
                continue  # of a state that an earlier version had
            outcome.left += left
            for refusal in refusals:
                outcome.note(refusal)

    async def _remove(
        self, objects: "Mapping[ObjectName, Json]", *, propagation: "Callable[[str], Propagation]"
    ) -> tuple[list[str], list[Refusal]]:
        """Delete kind by kind; other kinds wait for DaemonSets, whose pods end first."""
        refusals: list[Refusal] = []
        for number, kinds in enumerate(_REMOVAL_STAGES):
            stage = {name: item for name, item in objects.items() if name[0] in kinds}
            waits = False
            for name, found in stage.items():
                state = state_of(found)
                how = propagation(state) if name[0] == "DaemonSet" else None
                waits = waits or how == "Foreground"
                refusal = await self._applier.delete(state, name, found, propagation=how)
                if refusal is not None:
                    refusals.append(refusal)
            if waits:
                later = frozenset[str]().union(*_REMOVAL_STAGES[number:])
                return [" ".join(name) for name in objects if name[0] in later], refusals
        return [f"{item.kind} {item.name}" for item in refusals], refusals


def _note_unreadable(
    live: LiveObjects, desired: "Iterable[DesiredState]", outcomes: Mapping[str, StateOutcome]
) -> None:
    """A state that is off may have left objects of a kind that cannot be read."""
    for kind, error in live.unreadable.items():
        for state in desired:
            if not state.is_enabled:
                outcomes[state.name].note(Refusal(state.name, kind, "", error))


def _is_foreign(found: Json, owner: "ObjectReference | None") -> bool:
    """Say whether another controller owns the object; an owner that was created again has the name of before."""
    own = (owner.api_version, owner.kind, owner.name) if owner is not None else ()
    return any(
        item.get("controller") and (item["apiVersion"], item["kind"], item["name"]) != own
        for item in found["metadata"].get("ownerReferences") or ()
    )


def _cure(found: Json, owner: "ObjectReference | None") -> str:
    """Return what is to be done with an object of another client."""
    if found["metadata"].get("ownerReferences") and not _is_foreign(found, owner):
        return f"hand over what NVIDIA's GPU Operator made: `{NAME} operands adopt`"
    return "delete it, or the operator that made it, and it is created again"


def _serves_as_it_is(body: Json, found: Json) -> bool:
    """Say whether another client's object does what ours would: K3s and RKE2 bring a RuntimeClass `nvidia`."""
    is_class: bool = body["kind"] == "RuntimeClass" and body["handler"] == found.get("handler")
    return is_class
