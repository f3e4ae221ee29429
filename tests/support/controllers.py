"""Contexts of controllers, for tests of what wakes them."""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.index.device_index import DeviceIndex
from reconciler.controller_spec import ControllerContext, ControllerSpec
from reconciler.informer_stores import InformerStores
from server.controllers.settings import controller_settings
from server.kernelcache.mutation_key_secret import MutationKeySecret
from server.settings import Settings
from tests.support.loop_clock import ServerClock


def new_stores() -> InformerStores:
    kernel_caches = CacheIndex()
    return InformerStores(
        AllocationState(DeviceIndex(caches=kernel_caches)), Catalog(), kernel_caches
    )


def a_context(
    *,
    stores: InformerStores | None = None,
    client: Any = None,
    recorder: Any = None,
    clock: Any = None,
    cache_proof: Any = None,
    **settings: Any,
) -> ControllerContext:
    """Return a context; end what it opens with `async with context.ending`."""
    return ControllerContext(
        client=client,
        stores=stores or new_stores(),
        recorder=recorder,
        scheduling=None,  # type: ignore[arg-type]  # only binding recovery needs it
        settings=replace(controller_settings(Settings()), **settings),
        clock=clock or ServerClock(),
        cache_proof=cache_proof or MutationKeySecret(client, "gpu"),
        ending=contextlib.AsyncExitStack(),
    )


class Woken:
    """Keys that triggers have reconciled, at once and with a delay."""

    def __init__(self) -> None:
        self._at_once: dict[Any, None] = {}
        self.later: dict[Any, float] = {}

    def enqueue(self, key: Any, *, delay_s: float = 0.0) -> None:
        if delay_s:
            self.later.setdefault(key, delay_s)
        else:
            self._at_once[key] = None

    def enqueue_all(self, keys: Iterable[Any], *, delay_s: float = 0.0) -> None:
        for key in keys:
            self.enqueue(key, delay_s=delay_s)

    def taken(self) -> list[Any]:
        """Return the keys without a delay since the last call."""
        found = list(self._at_once)
        self._at_once.clear()
        return found


def connected(spec: ControllerSpec, context: ControllerContext) -> Woken:
    """Return the keys that the spec's triggers wake from now on, the initial ones first."""
    woken = Woken()
    spec.connect(context, woken)
    return woken
