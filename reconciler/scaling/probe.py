"""What the cluster offers a pool that scales: its backend or a lesser one, with a reason, and node software for its nodes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from api.kinds.autoscaling import REMOVED_BACKENDS, ScalingBackend
from api.meta import PartialObjectMetadata
from autoscaling.node_daemons import NodeDaemon, is_node_software
from kube.errors import Forbidden, KubeError, NotFound
from kube.resources import DAEMON_SETS, NODE_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.driver_upgrade.objects import UpgradeDaemonSet
from telemetry.conditions import BackendReady

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from api.clock import Instant
    from autoscaling.scaling_model import ScalingParameters
    from kube.client import KubeClient
    from kube.resources import Resource

RBAC: Final = (PolicyRule(group="apps", resources=(DAEMON_SETS.plural,), verbs=("list",)),)
_log = structlog.get_logger()
PROBE_S: Final = 60.0
"""Age of an answer after which the API server is asked again."""


@final
@dataclass(frozen=True, slots=True)
class ChosenBackend:
    """The backend that a pool gets, and why it is not the one of its spec."""

    backend: ScalingBackend
    reason: BackendReady = BackendReady.READY
    """Reason of the condition BackendReady."""
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
        self._enabled = {
            ScalingBackend.KARPENTER_SIGNAL if backend in REMOVED_BACKENDS else backend
            for backend in enabled
        }
        self._served: dict[Resource, tuple[float, bool]] = {}
        # kind -> when it was asked for, and whether it is served

    async def choose(self, parameters: "ScalingParameters") -> ChosenBackend:
        """Return the pool's backend.

        Raises:
            KubeError: the API server did not answer, so that nothing is known.
        """
        backend = parameters.backend
        if backend is ScalingBackend.NONE:
            return _NOTHING
        if backend in REMOVED_BACKENDS:
            return await self._fallback(
                BackendReady.REMOVED,
                f"backend {backend.value} was removed: set spec.autoscaling.backend to"
                f" {ScalingBackend.KARPENTER_SIGNAL.value}",
            )
        if backend not in self._enabled:
            return await self._fallback(
                BackendReady.NOT_ENABLED,
                f"backend {backend.value} is not in the server's setting autoscaling.backends: add it there,"
                " and render the server's rights again",
            )
        if backend is ScalingBackend.KARPENTER_SIGNAL and not await self._serves(NODE_POOLS):
            return _NO_KARPENTER
        return ChosenBackend(backend)

    async def _fallback(self, reason: BackendReady, message: str) -> ChosenBackend:
        """Return signals where these are possible, otherwise nothing."""
        signal = ScalingBackend.KARPENTER_SIGNAL
        if signal in self._enabled and await self._serves(NODE_POOLS):
            return ChosenBackend(signal, reason, f"{message}; {signal.value} is used meanwhile")
        return ChosenBackend(ScalingBackend.NONE, reason, f"{message}; no node is asked for")

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
            if await self._client.serves(resource):
                raise
            is_served = False
        else:
            is_served = True
        self._served[resource] = (now, is_served)
        return is_served


@final
class NodeDaemonProbe:
    """Asks the API server for the DaemonSets of node software of all namespaces, at most once a minute."""

    def __init__(self, client: "KubeClient", now: "Callable[[], Instant]") -> None:
        self._client = client
        self._now = now
        self._asked = -PROBE_S
        self._found: tuple[NodeDaemon, ...] = ()

    async def daemons(self) -> tuple[NodeDaemon, ...]:
        """Return them by name; of a list that is refused or does not come, what was seen before."""
        now = self._now().monotonic
        if now - self._asked >= PROBE_S:
            self._asked = now
            try:
                listed = await self._client.list_as(DAEMON_SETS, UpgradeDaemonSet, _node_daemon)
            except KubeError as error:  # no pool waits for what is only a warning
                _log.warning("DaemonSets of node software are not known", error=str(error))
                return self._found
            found = (item for item in listed.items if item is not None)
            self._found = tuple(sorted(found, key=lambda item: item.name))
        return self._found


def _node_daemon(daemon_set: UpgradeDaemonSet) -> NodeDaemon | None:
    meta, template = daemon_set.metadata, daemon_set.spec.template
    if not is_node_software(template.metadata.labels or {}, template.spec.node_selector or {}):
        return None
    tolerations = tuple(template.spec.tolerations or ())
    return NodeDaemon(name=f"{meta.namespace}/{meta.name}", tolerations=tolerations)


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
