"""The node's volumes of kernel caches: which content each uses, and which cache and pod it is of.

The mount is the truth: it is read before the driver is served, and again each minute. Which cache a volume is of is in
the spec of its pod, whose UID and volume are parts of the mount's path; of a pod that the API server does not show
(any more) it is what the call said that mounted it, or what the node's object shows.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from agent.kernelcache.content.errors import VolumesUnknownError
from agent.kernelcache.content.mountinfo import read_mounts
from agent.kernelcache.content.references import References, VolumeReference, find_references
from api.cache_name import CacheName
from api.names import PodUid
from telemetry.agent_metrics import CACHE_PODS
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agent.csi.volume_request import PublishVolume
    from agent.kernelcache.content.mountinfo import MountEntry
    from agent.kubelet.node_pods import NodePods
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.image_reference import Digest
    from api.kinds.gkmcachenode import GKMCacheNode

SOURCE: Final = "caches volumes"
"""Source of the problem in the registry."""
RECONCILE_EVERY_S: Final = 60.0
RETRY_EVERY_S: Final = 2.0
AWAITED_FOR_S: Final = 300.0
"""Seconds after a call in vain; kubelet calls again after two minutes at most."""
_VOLUME_PARTS: Final = 3
# volumes/kubernetes.io~csi/<volume>/mount, from its end: mount, volume

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUse:
    """A mounted volume."""

    reference: VolumeReference
    cache: CacheName | None
    """None where nothing says it."""
    pod_namespace: str = ""
    pod_name: str = ""


@final
@dataclass(frozen=True, slots=True)
class _Origin:
    """What the call said that mounted a volume."""

    cache: CacheName
    pod: str


@final
class VolumeUses:
    """The volumes in use; every method but `run` and `read` is one step."""

    def __init__(
        self,
        pods: "NodePods",
        problems: "ProblemRegistry",
        *,
        directory: "Path",
        on_change: "Callable[[], None]",
        mounts: "Callable[[], tuple[MountEntry, ...]]" = read_mounts,
    ) -> None:
        """Know nothing yet; `directory` is kubelet's directory of pods, `on_change` is called with each change."""
        self.references: Final = References()
        self.read_once: Final = asyncio.Event()
        """Set once the mounts have been read: before, no content may be removed or mounted."""
        self._pods = pods
        self._problems = problems
        self._directory = directory
        self._on_change = on_change
        self._mounts = mounts
        self._origins: dict[str, _Origin] = {}
        # target -> its call
        self._targets_in_flight: set[str] = set()
        # targets of calls that mount now
        self._check_requested = asyncio.Event()

    async def run(self) -> NoReturn:
        """Read the mounts, and again each minute and after a mount with an unknown end."""
        while True:
            self._check_requested.clear()
            is_read = await self.read()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_EVERY_S if is_read else RETRY_EVERY_S):
                    await self._check_requested.wait()

    async def read(self) -> bool:
        """Take the mounts over; return whether they could be read."""
        before = self.references.all()
        try:
            found = await asyncio.to_thread(self._find)
        except VolumesUnknownError as error:
            self._problems.set(SOURCE, AgentDegraded.CACHES_BLOCKED, str(error))
            return False
        self._problems.clear(SOURCE)
        if self.references.all() != before:
            # A call has mounted or unmounted meanwhile: what was read may be of before.
            self._check_requested.set()
            return True
        self.references.reconcile(found, self._targets_in_flight)
        mounted = {reference.target for reference in self.references.all()}
        self._origins = {key: item for key, item in self._origins.items() if key in mounted}
        self.read_once.set()
        if self.references.all() != before:
            self._changed()
        return True

    def target_of(self, target: "Path") -> str:
        """Return the target as mounts are listed: kubelet's root may be a link."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            return str(self._directory.resolve() / target.relative_to(self._directory))
        return str(target)

    @contextlib.contextmanager
    def mounting(self, volume: "PublishVolume", digest: "Digest") -> "Iterator[bool]":
        """Hold the content while it is mounted; False where it is being removed.

        After an error, what is mounted there is read.
        """
        target = self.target_of(volume.target)
        uid = volume.target.relative_to(self._directory).parts[0]
        reference = VolumeReference(
            target=target, digest=digest, pod_uid=PodUid(uid), volume_id=volume.volume
        )
        if not self.references.hold(reference):
            yield False
            return
        self._origins[target] = _Origin(volume.cache, volume.pod)
        self._targets_in_flight.add(target)
        try:
            yield True
        except BaseException:
            self._check_requested.set()
            raise
        finally:
            self._targets_in_flight.discard(target)
        self._changed()

    def released(self, target: "Path") -> "frozenset[Digest]":
        """Drop a volume that is not mounted any more; return what it used."""
        key = self.target_of(target)
        gone = frozenset(
            reference.digest for reference in self.references.all() if reference.target == key
        )
        self.references.release(key)
        self._origins.pop(key, None)
        if gone:
            self._changed()
        return gone

    def uses(self, current: "Mapping[str, GKMCacheNode]") -> "list[VolumeUse]":
        """Return all volumes; `current` are the node's objects."""
        by_volume = _reported_volumes(current)
        return [self._use_of(reference, by_volume) for reference in self.references.all()]

    def awaited(self) -> "frozenset[CacheName]":
        """Return the caches that pods of the node have in their specs and not mounted yet."""
        mounted = {_volume_of(reference) for reference in self.references.all()}
        return frozenset(
            cache
            for pod in self._pods.with_caches()
            if not pod.is_ended
            for volume, cache in pod.caches.items()
            if (pod.uid, volume) not in mounted
        )

    def _use_of(
        self, reference: VolumeReference, current: "Mapping[str, tuple[CacheName, str, str]]"
    ) -> VolumeUse:
        uid, volume = _volume_of(reference)
        pod = None if uid is None else self._pods.get_any(uid)
        origin = self._origins.get(reference.target)
        if pod is not None and volume in pod.caches:
            cache: CacheName | None = pod.caches[volume]
            namespace, name = pod.namespace, pod.name
        elif origin is not None:
            cache = origin.cache
            namespace, _, name = origin.pod.partition("/")
        elif reference.volume_id in current:
            cache, namespace, name = current[reference.volume_id or ""]
        else:
            cache, namespace, name = None, "", ""
        return VolumeUse(reference=reference, cache=cache, pod_namespace=namespace, pod_name=name)

    def _find(self) -> tuple[VolumeReference, ...]:
        return find_references(self._mounts(), self._directory)

    def _changed(self) -> None:
        CACHE_PODS.set(
            len({reference.pod_uid or reference.target for reference in self.references.all()})
        )
        self._on_change()


