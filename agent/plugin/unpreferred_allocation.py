"""The holders of the units of an Allocate without a preference: kubelet is asked pod by pod.

kubelet asks for no preference where it hands on the units of an init container, and, with a TopologyManager
policy, where the free units of the chosen NUMA nodes are as many as the container requests. The known holders
are then as old as the last List, and some may have ended. A `List` during an Allocate corrupts kubelet's state
(`agent.kubelet.pod_resources`); `Get` does not.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from agent.errors import KubeletUnavailableError
from agent.plugin.held_units import HolderSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.kubelet.node_pods import NodePod
    from agent.plugin.held_units import HeldUnit, HeldUnits
    from api.kubelet.podresources import PodUnits

GET_WITHIN_S: Final = 0.3
"""A pod has a millisecond's answer; all admission of pods waits while we ask."""

_log = structlog.get_logger()


class PodGetter(Protocol):
    """`Get` of kubelet's PodResources API."""

    async def get(self, namespace: str, name: str, within_s: float) -> "PodUnits | None":
        """Return the units of a pod, None where kubelet does not know it; bounded in time.

        Raises:
            KubeletUnavailableError: no valid response.
        """


async def held_by_kubelet(
    units: "Sequence[str]",
    resource: str,
    last: "NodePod | None",
    *,
    held_units: "HeldUnits",
    kubelet: PodGetter,
) -> dict[str, str]:
    """Return the units that pods still have, with the pod's `namespace/name`.

    Where kubelet does not answer, the pods of the watch keep theirs; except `last`, the pod of the last
    preference, which may be the one that is being admitted.
    """
    possible_holders = {unit: held_units.possible_holders(unit, resource) for unit in units}
    refs = {hold.holder.ref for holds in possible_holders.values() for hold in holds}
    answers = dict(await asyncio.gather(*(_ask(kubelet, ref) for ref in sorted(refs))))
    held: dict[str, str] = {}
    for unit, holds in possible_holders.items():
        for hold in holds:
            is_last = last is not None and hold.holder.ref == last.ref
            if _has(hold, answers[hold.holder.ref], is_last=is_last):
                held[unit] = hold.holder.ref
    return held


def _has(
    hold: "HeldUnit", answer: "PodUnits | KubeletUnavailableError | None", *, is_last: bool
) -> bool:
    match answer:
        case None:
            return False
        case KubeletUnavailableError():
            return hold.source is HolderSource.REPORTED or (
                hold.source is not HolderSource.ASSIGNED and not is_last
            )
        case pod:
            is_visible = any(
                hold.unit in container.units.get(hold.resource, ()) for container in pod.containers
            )
            # kubelet does not show the units of a plain init container, and may have lost an allocation.
            return (
                is_visible
                or hold.source is HolderSource.REPORTED
                or (hold.source is HolderSource.ALLOCATED and not is_last)
            )


async def _ask(
    kubelet: PodGetter, ref: str
) -> "tuple[str, PodUnits | KubeletUnavailableError | None]":
    namespace, _, name = ref.partition("/")
    try:
        return ref, await kubelet.get(namespace, name, GET_WITHIN_S)
    except KubeletUnavailableError as error:
        _log.warning("kubelet did not answer PodResources Get", pod=ref, error=str(error))
        return ref, error
