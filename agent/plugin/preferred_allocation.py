"""The answer to GetPreferredAllocation: who asks, what was promised, what can be had.

kubelet sets no deadline, and admits no other pod of the node while it waits: at most `LIST_WITHIN_S` for its
own list and `WATCH_WITHIN_S` for our watch go by, and a few seconds for the processes of a pod that is over
(`agent.plugin.terminated_pods`). An error out of here makes kubelet reject the pod for good.
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
    choose,
)
from agent.plugin.pod_identification import (
    PodIdentified,
    PodNotIdentified,
    PodQuery,
    guess,
    recognise,
    wait_for_asking,
)
from agent.plugin.terminated_pods import TerminatedPods
from agent.plugin.unpreferred_allocation import Gets, held_by_kubelet
from pool.model import ContainerRole
from telemetry.agent_metrics import ALLOCATIONS
from telemetry.conditions import AgentDegraded
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.kubelet.pods import ContainerRequest, NodePod, NodePods
    from agent.plugin.advertised import Unit
    from agent.plugin.device_selection import Choice
    from agent.plugin.held_units import HeldUnits
    from agent.problems.registry import ProblemRegistry
    from api.kubelet.podresources import PodUnits

PROBLEM_SOURCE: Final = "kubelet.list"

_log = structlog.get_logger()


class Lists(Gets, Protocol):
    """kubelet's own books, see `agent.kubelet.pod_resources`."""

    async def list_(self) -> "tuple[PodUnits, ...]":
        """Return all pods; to be called inside GetPreferredAllocation only.

        Raises:
            KubeletUnavailable: no answer in time.
        """


class Teller(Protocol):
    """Writes events in its own time."""

    def tell_pod(self, pod: "NodePod", reason: EventReason, note: str) -> None:
        """Warn on a pod, about the devices of one of its containers."""


@final
@dataclass(frozen=True, slots=True)
class PreferredUnits:
    """What kubelet is told, and who asked as far as is known."""

    choice: "Choice"
    asking: PodIdentified | None


