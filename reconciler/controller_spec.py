"""Declarations of controllers and background tasks, which stand beside the code that they declare.

A `ControllerSpec` says what a controller may do at the API server, what wakes it and how it is built.
`server.controllers` runs all specs for each leadership term; RBAC, metrics, task names and wiring come from the
same list. Derived caches and sources are functions of the context, shared through `ControllerContext.shared`: a
source that depends on another one obtains it there, hence subscribes after it.
"""

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, final

from reconciler.runtime.controller import Controller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from api.clock import Clock, Instant
    from api.kinds.gkmcache import GKMCache
    from kernelcache.admitted_image import ProvenImage
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.event_source import EventSource
    from manifests.install.rbac import PolicyRule
    from manifests.install.server_policy import OwnObjects
    from pool.allocation_reader import AllocationReader
    from pool.allocation_state import AllocationState
    from pool.catalog import Catalog
    from pool.index.reader import IndexReader
    from reconciler.informer_stores import InformerStores
    from reconciler.settings import ControllerSettings
    from scheduler.context import ExtenderContext

    Reconcile = Callable[[Any], Awaitable[float | None]]
    """Takes a key; returns the seconds after which to reconcile again, or None."""
    Run = Callable[[], Awaitable[object]]
    """Works until cancelled."""

    class ProcessClock(Clock, Protocol):
        """Clock that also reads both of its times at once."""

        def instant(self) -> Instant:
            """Return both readings."""

    class CacheProof(Protocol):
        """Proves images of stored kernel caches."""

        def is_loaded(self) -> bool:
            """Say whether the keys are read; before, nothing can be said about a cache."""

        def proven(self, cache: GKMCache) -> ProvenImage | str:
            """Return the image that admission let in for this very object, or why nothing proves that."""

    class KeyQueue(Protocol):
        """Queue of keys to reconcile; a `Controller`."""

        def enqueue(self, key: Hashable, *, delay_s: float = 0.0) -> None:
            """Have the key reconciled after the delay at the latest."""

        def enqueue_all(self, keys: Iterable[Hashable], *, delay_s: float = 0.0) -> None:
            """Have every key reconciled."""


Source = TypeVar("Source", bound="Hashable")
Shared = TypeVar("Shared")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """Dependencies of the controllers of one leadership term. `ending` closes all that they open."""

    client: "KubeClient"
    stores: "InformerStores"
    recorder: "EventRecorder"
    scheduling: "ExtenderContext"
    settings: "ControllerSettings"
    clock: "ProcessClock"
    ending: contextlib.AsyncExitStack
    cache_proof: "CacheProof | None" = None
    """None where no kernel caches are served."""
    openings: list[contextlib.AbstractAsyncContextManager[object]] = field(default_factory=list)
    """Entered before the first key is reconciled, since builds do no I/O."""
    _shared: dict[object, Any] = field(default_factory=dict)

    @property
    def allocation_state(self) -> "AllocationState":
        return self.stores.allocation_state

    @property
    def index(self) -> "IndexReader":
        return self.stores.index

    @property
    def reader(self) -> "AllocationReader":
        return self.stores.reader

    @property
    def catalog(self) -> "Catalog":
        return self.stores.catalog

    def now(self) -> "Instant":
        return self.clock.instant()

    def shared(self, build: "Callable[[ControllerContext], Shared]") -> Shared:
        """Return the term's only result of `build`, made by the first call."""
        if build not in self._shared:
            self._shared[build] = build(self)
        found: Shared = self._shared[build]
        return found

    def follow(self, source: "EventSource[Source]", callback: "Callable[[Source], None]") -> None:
        """Subscribe for the rest of the term."""
        self.ending.enter_context(source.subscribed(callback))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(Generic[Source]):
    """A source of changes, and the keys that each change has reconciled."""

    source: "Callable[[ControllerContext], EventSource[Source]]"
    keys: "Callable[[ControllerContext, Source], Iterable[Hashable]] | None" = None
    """None: the changed key itself."""
    delay_s: "float | Callable[[ControllerContext, Source], float]" = 0.0
    """Gathers a burst of changes into one reconcile."""

    def connect(self, context: ControllerContext, queue: "KeyQueue") -> None:
        keys, delay_s = self.keys, self.delay_s

        def changed(key: Source) -> None:
            later_s = delay_s(context, key) if callable(delay_s) else delay_s
            if keys is None:
                queue.enqueue(key, delay_s=later_s)
            else:
                queue.enqueue_all(keys(context, key), delay_s=later_s)

        context.follow(self.source(context), changed)


