"""The loop that makes the store what the caches, the devices and the pods of the node need; level-triggered.

Each step reads everything, lets `kernelcache.store_plan` decide, removes and binds names itself, starts extractions, and
reports what there is for the node's objects. An extraction that ends, a change of an object, a device, a pod or a
volume, and a time of the plan bring the next step.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from agent.kernelcache.cache_decision import CacheDecision, NodeCacheFacts, decide, devices_of
from agent.kernelcache.content.errors import StoreError, StoreFault
from agent.kernelcache.extractions import RunningExtraction, fault_text
from agent.kernelcache.reported_caches import StoreState, report_of
from agent.kernelcache.volume_uses import AwaitedCaches
from kernelcache.store_plan import Extract, ExtractionReason, StorePlan, plan_store
from kernelcache.store_snapshot import (
    DigestOnDisk,
    FailedAttempts,
    StoreSnapshot,
    unneeded_since,
)
from kube.event_recorder import ObjectReference
from kube.resources import CLUSTER_GKM_CACHES, GKM_CACHES
from telemetry.agent_metrics import CACHE_CONTENTS, CACHE_DISK_BYTES, CACHE_DISK_QUOTA_BYTES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.driver.port import DriverSnapshot
    from agent.kernelcache.cache_objects import CacheObjects
    from agent.kernelcache.content.content_store import ContentStore
    from agent.kernelcache.extractions import Extractions
    from agent.kernelcache.node_object_writer import NodeObjectWriter
    from agent.kernelcache.opened_store import OpenedStore
    from agent.kernelcache.volume_uses import VolumeUses
    from api.cache_name import CacheName
    from api.clock import Clock
    from api.image_reference import Digest
    from api.kinds.gkmcache import GKMCache
    from api.names import NodeName
    from kernelcache.store_snapshot import DesiredCache, StoreLimits
    from kube.event_recorder import EventRecorder

CHECK_EVERY_S: Final = 60.0
"""Seconds between two readings of the store's directory, whatever else happens."""
PAUSE_S: Final = 0.05
"""Seconds between two steps: a burst of changes is one step."""
_ACTION: Final = "ExtractCache"

_log = structlog.get_logger()


