"""The response to GetPreferredAllocation: identify the container, then select its units.

kubelet sets no deadline, and admits no other pod of the node meanwhile. The call takes at most `LIST_WITHIN_S`
for kubelet's List, `WATCH_WITHIN_S` for the watch, and a few seconds for the processes of a terminated pod
(`agent.plugin.terminated_pods`). An error makes kubelet reject the pod for good.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from agent.errors import KubeletUnavailableError
from agent.plugin.device_selection import (
    AllocatableUnits,
    AssignedUnits,
    SelectionRefused,
    SubstitutedUnits,
    UnassignedUnits,
    select,
)
from agent.plugin.pod_identification import (
    IdentifiedContainer,
    NotIdentified,
    PodQuery,
    identify,
    identify_by_assignment,
    wait_until_identified,
)
from agent.plugin.terminated_pods import TerminatedPods
from agent.plugin.unpreferred_allocation import PodGetter, held_by_kubelet
from kube.event_recorder import ObjectReference
from kube.resources import PODS
from pool.model import ContainerRole
from telemetry.agent_metrics import ALLOCATIONS
from telemetry.conditions import AgentDegraded
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.kubelet.node_pods import ContainerRequest, NodePod, NodePods
    from agent.plugin.advertised import Unit
    from agent.plugin.device_selection import UnitSelection
    from agent.plugin.held_units import HeldUnits
    from agent.problems.registry import ProblemRegistry
    from api.kubelet.podresources import PodUnits
    from kube.event_recorder import EventRecorder

PROBLEM_SOURCE: Final = "kubelet.list"
ACTION: Final = "AllocateDevices"

_log = structlog.get_logger()


class PodLister(PodGetter, Protocol):
    """kubelet's PodResources API, see `agent.kubelet.pod_resources`."""

    async def list_(self) -> "tuple[PodUnits, ...]":
        """Return all pods; to be called inside GetPreferredAllocation only.

        Raises:
            KubeletUnavailableError: no response in time.
        """


@final
@dataclass(frozen=True, slots=True)
class PreferredUnits:
    """The response to kubelet, and the container as far as it is identified."""

    choice: "UnitSelection"
    container: IdentifiedContainer | None