def _always(_settings: "ControllerSettings") -> bool:
    return True


def _no_rules(_own: "OwnObjects") -> "tuple[PolicyRule, ...]":
    return ()


def _no_keys(_context: ControllerContext) -> "tuple[Hashable, ...]":
    return ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSpec:
    """A controller of a leader: its name in metrics, logs and tasks, permissions, triggers and construction."""

    name: str
    build: "Callable[[ControllerContext], Reconcile]"
    """Returns the reconcile function; does no I/O."""
    triggers: "tuple[Trigger[Any], ...]"
    initial: "Callable[[ControllerContext], Iterable[Hashable]]" = _no_keys
    """Keys that are reconciled when a term begins, besides those that the triggers publish then."""
    initial_delay_s: float = 0.0
    rbac: "tuple[PolicyRule, ...]" = ()
    namespaced_rbac: "tuple[PolicyRule, ...]" = ()
    """Rights within the control plane's own namespace."""
    own_rbac: "Callable[[OwnObjects], tuple[PolicyRule, ...]]" = _no_rules
    """Further ones there, on objects that settings name."""
    workers: int = 1
    share: float = 1.0
    """Share of its time that a worker works; see `Controller`."""
    is_enabled: "Callable[[ControllerSettings], bool]" = _always

    def start(self, context: ControllerContext) -> "Run":
        """Build the controller, subscribe it to its triggers and queue the initial keys; nothing runs yet."""
        controller: Controller[Any] = Controller(
            self.name, self.build(context), context.clock, workers=self.workers, share=self.share
        )
        self.connect(context, controller)
        return controller.run

    def connect(self, context: ControllerContext, queue: "KeyQueue") -> None:
        """Subscribe the queue to the triggers, and queue the initial keys."""
        for trigger in self.triggers:
            trigger.connect(context, queue)
        queue.enqueue_all(self.initial(context), delay_s=self.initial_delay_s)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A background loop of a leader."""

    name: str
    build: "Callable[[ControllerContext], Run]"
    """Does no I/O."""
    rbac: "tuple[PolicyRule, ...]" = ()
    namespaced_rbac: "tuple[PolicyRule, ...]" = ()
    own_rbac: "Callable[[OwnObjects], tuple[PolicyRule, ...]]" = _no_rules
    is_enabled: "Callable[[ControllerSettings], bool]" = _always

    def start(self, context: ControllerContext) -> "Run":
        return self.build(context)


def devices(context: ControllerContext) -> "EventSource[Any]":
    """Nodes whose GPUDevices changed."""
    return context.stores.devices.changes


def inventories(context: ControllerContext) -> "EventSource[Any]":
    """Nodes whose GPUNodeInventory changed, other than in its agent's reports."""
    return context.stores.inventories.changes


def features(context: ControllerContext) -> "EventSource[Any]":
    """Nodes whose NodeFeatures changed."""
    return context.stores.features.changes


def operand_pods(context: ControllerContext) -> "EventSource[Any]":
    """Nodes whose operand pods changed."""
    return context.stores.operands.changes


DEVICES: Final[Trigger[Any]] = Trigger(source=devices)
INVENTORIES: Final[Trigger[Any]] = Trigger(source=inventories)
FEATURES: Final[Trigger[Any]] = Trigger(source=features)
OPERANDS: Final[Trigger[Any]] = Trigger(source=operand_pods)