@final
class StoreReconciler:
    """The node's store, kept as it should be by `run`; the other methods are one step each."""

    def __init__(  # noqa: PLR0913  # the parts of the role, each wired once
        self,
        store: "OpenedStore",
        extractions: "Extractions",
        objects: "CacheObjects",
        *,
        uses: "VolumeUses",
        writer: "NodeObjectWriter",
        events: "EventRecorder",
        clock: "Clock",
        node: "NodeName",
        limits: "StoreLimits",
        pods_synced: asyncio.Event,
        triggered: asyncio.Event,
    ) -> None:
        """Wire the parts; `run` does the work, and again each time that `triggered` is set."""
        self.store: Final = store
        self.extractions: Final = extractions
        self.awaited: Final = AwaitedCaches(clock, uses.awaited)
        self.faults: Final[dict[Digest, str]] = {}
        """Why the last attempt to extract it failed."""
        self.removal_faults: Final[dict[Digest, str]] = {}
        self.plan: StorePlan | None = None
        """The last one."""
        self._objects = objects
        self._uses = uses
        self._writer = writer
        self._events = events
        self._clock = clock
        self._node = node
        self._limits = limits
        self._pods_synced = pods_synced
        self._devices = devices_of(None)
        self._has_devices = False
        self._failures: dict[Digest, FailedAttempts] = {}
        self._failed_for: dict[Digest, object] = {}
        # digest -> what its caches said when it failed: other images or secrets are tried at once
        self._unneeded: dict[Digest, float] = {}
        self._sizes: dict[Digest, int] = {}
        self._checked_at = 0.0
        self._triggered = triggered
        CACHE_DISK_QUOTA_BYTES.set(limits.quota_bytes or 0)
        objects.subscribe(self.trigger)

    def trigger(self) -> None:
        self._triggered.set()

    def observe_devices(self, snapshot: "DriverSnapshot | None") -> None:
        """Take a reading of the driver; one that does not answer changes nothing of what was known."""
        devices = devices_of(snapshot)
        if self._has_devices and (snapshot is None or devices == self._devices):
            return
        self._devices, self._has_devices = devices, True
        self.trigger()

    @property
    def is_ready(self) -> bool:
        """Whether everything that decisions rest on was read once."""
        return (
            self._has_devices
            and self._objects.is_synced
            and self._pods_synced.is_set()
            and self._uses.read_once.is_set()
        )

    async def run(self) -> NoReturn:
        """Reconcile until cancelled; extractions under way end then, and leave nothing behind."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._triggered.clear()
                    await self._wait(await self.reconcile(group))
        finally:
            self.store.close()

    async def _wait(self, within_s: float) -> None:
        await asyncio.sleep(PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._triggered.wait()

    async def reconcile(self, group: asyncio.TaskGroup) -> float:
        """Make one step; return the seconds after which the next is due without a change."""
        if not self.is_ready:
            return 1.0
        store = await self.store.open()
        decisions = self.decisions()
        if store is not None:
            self._check(store)
            # With a thousand caches each part takes milliseconds: kubelet's calls come in between.
            await asyncio.sleep(0)
            await self._carry_out(store, decisions, group)
        await asyncio.sleep(0)
        self._report(decisions)
        return self._due_in_s()

    def decisions(self) -> "dict[CacheName, tuple[GKMCache, CacheDecision]]":
        """Return what the node is to do about each cache."""
        node = self._facts(self.awaited.names())
        return {
            name: (cache, decide(cache, node)) for name, cache in self._objects.caches().items()
        }

    def decision_on(self, cache: "GKMCache") -> CacheDecision:
        """Return the same for one cache."""
        return decide(cache, self._facts(frozenset()))

    def _facts(self, awaited: "frozenset[CacheName]") -> NodeCacheFacts:
        return NodeCacheFacts(
            node=self._node,
            devices=self._devices,
            awaited=awaited,
            sizes=self._sizes,
            stored=frozenset()
            if self.store.current is None
            else self.store.current.contents.keys(),
        )

    async def _carry_out(
        self,
        store: "ContentStore",
        decisions: "Mapping[CacheName, tuple[GKMCache, CacheDecision]]",
        group: asyncio.TaskGroup,
    ) -> None:
        desired = {
            name: item.desired for name, (_, item) in decisions.items() if item.desired is not None
        }
        self._forget(store, desired, decisions)
        free_bytes = await asyncio.to_thread(store.free_bytes, self.extractions.limits.floor)
        snapshot = self._snapshot(store, desired, free_bytes)
        now = self._now()
        plan = self.plan = plan_store(snapshot, self._limits, now)
        self._unneeded = unneeded_since(snapshot, now)
        needed = {item.digest for item in desired.values()}
        for digest in self.extractions.running.keys() - needed:
            self.extractions.cancel(digest)
        # Which content a cache needs that this version cannot read is unknown: none is removed meanwhile.
        removals = () if self._objects.unread() else plan.removals
        removed = frozenset(item.digest for item in removals)
        if await self._bind_names(store, decisions, removed):
            for removal in removals:
                await self._remove(store, removal.digest)
            for digest in store.damaged - self._uses.references.digests():
                await self._remove(store, digest)
            for extraction in self._due(plan, decisions):
                self.extractions.start(extraction, store=store, group=group, ended=self._extracted)

    def _snapshot(
        self, store: "ContentStore", desired: "Mapping[CacheName, DesiredCache]", free_bytes: int
    ) -> StoreSnapshot:
        contents = store.contents
        self._sizes |= {digest: item.disk_bytes for digest, item in contents.items()}
        CACHE_CONTENTS.set(len(contents))
        CACHE_DISK_BYTES.set(sum(content.disk_bytes for content in contents.values()))
        snapshot = StoreSnapshot(
            desired=desired,
            stored={
                digest: DigestOnDisk(bytes=item.disk_bytes, last_used_at=item.used_at.timestamp())
                for digest, item in contents.items()
            },
            references={
                reference.target: reference.digest for reference in self._uses.references.all()
            },
            extracting={
                digest: item.needs_bytes for digest, item in self.extractions.running.items()
            },
            failures=self._failures,
            unneeded_since=self._unneeded,
            free_bytes=free_bytes,
        )
        CACHE_DISK_QUOTA_BYTES.set(snapshot.quota_bytes(self._limits) or 0)
        return snapshot

    async def _bind_names(
        self,
        store: "ContentStore",
        decisions: "Mapping[CacheName, tuple[GKMCache, CacheDecision]]",
        removed: "frozenset[Digest]",
    ) -> bool:
        """Bind the names of caches to their digests, or until they are there to those before; False on an error."""
        there = store.contents.keys() - removed
        unread = self._objects.unread()
        names = {
            name: digest
            for name, digest in store.names.items()
            if name in unread and digest in there
        }
        for name, (cache, decision) in decisions.items():
            bound = decision.digest if decision.digest in there else store.names.get(name)
            if not cache.is_deleting and bound is not None and bound in there:
                names[name] = bound
        if names == store.names:
            return True
        try:
            await store.set_names(names)
        except StoreError as error:
            self.store.report_error(error)
            _log.warning("names of kernel caches not written", error=str(error))
            return False
        self.store.clear_problem()
        return True

    async def _remove(self, store: "ContentStore", digest: "Digest") -> None:
        references = self._uses.references
        if not references.begin_removal(digest):
            return
        try:
            await store.remove(digest)
        except StoreError as error:
            self.store.report_error(error)
            self._fail(digest, self.removal_faults, error)
            _log.warning("cache not removed", digest=digest, error=str(error))
        else:
            self._succeed(digest)
            _log.info("cache removed", digest=digest)
        finally:
            references.end_removal(digest)

    def _due(
        self, plan: StorePlan, decisions: "Mapping[CacheName, tuple[GKMCache, CacheDecision]]"
    ) -> "Iterator[RunningExtraction]":
        """Yield what is to be started while there is space: caches that pods wait for first."""
        for item in sorted(plan.extractions, key=_extraction_order):
            pairs = [decisions[name] for name in item.caches]
            # A cache whose digest is not proven now is not what is pulled for.
            caches = [cache for cache, decision in pairs if not decision.waits_for]
            if not caches:
                continue
            sizes = [
                decision.desired.bytes for _, decision in pairs if decision.desired is not None
            ]
            extraction = RunningExtraction(
                digest=item.digest,
                caches=caches,
                max_bytes=item.max_bytes,
                needs_bytes=max(*sizes, item.max_bytes or 0),
                is_awaited=item.reason is ExtractionReason.POD_WAITS,
            )
            if self.extractions.has_capacity_for(extraction):
                yield extraction

    def _extracted(self, extraction: RunningExtraction, error: Exception | None) -> None:
        self.trigger()
        digest = extraction.digest
        if error is None:
            self._succeed(digest)
            self.store.clear_problem()
            return
        if isinstance(error, StoreError):
            self.store.report_error(error)
            if error.fault is StoreFault.LOST:
                # The store is opened again, and then extracts it.
                return
        current = self.faults.get(digest)
        self._fail(digest, self.faults, error)
        self._failed_for[digest] = _parameters_of(extraction.caches)
        text = self.faults[digest]
        _log.warning("cache not extracted", digest=digest, error=text)
        if text == current:
            return
        for cache in extraction.caches:
            kind = GKM_CACHES if cache.metadata.namespace else CLUSTER_GKM_CACHES
            self._events.warning(
                ObjectReference.to(kind, cache.metadata),
                EventReason.CACHE_NOT_EXTRACTED,
                f"Node {self._node}: {text}",
                action=_ACTION,
            )

    def _fail(self, digest: "Digest", faults: "dict[Digest, str]", error: Exception) -> None:
        before = self._failures.get(digest)
        count = before.count + 1 if before is not None else 1
        self._failures[digest] = FailedAttempts(count=count, at=self._now())
        faults[digest] = fault_text(error)

    def _succeed(self, digest: "Digest") -> None:
        self._failures.pop(digest, None)
        self._failed_for.pop(digest, None)
        self.faults.pop(digest, None)
        self.removal_faults.pop(digest, None)

    def _forget(
        self,
        store: "ContentStore",
        desired: "Mapping[CacheName, DesiredCache]",
        decisions: "Mapping[CacheName, tuple[GKMCache, CacheDecision]]",
    ) -> None:
        """Drop failures of what is not needed any more, and of caches that have other images or secrets now."""
        naming: dict[Digest, list[GKMCache]] = {}
        for name, item in desired.items():
            naming.setdefault(item.digest, []).append(decisions[name][0])
        stored = store.contents.keys() | store.damaged
        for digest in list(self._failures):
            if digest not in naming and digest not in stored:
                self._succeed(digest)
            elif (
                digest in naming
                and digest in self._failed_for
                and self._failed_for[digest] != _parameters_of(naming[digest])
            ):
                del self._failures[digest]
                del self._failed_for[digest]
        in_use = stored | {item.digest for _, item in decisions.values() if item.digest is not None}
        for digest in self._sizes.keys() - in_use:
            del self._sizes[digest]

    def _check(self, store: "ContentStore") -> None:
        """Look at the directories of contents once a minute: one may have been removed by hand, or the whole store."""
        now = self._clock.monotonic()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        for digest in store.contents:
            try:
                store.files_of(digest)
            except StoreError as error:
                self.store.report_error(error)
                _log.warning("cache is damaged", digest=digest, error=str(error))
                if error.fault is StoreFault.LOST:
                    self.trigger()
                    return

    def _report(self, decisions: "Mapping[CacheName, tuple[GKMCache, CacheDecision]]") -> None:
        current = self._objects.node_objects()
        state = StoreState(
            contents={} if self.store.current is None else self.store.current.contents,
            names={} if self.store.current is None else self.store.current.names,
            faults=self.faults,
            removal_faults=self.removal_faults,
            extracting=frozenset(self.extractions.running),
            plan=self.plan,
            store_fault="" if self.store.is_taken else self.store.fault,
        )
        report = report_of(state, decisions, uses=self._uses.uses(current), published=current)
        self._writer.report(report, self._devices.gpus)

    def _due_in_s(self) -> float:
        due = [CHECK_EVERY_S]
        if self.store.current is None:
            due.append(self.store.retry_in_s() or 0.0)
        elif self.plan is not None and self.plan.next_at is not None:
            due.append(max(self.plan.next_at - self._now(), 0.0))
        if (awaited := self.awaited.ends_in_s()) is not None:
            due.append(awaited)
        return min(due)

    def _now(self) -> float:
        # Monotonic: a wall clock that is set back would put off retries and removals for as long as it was wrong.
        return self._clock.monotonic()


def _extraction_order(extract: Extract) -> "tuple[bool, Digest]":
    return extract.reason is not ExtractionReason.POD_WAITS, extract.digest


def _parameters_of(caches: "Iterable[GKMCache]") -> object:
    """Return what an attempt depends on besides the digest."""
    return sorted(
        (
            str(cache.cache_name),
            cache.spec.image,
            tuple(secret.name for secret in cache.spec.pull_secrets or ()),
        )
        for cache in caches
    )
