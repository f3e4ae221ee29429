"""Contexts of controllers, for tests of what wakes them."""

import contextlib
from dataclasses import replace
from typing import Any

from api.clock import Clock
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from reconciler.caches import Caches
from reconciler.controller_spec import ControllerContext, ControllerSpec
from reconciler.runtime.controller import Controller
from server.controllers.settings import controller_settings
from server.settings import Settings
from tests.support.loop_clock import ServerClock


def _some_caches() -> Caches:
    allocation_state = AllocationState()
    return Caches(allocation_state.index, allocation_state, Catalog())


def a_context(
    *,
    caches: Caches | None = None,
    client: Any = None,
    recorder: Any = None,
    clock: Any = None,
    **settings: Any,
) -> ControllerContext:
    """Return a context; end what it opens with `async with context.ending`."""
    return ControllerContext(
        client=client,
        caches=caches or _some_caches(),
        recorder=recorder,
        scheduling=None,  # type: ignore[arg-type]  # only binding recovery needs it
        settings=replace(controller_settings(Settings()), **settings),
        clock=clock or ServerClock(),
        ending=contextlib.AsyncExitStack(),
    )


def connected(spec: ControllerSpec, context: ControllerContext, clock: Clock) -> Controller[Any]:
    """Return a controller that never runs and is woken by the spec's triggers."""

    async def reconcile(_key: object) -> None: ...

    controller: Controller[Any] = Controller(spec.name, reconcile, clock)
    spec.connect(context, controller)
    return controller