def _volume_of(reference: VolumeReference) -> tuple[PodUid | None, str]:
    """Return the pod's UID, and the name of the volume in its spec."""
    parts = reference.target.rsplit("/", _VOLUME_PARTS - 1)
    return reference.pod_uid, parts[-2] if len(parts) == _VOLUME_PARTS else ""


def _reported_volumes(
    current: "Mapping[str, GKMCacheNode]",
) -> dict[str, tuple[CacheName, str, str]]:
    """Return volume id -> its cache and pod, as the node's objects show them."""
    return {
        pod.volume_id: (CacheName(namespace=namespace, name=name), pod.pod_namespace, pod.pod_name)
        for namespace, node in current.items()
        for name, digests in (node.status.caches or {}).items()
        for digest in digests.values()
        for pod in digest.pods or ()
        if pod.volume_id
    }


@final
class AwaitedCaches:
    """What pods wait for; every method is one step."""

    def __init__(self, clock: "Clock", in_specs: "Callable[[], frozenset[CacheName]]") -> None:
        """`in_specs` returns the caches of pods that have not mounted them."""
        self._clock = clock
        self._in_specs = in_specs
        self._until: dict[CacheName, float] = {}

    def ask(self, cache: "CacheName") -> bool:
        """Note a call in vain; return whether it is the first one."""
        is_new = cache not in self._until
        self._until[cache] = self._clock.monotonic() + AWAITED_FOR_S
        return is_new

    def names(self) -> "frozenset[CacheName]":
        """Return the caches that are awaited now."""
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until) | self._in_specs()

    def got(self, cache: "CacheName") -> None:
        """Note that a pod has mounted it."""
        self._until.pop(cache, None)

    def ends_in_s(self) -> float | None:
        """Return when the next one is not awaited any more."""
        now = self._clock.monotonic()
        return min((max(until - now, 0.0) for until in self._until.values()), default=None)
