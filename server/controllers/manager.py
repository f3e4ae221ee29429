"""One term of a leader: its surroundings, and the controllers while they are put together."""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from reconciler.pool.validation_cache import PoolValidityCache
from reconciler.runtime.controller import Controller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from api.names import NodeName, PoolName
    from kube.client import KubeClient
    from kube.events import EventRecorder
    from reconciler.runtime.controller import Key
    from reconciler.runtime.event_source import EventSource
    from scheduler.context import ExtenderContext
    from server.caches import Caches
    from server.clock import ProcessClock
    from server.settings import Settings

    Works = list[tuple[str, Callable[[], Awaitable[object]]]]
    """What is run, each for ever, and its name."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """What the controllers work with."""

    client: "KubeClient"
    caches: "Caches"
    recorder: "EventRecorder"
    scheduling: "ExtenderContext"
    settings: "Settings"
    clock: "ProcessClock"


@final
class ControllerManager:
    """Takes in controllers, and whom to tell what; what it subscribes ends with `stack`."""

    def __init__(self, context: ControllerContext, stack: contextlib.AsyncExitStack) -> None:
        self.context = context
        self.stack = stack
        self.works: Works = []
        self.rules = PoolValidityCache(context.caches.catalog, context.caches.devices)
        """What is thought of each pool."""
        self.of_pools: list[Callable[[PoolName], None]] = [self.rules.pool_changed]
        """Told each pool that changed, in this order."""
        self.of_nodes: list[Callable[[NodeName], None]] = []
        """Told each node whose object changed."""
        self.tell(context.caches.devices.changes, self.rules.node_changed)

    def tell(self, source: "EventSource[Any]", callback: "Callable[[str], None]") -> None:
        """Tell the callback the keys of what changes, as long as the term lasts."""
        self.stack.enter_context(source.subscribed(callback))

    def controller(
        self,
        name: str,
        reconcile: "Callable[[Key], Awaitable[float | None]]",
        *,
        workers: int = 1,
        share: float = 1.0,
    ) -> "Controller[Key]":
        """Return a controller that runs for the term."""
        controller: Controller[Key] = Controller(
            name, reconcile, self.context.clock, workers=workers, share=share
        )
        self.works.append((name, controller.run))
        return controller
