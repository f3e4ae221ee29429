"""`cache.status`: the finalizer and the status of a GKMCache or ClusterGKMCache, and its gauges.

    annotations ──proven──> finalizer ──> status.resolvedDigest, which nodes and placement follow
         └──not proven──> admission is asked to sign again ──in vain──> condition Error, no digest

A reconcile writes at most one thing; the watch brings the cache back for the next. While a cache is being deleted,
its digest stays as it is: a deletion moves the generation, for which admission signed nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from api.image_reference import parse_digest
from api.kinds.gkmcache import CacheConditionType
from api.names import CACHE_FINALIZER, CLUSTER_CACHE_FINALIZER, MUTATION_SIGNATURE_ANNOTATION
from api.text import truncate
from kernelcache.cache_conditions import reported_state
from kernelcache.signatures.mutation import SignedWith
from kube.errors import ApiError, Conflict, NotFound
from kube.event_recorder import ObjectReference
from kube.resources import CLUSTER_GKM_CACHES, GKM_CACHES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.kernelcache.cache_figures import CacheObservations, CacheResolution, status_of_cache
from reconciler.kernelcache.cache_gauges import CacheGauges
from reconciler.kernelcache.device_targets import device_targets
from reconciler.runtime.controller import STATUS_SHARE
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.cache_name import CacheName
    from api.clock import Instant
    from api.kinds.gkmcache import GKMCache, GKMCacheStatus
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.resources import Resource
    from reconciler.controller_spec import CacheProof
    from reconciler.kernelcache.device_targets import DeviceTargets
    from reconciler.sinks.gkm_cache import GKMCacheSink
    from reconciler.sinks.gkm_cache_node import GKMCacheNodeSink

ACTION: Final = "ServeCache"


def record_cache(
    recorder: "EventRecorder",
    resource: "Resource",
    cache: "GKMCache",
    *,
    before: "GKMCacheStatus",
    after: "GKMCacheStatus",
) -> None:
    """Record what a status that was just written says for the first time."""
    regarding = ObjectReference.to(resource, cache.metadata)
    if after.resolved_digest and after.resolved_digest != before.resolved_digest:
        instead = (
            f" in place of {before.resolved_digest}: pods that mount it keep it until they end"
            if before.resolved_digest
            else ""
        )
        note = f"image {cache.spec.image} is {after.resolved_digest}{instead}"
        recorder.normal(regarding, EventReason.KERNEL_CACHE_RESOLVED, note, action=ACTION)
    state = reported_state(after.conditions)
    was = reported_state(before.conditions)
    if state.type is CacheConditionType.ERROR and was.type is not CacheConditionType.ERROR:
        recorder.warning(regarding, EventReason.KERNEL_CACHE_FAILED, state.message, action=ACTION)


RBAC: Final = (
    PolicyRule(
        group=GKM_CACHES.group,
        resources=tuple(
            f"{resource.plural}{part}"
            for resource in (GKM_CACHES, CLUSTER_GKM_CACHES)
            for part in ("", "/status")
        ),
        verbs=("patch",),
    ),
)

FIELD_MANAGER: Final = "gpu-control-plane/cache-status"
WORKERS: Final = 4
CONFLICT_RETRY_S: Final = 0.5
"""The watch shows the newer object within this."""
CHECK_S: Final = 300.0
"""Seconds between two passes over a cache of which nothing changes: keys are rotated without a change of it."""
SIGN_AGAIN_S: Final = 300.0
"""Seconds between two requests to admission to sign a cache again: each asks the image's registry."""
DOUBTED_S: Final = 150.0
"""How long a cache that was proven keeps its digest while it is not: replicas read a new key within a minute of each
other. No node pulls meanwhile what the status does not name."""
SIGNED_WITHIN_S: Final = 2.0
"""The watch shows within this what admission signed."""
KEYS_RETRY_S: Final = 1.0
"""A term may begin before the keys are read."""
GATHER_S: Final = 1.0
NODES_GATHERED_A_SECOND: Final = 100
MAX_GATHER_S: Final = 10.0
"""What nodes report is gathered, for longer where there are many: 1,000 nodes that extract a cache within a minute
cost six writes."""
DEVICES_GATHER_S: Final = 5.0

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSources:
    """Caches to read, and the proof of images."""

    caches: "GKMCacheSink"
    nodes: "GKMCacheNodeSink"
    targets: "DeviceTargets"
    proof: "CacheProof"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _SigningRequest:
    """The last request to admission to sign a cache again."""

    uid: str
    since: float
    """Time of the first request."""
    again_at: float
    refusal: str
    """Empty where it was answered."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _ResolvedState:
    resolution: CacheResolution
    needs_signature: bool = False
    """Admission is to sign: the annotations prove nothing, or are under the previous key."""


@final
class CacheStatusReconciler:
    """Reconciles one cache at a time."""

    def __init__(
        self,
        client: "KubeClient",
        sources: CacheSources,
        *,
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
    ) -> None:
        self._client = client
        self._sources = sources
        self._recorder = recorder
        self._now = now
        self._gauges = CacheGauges()
        self._writers = {
            resource: StatusWriter(client, resource, FIELD_MANAGER)
            for resource in (GKM_CACHES, CLUSTER_GKM_CACHES)
        }
        self._expected: Expectations[CacheName, GKMCacheStatus] = Expectations(now)
        self._asked: dict[CacheName, _SigningRequest] = {}
        # caches of which the annotations were not proven, or are under the previous key

    async def reconcile(self, name: "CacheName") -> float | None:
        """Take the next step."""
        cache = self._sources.caches.get(name)
        if cache is None:
            self._asked.pop(name, None)
            self._gauges.forget(name)
            return None
        try:
            if cache.is_deleting:
                return await self._finalize(cache)
            return await self._serve(cache)
        except NotFound:
            return None
        except Conflict:
            return CONFLICT_RETRY_S

    async def _finalize(self, cache: "GKMCache") -> float | None:
        """Show what still uses a cache that is being deleted; let it go once no node has it."""
        finalizers, ours = cache.metadata.finalizers or [], _finalizer(cache)
        if ours in finalizers and not self._sources.nodes.of_cache(cache.cache_name):
            await self._write_finalizers(
                cache, [finalizer for finalizer in finalizers if finalizer != ours]
            )
            return None
        await self._write_status(cache, _current_resolution(self._current(cache)))
        return None

    async def _serve(self, cache: "GKMCache") -> float:
        if not self._sources.proof.is_loaded():
            return KEYS_RETRY_S
        judged = self._proven_image(cache)
        if judged.resolution.fault:
            return await self._restore_proof(cache, judged.resolution.fault)
        # Before the digest, without which no node pulls: what a node has is let go before the cache goes.
        finalizers, ours = cache.metadata.finalizers or [], _finalizer(cache)
        if ours not in finalizers:
            await self._write_finalizers(cache, [*finalizers, ours])
            return CHECK_S
        if await self._write_status(cache, judged.resolution):
            return CHECK_S
        if judged.needs_signature:
            await self._sign_again(cache)
            return self._until_next_request(cache)
        self._asked.pop(cache.cache_name, None)
        return CHECK_S

    async def _restore_proof(self, cache: "GKMCache", fault: str) -> float:
        """Have a cache that is not proven signed again; it loses its digest if that does not help."""
        if await self._sign_again(cache):
            return SIGNED_WITHIN_S
        asked, current = self._asked[cache.cache_name], self._current(cache)
        left_s = asked.since + DOUBTED_S - self._now().monotonic
        if current.resolved_digest and left_s > 0:
            await self._write_status(cache, _current_resolution(current))
            return left_s
        reported = f"{fault}; {asked.refusal}" if asked.refusal else fault
        await self._write_status(cache, CacheResolution(fault=reported))
        return self._until_next_request(cache)

    def _proven_image(self, cache: "GKMCache") -> _ResolvedState:
        """Return the image that the stored annotations prove."""
        proven = self._sources.proof.proven(cache)
        if isinstance(proven, str):
            fault = f"its image is not proven to be admission's: {proven}"
            return _ResolvedState(resolution=CacheResolution(fault=fault), needs_signature=True)
        return _ResolvedState(
            resolution=CacheResolution(digest=proven.image.digest, image=proven.image.facts),
            needs_signature=proven.signed_with is SignedWith.PREVIOUS,
        )

    async def _sign_again(self, cache: "GKMCache") -> bool:
        """Have admission sign again, unless it was asked a short time ago; return whether it has answered.

        The removed annotation is what makes it do so: it resolves and verifies an image whose annotations prove
        nothing, and signs one that they prove.
        """
        name, now = cache.cache_name, self._now().monotonic
        asked = self._asked.get(name)
        if asked is not None and asked.uid != cache.metadata.uid:
            asked = None
        if asked is not None and now < asked.again_at:
            return False
        refusal = ""
        try:
            await self._patch(cache, {"annotations": {MUTATION_SIGNATURE_ANNOTATION: None}})
        except (NotFound, Conflict):
            raise
        except ApiError as error:
            refusal = truncate(error.message)
            _log.warning("cache not signed again", cache=str(name), error=refusal)
        self._asked[name] = _SigningRequest(
            uid=cache.metadata.uid,
            since=now if asked is None else asked.since,
            again_at=now + SIGN_AGAIN_S,
            refusal=refusal,
        )
        return not refusal

    def _until_next_request(self, cache: "GKMCache") -> float:
        asked = self._asked.get(cache.cache_name)
        now = self._now().monotonic
        return max(SIGNED_WITHIN_S, asked.again_at - now) if asked is not None else CHECK_S

    def _current(self, cache: "GKMCache") -> "GKMCacheStatus":
        """Return the status at the API server, with a write that the watch has not delivered yet."""
        return self._expected.unseen(cache.cache_name, cache.metadata) or cache.status

    async def _write_status(self, cache: "GKMCache", resolution: CacheResolution) -> bool:
        """Write the status where it differs, of the object that was judged; return whether it was written."""
        name, current = cache.cache_name, self._current(cache)
        status = status_of_cache(
            cache,
            current,
            resolution,
            observations=CacheObservations(
                nodes=self._sources.nodes.of_cache(name), targets=self._sources.targets
            ),
            now=self._now().utc,
        )
        self._gauges.show(name, status)
        if status is current:
            return False
        resource, meta = _resource(cache), cache.metadata
        written = await self._writers[resource].apply(
            meta.name,
            _complete(status),
            namespace=meta.namespace or None,
            version=meta.resource_version,
            uid=meta.uid,
        )
        if written is not None:
            self._expected.expect(name, status, written)
            record_cache(self._recorder, resource, cache, before=current, after=status)
        return True

    async def _write_finalizers(self, cache: "GKMCache", finalizers: "list[str]") -> None:
        """Write the list whole, and only over the list that was read."""
        version = cache.metadata.resource_version
        await self._patch(cache, {"resourceVersion": version, "finalizers": finalizers or None})

    async def _patch(self, cache: "GKMCache", metadata: "dict[str, object]") -> None:
        meta = cache.metadata
        await self._client.merge_patch(
            _resource(cache),
            {"metadata": {"uid": meta.uid, **metadata}},
            name=meta.name,
            namespace=meta.namespace or None,
        )


def _resource(cache: "GKMCache") -> "Resource":
    return GKM_CACHES if cache.metadata.namespace else CLUSTER_GKM_CACHES


def _finalizer(cache: "GKMCache") -> str:
    return CACHE_FINALIZER if cache.metadata.namespace else CLUSTER_CACHE_FINALIZER


def _current_resolution(current: "GKMCacheStatus") -> CacheResolution:
    return CacheResolution(digest=parse_digest(current.resolved_digest), image=current.image)


def _complete(status: "GKMCacheStatus") -> dict[str, object]:
    """Return every field that has a value; counts with their zeros, which columns show."""
    fields: dict[str, object] = {
        "resolvedDigest": status.resolved_digest,
        "image": status.image,
        "warmBelow": status.warm_below,
        "pools": status.pools,
    }
    return {
        **{name: value for name, value in fields.items() if value},
        "conditions": status.conditions,
        "counts": status.counts,
        "lastUpdated": status.last_updated,
    }


def _gather_s(context: ControllerContext, name: "CacheName") -> float:
    nodes = len(context.stores.gkm_cache_nodes.of_cache(name))
    return min(MAX_GATHER_S, max(GATHER_S, nodes / NODES_GATHERED_A_SECOND))


def _sources(context: ControllerContext) -> CacheSources:
    assert context.cache_proof is not None, "the settings enable caches without their keys"
    return CacheSources(
        caches=context.stores.gkm_caches,
        nodes=context.stores.gkm_cache_nodes,
        targets=context.shared(device_targets),
        proof=context.cache_proof,
    )


SPEC: Final = ControllerSpec(
    name="cache.status",
    rbac=RBAC,
    triggers=(
        Trigger(source=lambda context: context.stores.gkm_caches.changes),
        Trigger(source=lambda context: context.stores.gkm_cache_nodes.changes, delay_s=_gather_s),
        Trigger(
            source=lambda context: context.shared(device_targets).changes,
            keys=lambda context, _node: context.stores.gkm_caches.names(),
            delay_s=DEVICES_GATHER_S,
        ),
    ),
    initial=lambda context: list(context.stores.gkm_caches.names()),
    workers=WORKERS,
    share=STATUS_SHARE,
    is_enabled=lambda settings: settings.is_serving_caches,
    build=lambda context: (
        CacheStatusReconciler(
            context.client, _sources(context), recorder=context.recorder, now=context.now
        ).reconcile
    ),
)