@final
class PreferredAllocator:
    """Selects units for all resources of the node, since one List shows them all."""

    def __init__(
        self,
        pods: "NodePods",
        kubelet: PodLister,
        *,
        held_units: "HeldUnits",
        events: "EventRecorder",
        problems: "ProblemRegistry",
    ) -> None:
        self._held_units = held_units
        self._pods = pods
        self._kubelet = kubelet
        self._events = events
        self._problems = problems
        self.terminated_pods = TerminatedPods(held_units)

    async def prefer(self, query: PodQuery, units: "Mapping[str, Unit]") -> PreferredUnits:
        """Select the container's units; emit an Event where they differ from the assigned ones."""
        listing = await self._list()
        has_units = self._held_units.has_units
        if listing is None:
            identify_now = partial(identify_by_assignment, self._pods, query, has_units=has_units)
        else:
            identify_now = partial(identify, listing, self._pods, query, has_units=has_units)
        found = await wait_until_identified(self._pods, identify_now)
        self._refresh(listing)
        container = found if isinstance(found, IdentifiedContainer) else None
        if container is not None:
            preferred = assigned_to(container) or ()
            await self.terminated_pods.wait_until_gone(preferred, container.pod, self._list_again)
        # No await from here on: the selection is made from one state.
        if container is not None:
            self._held_units.forget_namesakes(container.pod)
        choice = select(
            query.request, self._allocatable(query, units, container), assigned_to(container)
        )
        self._report(query, found, choice)
        return PreferredUnits(choice, container)

    def record_allocation(
        self, container: IdentifiedContainer, resource: str, units: "Sequence[str]"
    ) -> None:
        """Remember the units of an Allocate, which kubelet's next List may not show yet."""
        self._held_units.record_allocation(
            container.pod, container.container.name, resource=resource, units=units
        )

    def holder(self, unit: str, resource: str, pod: "NodePod | None") -> str | None:
        """Return the live pod other than `pod` that the unit would be shared with."""
        holder = self._held_units.holder(unit, resource, pod)
        return None if holder is None else holder.text

    async def holders(
        self, units: "Sequence[str]", resource: str, last: "NodePod | None"
    ) -> "Mapping[str, str]":
        """Return the units that other pods have, with the pods, where kubelet asked for no preference.

        `last` is the pod of the last preference: kubelet hands on the units of its init containers.
        """
        await self.terminated_pods.wait_until_gone(units, None)
        terminated = {
            unit: holder.text
            for unit in units
            if (holder := self._held_units.terminated_holder(unit, None)) is not None
        }
        return terminated or await held_by_kubelet(
            units, resource, last, held_units=self._held_units, kubelet=self._kubelet
        )

    async def _list_again(self) -> None:
        self._refresh(await self._list())

    def _refresh(self, listing: "tuple[PodUnits, ...] | None") -> None:
        if listing is None:
            self._held_units.mark_stale()
        else:
            self._held_units.refresh(listing)

    async def _list(self) -> "tuple[PodUnits, ...] | None":
        try:
            listing = await self._kubelet.list_()
        except KubeletUnavailableError as error:
            _log.warning("kubelet did not answer PodResources List", error=str(error))
            self._problems.set(PROBLEM_SOURCE, AgentDegraded.KUBELET_SILENT, str(error))
            return None
        self._problems.clear(PROBLEM_SOURCE)
        return listing

    def _allocatable(
        self,
        query: PodQuery,
        units: "Mapping[str, Unit]",
        container: IdentifiedContainer | None,
    ) -> AllocatableUnits:
        pod = None if container is None else container.pod
        reserved = reserved_units(
            self._pods.all(), query.resource, container, held_units=self._held_units
        )
        return AllocatableUnits(
            resource=query.resource,
            units=units,
            held_by=lambda unit: self.holder(unit, query.resource, pod),
            reserved=reserved,
            of_pod={unit for units in (pod.assigned or {}).values() for unit in units}
            if pod is not None
            else (),
            slice_placement=query.slice_placement,
        )

    def _report(
        self, query: PodQuery, found: IdentifiedContainer | NotIdentified, choice: "UnitSelection"
    ) -> None:
        outcome = _outcome_of(found, choice)
        ALLOCATIONS.labels(query.resource, outcome).inc()
        log = _log.bind(resource=query.resource, outcome=outcome)
        if isinstance(found, NotIdentified):
            log = log.bind(why=found.why)
        else:
            log = log.bind(
                pod=found.pod.ref, container=found.container.name, identified_by=found.by.value
            )
        if isinstance(choice, SelectionRefused):
            log.warning("allocation refused", error=choice.text)
        else:
            log.info("devices selected", units=choice.units)
        if isinstance(found, IdentifiedContainer):
            self._emit(found, choice)

    def _emit(self, found: IdentifiedContainer, choice: "UnitSelection") -> None:
        container = f"container {found.container.name}"
        match choice:
            case SubstitutedUnits():
                note = (
                    f"{container} gets {', '.join(choice.given)} in place of"
                    f" {', '.join(choice.missing)}: {choice.why}"
                )
                self._warn(found.pod, EventReason.DEVICES_SUBSTITUTED, note)
            case SelectionRefused():
                note = f"{container} gets no devices: {choice.text}"
                self._warn(found.pod, EventReason.DEVICES_REFUSED, note)
            case AssignedUnits() | UnassignedUnits():
                pass

    def _warn(self, pod: "NodePod", reason: EventReason, note: str) -> None:
        self._events.warning(ObjectReference.to(PODS, pod), reason, note, action=ACTION)


def assigned_to(container: IdentifiedContainer | None) -> "tuple[str, ...] | None":
    """Return the container's units in the pod's annotation; None where it has none."""
    if container is None or container.pod.assigned is None:
        return None
    return container.pod.assigned.get(container.container.name) or None


def reserved_units(
    pods: "Iterable[NodePod]",
    resource: str,
    excluded: IdentifiedContainer | None,
    *,
    held_units: "HeldUnits",
) -> set[str]:
    """Return the assigned units of containers, other than the excluded one, that have none yet."""
    reserved: set[str] = set()
    for pod in pods:
        if pod.is_ended or not pod.assigned:
            continue
        for container in _waiting(pod, resource, held_units):
            is_excluded = (
                excluded is not None
                and excluded.pod.uid == pod.uid
                and excluded.container.name == container.name
            )
            if not is_excluded:
                reserved.update(pod.assigned.get(container.name, ()))
    return reserved.difference(assigned_to(excluded) or ())


def _waiting(
    pod: "NodePod", resource: str, held_units: "HeldUnits"
) -> "Iterable[ContainerRequest]":
    waiting = [
        ask
        for ask in pod.asks_for(resource)
        if not held_units.has_units(pod.uid, ask.name, resource)
    ]
    others = [ask for ask in pod.asks_for(resource) if ask.kind is not ContainerRole.INIT]
    # Init containers come first, so that none waits any more once all others have units.
    return waiting if not others or any(item in waiting for item in others) else ()


def _outcome_of(found: IdentifiedContainer | NotIdentified, choice: "UnitSelection") -> str:
    match choice:
        case SelectionRefused():
            return "refused"
        case AssignedUnits():
            return "promised"
        case SubstitutedUnits():
            return "substituted"
        case UnassignedUnits():
            return "unpromised" if isinstance(found, IdentifiedContainer) else "unrecognised"
