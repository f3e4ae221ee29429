"""Who has the units of an Allocate that came without a preference: kubelet is asked, pod by pod.

kubelet asks for no preference where it hands on what an init container has, and, with a TopologyManager
policy, where the free units of the NUMA nodes that it chose are just as many as the container wants. What
is known of holders then is as old as the last List, and kubelet may have seen some of them end. A `List` in
the middle of an Allocate is not to be had (`agent.kubelet.pod_resources`); `Get` changes nothing.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from agent.errors import KubeletUnavailableError
from agent.plugin.held_units import KnownHolders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.kubelet.pods import NodePod
    from agent.plugin.held_units import HeldUnit, HeldUnits
    from api.kubelet.podresources import PodUnits

GET_WITHIN_S: Final = 0.3
"""A pod has a millisecond's answer; all admission of pods waits while we ask."""

_log = structlog.get_logger()


class Gets(Protocol):
    """What kubelet says of one pod."""

    async def get(self, namespace: str, name: str, within_s: float) -> "PodUnits | None":
        """Return what a pod has, None where kubelet does not know it; bounded in time.

        Raises:
            KubeletUnavailable: no answer that makes sense.
        """


async def held_by_kubelet(
    units: "Sequence[str]",
    resource: str,
    last: "NodePod | None",
    *,
    holdings: "HeldUnits",
    kubelet: Gets,
) -> dict[str, str]:
    """Return the units that a pod has still, with the pod's `namespace/name`.

    Where kubelet does not answer, those have theirs that our watch shows; but for `last`, the pod that asked
    last, which may be the one that is being served.
    """
    suspects = {unit: holdings.suspects(unit, resource) for unit in units}
    refs = {hold.holder.ref for holds in suspects.values() for hold in holds}
    answers = dict(await asyncio.gather(*(_ask(kubelet, ref) for ref in sorted(refs))))
    held: dict[str, str] = {}
    for unit, holds in suspects.items():
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
            return hold.known is KnownHolders.REPORTED or (
                hold.known is not KnownHolders.PROMISED and not is_last
            )
        case shown:
            is_shown = any(
                hold.unit in container.units.get(hold.resource, ())
                for container in shown.containers
            )
            # kubelet does not show what a plain init container has, and may have forgotten what it gave.
            return (
                is_shown
                or hold.known is KnownHolders.REPORTED
                or (hold.known is KnownHolders.GRANTED and not is_last)
            )


async def _ask(kubelet: Gets, ref: str) -> "tuple[str, PodUnits | KubeletUnavailableError | None]":
    namespace, _, name = ref.partition("/")
    try:
        return ref, await kubelet.get(namespace, name, GET_WITHIN_S)
    except KubeletUnavailableError as error:
        _log.warning("kubelet does not say what a pod has", pod=ref, error=str(error))
        return ref, error