@final
class PreferredAllocator:
    """One for all resources of the node, since one List shows them all."""

    def __init__(
        self,
        pods: "NodePods",
        kubelet: Lists,
        *,
        holdings: "HeldUnits",
        teller: Teller,
        problems: "ProblemRegistry",
    ) -> None:
        self.holdings = holdings
        self._pods = pods
        self._kubelet = kubelet
        self._teller = teller
        self._problems = problems
        self.left_pods = TerminatedPods(holdings)

    async def answer(self, question: PodQuery, units: "Mapping[str, Unit]") -> PreferredUnits:
        """Return what the container that asks is to get, and tell of it where it is not as promised."""
        listing = await self._list()
        is_served = self.holdings.is_served
        if listing is None:
            judge = partial(guess, self._pods, question, is_served=is_served)
        else:
            judge = partial(recognise, listing, self._pods, question, is_served=is_served)
        found = await wait_for_asking(self._pods, judge)
        self._take_over(listing)
        asking = found if isinstance(found, PodIdentified) else None
        if asking is not None:
            wanted = promised_to(asking) or ()
            await self.left_pods.until_gone(wanted, asking.pod, self._look_again)
        # Nothing is awaited from here on: what is read is what is answered by.
        if asking is not None:
            self.holdings.settle(asking.pod)
        choice = choose(question.request, self._pool(question, units, asking), promised_to(asking))
        self._note(question, found, choice)
        return PreferredUnits(choice, asking)

    async def held(
        self, units: "Sequence[str]", resource: str, last: "NodePod | None"
    ) -> "Mapping[str, str]":
        """Return which of the units another pod has, with its name, where no preference was asked for.

        `last` is the pod that asked last: kubelet hands on what its init containers have.
        """
        await self.left_pods.until_gone(units, None)
        left = {
            unit: holder.text
            for unit in units
            if (holder := self.holdings.left_holder(unit, None)) is not None
        }
        return left or await held_by_kubelet(
            units, resource, last, holdings=self.holdings, kubelet=self._kubelet
        )

    async def _look_again(self) -> None:
        self._take_over(await self._list())

    def _take_over(self, listing: "tuple[PodUnits, ...] | None") -> None:
        if listing is None:
            self.holdings.outdate()
        else:
            self.holdings.refresh(listing)

    async def _list(self) -> "tuple[PodUnits, ...] | None":
        try:
            listing = await self._kubelet.list_()
        except KubeletUnavailableError as error:
            _log.warning("kubelet does not list", error=str(error))
            self._problems.set(PROBLEM_SOURCE, AgentDegraded.KUBELET_SILENT, str(error))
            return None
        self._problems.clear(PROBLEM_SOURCE)
        return listing

    def _pool(
        self, question: PodQuery, units: "Mapping[str, Unit]", asking: PodIdentified | None
    ) -> AllocatableUnits:
        pod = None if asking is None else asking.pod

        def held_by(unit: str) -> str | None:
            holder = self.holdings.holder(unit, question.resource, pod)
            return None if holder is None else holder.text

        reserved = reserved_units(
            self._pods.all(), question.resource, asking, holdings=self.holdings
        )
        return AllocatableUnits(
            resource=question.resource, units=units, held_by=held_by, reserved=reserved
        )

    def _note(
        self, question: PodQuery, found: PodIdentified | PodNotIdentified, choice: "Choice"
    ) -> None:
        outcome = _outcome_of(found, choice)
        ALLOCATIONS.labels(question.resource, outcome).inc()
        log = _log.bind(resource=question.resource, outcome=outcome)
        if isinstance(found, PodNotIdentified):
            log = log.bind(why=found.why)
        else:
            log = log.bind(
                pod=found.pod.ref, container=found.container.name, recognised_by=found.how.value
            )
        if isinstance(choice, SelectionRefused):
            log.warning("devices refused", error=choice.text)
        else:
            log.info("devices chosen", units=choice.units)
        if isinstance(found, PodIdentified):
            self._tell(found, choice)

    def _tell(self, asking: PodIdentified, choice: "Choice") -> None:
        container = f"container {asking.container.name}"
        match choice:
            case SubstitutedUnits():
                note = (
                    f"{container} gets {', '.join(choice.given)} in place of"
                    f" {', '.join(choice.missing)}: {choice.why}"
                )
                self._teller.tell_pod(asking.pod, EventReason.DEVICES_SUBSTITUTED, note)
            case SelectionRefused():
                note = f"{container} gets nothing: {choice.text}"
                self._teller.tell_pod(asking.pod, EventReason.DEVICES_REFUSED, note)
            case AssignedUnits() | UnassignedUnits():
                pass


def promised_to(asking: PodIdentified | None) -> "tuple[str, ...] | None":
    """Return what the container that asks was promised."""
    if asking is None or asking.pod.promised is None:
        return None
    return asking.pod.promised.get(asking.container.name) or None


def reserved_units(
    pods: "Iterable[NodePod]", resource: str, asking: PodIdentified | None, *, holdings: "HeldUnits"
) -> set[str]:
    """Return what is promised to containers that have not got theirs yet, other than the one that asks."""
    reserved: set[str] = set()
    for pod in pods:
        if pod.is_ended or not pod.promised:
            continue
        for container in _waiting(pod, resource, holdings):
            is_asking = (
                asking is not None
                and asking.pod.uid == pod.uid
                and asking.container.name == container.name
            )
            if not is_asking:
                reserved.update(pod.promised.get(container.name, ()))
    return reserved.difference(promised_to(asking) or ())


def _waiting(pod: "NodePod", resource: str, holdings: "HeldUnits") -> "Iterable[ContainerRequest]":
    waiting = [
        one for one in pod.asks_for(resource) if not holdings.is_served(pod.uid, one.name, resource)
    ]
    shown = [one for one in pod.asks_for(resource) if one.kind is not ContainerRole.INIT]
    # Init containers come first, so that none waits any more once all others are served.
    return waiting if not shown or any(one in waiting for one in shown) else ()


def _outcome_of(found: PodIdentified | PodNotIdentified, choice: "Choice") -> str:
    match choice:
        case SelectionRefused():
            return "refused"
        case AssignedUnits():
            return "promised"
        case SubstitutedUnits():
            return "substituted"
        case UnassignedUnits():
            return "unpromised" if isinstance(found, PodIdentified) else "unrecognised"
