"""Which backend a pool gets: the one of its spec where settings and cluster allow it, otherwise a lesser one, with a reason."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.foreign.karpenter import NodeOverlay
from api.kinds.autoscaling import ScalingBackend
from api.meta import PartialObjectMetadata
from api.status_conditions import find_condition
from kube.errors import Forbidden, NotFound, Undecodable
from kube.resources import CAPACITY_BUFFERS, NODE_OVERLAYS, NODE_POOLS
from telemetry.conditions import BackendReady, PoolCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from autoscaling.scaling_model import ScalingTerms
    from kube.client import KubeClient
    from kube.resources import Resource
    from pool.model import Instant

PROBE_S: Final = 60.0
"""Age of an answer after which the API server is asked again."""

_KARPENTER: Final = frozenset(
    {
        ScalingBackend.KARPENTER_SIGNAL,
        ScalingBackend.KARPENTER_NATIVE,
        ScalingBackend.CAPACITY_BUFFER,
        ScalingBackend.KARPENTER_STATIC,
    }
)


@final
@dataclass(frozen=True, slots=True)
class ChosenBackend:
    """The backend that a pool gets, and why it is not the one of its spec."""

    backend: ScalingBackend
    reason: BackendReady = BackendReady.READY
    """Of the condition BackendReady."""
    message: str = ""
    """What is missing, and the cure; empty where the backend is the one of the spec."""

    @property
    def fault(self) -> str:
        """Return why no node is asked for; empty where one can be."""
        return self.message if self.backend is ScalingBackend.NONE else ""


@final
class BackendProbe:
    """Asks the API server which kinds it serves, at most once a minute each."""

    def __init__(
        self,
        client: "KubeClient",
        now: "Callable[[], Instant]",
        *,
        enabled: "Collection[ScalingBackend]",
    ) -> None:
        self._client = client
        self._now = now
        self._enabled = enabled
        self._served: dict[Resource, tuple[float, bool]] = {}
        # kind -> when it was asked for, and whether it is served
        self._overlays: tuple[float, tuple[NodeOverlay, ...]] = (-PROBE_S, ())

    async def choose(self, terms: "ScalingTerms") -> ChosenBackend:
        """Return the pool's backend.

        Raises:
            KubeError: the API server did not answer, so that nothing is known.
        """
        wanted = terms.backend
        if wanted is ScalingBackend.NONE:
            return _NOTHING
        if wanted not in self._enabled:
            return await self._lesser(
                BackendReady.NOT_ENABLED,
                f"backend {wanted.value} is not in the server's setting autoscaling.backends: add it there,"
                " and render the server's rights again",
            )
        if wanted in _KARPENTER and not await self._serves(NODE_POOLS):
            return _NO_KARPENTER
        if wanted is ScalingBackend.KARPENTER_NATIVE:
            fault = await self._overlay_fault(terms)
            if fault:
                return await self._lesser(BackendReady.NO_OVERLAY, fault)
        if wanted is ScalingBackend.CAPACITY_BUFFER and not await self._serves(CAPACITY_BUFFERS):
            return await self._lesser(
                BackendReady.NO_BUFFERS,
                f"the API server serves no {CAPACITY_BUFFERS.kind} of {CAPACITY_BUFFERS.api_version}: install its"
                " definition and set Karpenter's feature gate CapacityBuffer",
            )
        return ChosenBackend(wanted)

    async def _lesser(self, reason: BackendReady, message: str) -> ChosenBackend:
        """Return signals where these are possible, otherwise nothing."""
        signal = ScalingBackend.KARPENTER_SIGNAL
        if signal in self._enabled and await self._serves(NODE_POOLS):
            return ChosenBackend(signal, reason, f"{message}; {signal.value} is used meanwhile")
        return ChosenBackend(ScalingBackend.NONE, reason, f"{message}; no node is asked for")

    async def _overlay_fault(self, terms: "ScalingTerms") -> str:
        resource = terms.pool.resource
        if not await self._serves(NODE_OVERLAYS):
            return (
                f"the API server serves no {NODE_OVERLAYS.kind} of {NODE_OVERLAYS.api_version}: set Karpenter's"
                " feature gate NodeOverlay"
            )
        found = [one for one in await self._all_overlays() if resource in (one.spec.capacity or {})]
        if not found:
            return (
                f"no NodeOverlay has capacity {resource}: create it, as `render nodepool` prints it"
            )
        for overlay in found:
            ready = find_condition(overlay.status.conditions, PoolCondition.READY)
            if ready is None or ready.status != "True":
                said = f" ({ready.message})" if ready is not None and ready.message else ""
                return (
                    f"NodeOverlay {overlay.metadata.name} is not Ready{said}: set Karpenter's feature gate"
                    " NodeOverlay, and correct the overlay"
                )
        return ""

    async def _all_overlays(self) -> tuple[NodeOverlay, ...]:
        at, found = self._overlays
        now = self._now().monotonic
        if now - at >= PROBE_S:
            listed = await self._client.list_(NODE_OVERLAYS, NodeOverlay)
            if listed.unread:
                raise Undecodable(f"a {NODE_OVERLAYS.kind} cannot be read")
            found = tuple(listed.items)
            self._overlays = (now, found)
        return found

    async def _serves(self, resource: "Resource") -> bool:
        asked, is_served = self._served.get(resource, (-PROBE_S, False))
        now = self._now().monotonic
        if now - asked < PROBE_S:
            return is_served
        try:
            await self._client.list_(resource, PartialObjectMetadata)
        except Forbidden:
            is_served = False
        except NotFound:
            if not await self._client.is_not_served(resource):
                raise
            is_served = False
        else:
            is_served = True
        self._served[resource] = (now, is_served)
        return is_served


_NOTHING: Final = ChosenBackend(
    ScalingBackend.NONE,
    message="spec.autoscaling.backend is none, so no node is asked for: add nodes by hand, or name another backend",
)
_NO_KARPENTER: Final = ChosenBackend(
    ScalingBackend.NONE,
    BackendReady.NO_KARPENTER,
    f"the API server serves no {NODE_POOLS.kind} of {NODE_POOLS.api_version}: install Karpenter 1.x, or name another"
    " spec.autoscaling.backend; no node is asked for",
)
