"""`index.changes`: what changed in the index goes to the controllers that write status back.

Also sets the gauges that belong to no single pool. A full look at everything at start covers what
changed before the controllers ran.
"""

import asyncio
from typing import TYPE_CHECKING, Final, final

from telemetry.metrics import (
    DEVICES_RESERVED,
    DEVICES_UNASSIGNED,
    INDEX_GENERATION,
    RESERVATION_AGE,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.names import DeviceName, NodeName, PoolName
    from pool.books import Books
    from pool.catalog import Catalog
    from pool.model import Instant
    from reconciler.runtime import Controller

PERIOD_S: Final = 0.25
DEVICE_DELAY_S: Final = 1.0
"""A pod's hold, commitment and binding follow each other within this; the device is written once."""
GAUGES_EVERY: Final = 20
"""Periods between two settings of the gauges: 5 s."""


@final
class ChangePump:
    """Hands changed keys to the controllers."""

    def __init__(
        self,
        books: "Books",
        catalog: "Catalog",
        now: "Callable[[], Instant]",
        *,
        pools: "Controller[PoolName]",
        devices: "Controller[DeviceName]",
        nodes: "Controller[NodeName]",
    ) -> None:
        self._books = books
        self._catalog = catalog
        self._now = now
        self._pools = pools
        self._devices = devices
        self._nodes = nodes

    async def run(self) -> None:
        """Work until cancelled."""
        self._devices.enqueue_all(entry.facts.name for entry in self._books.index.devices())
        self._pools.enqueue_all(self._catalog.pools)
        round_ = 0
        while True:
            self.pump()
            if round_ % GAUGES_EVERY == 0:
                self.set_gauges()
            round_ += 1
            await asyncio.sleep(PERIOD_S)

    def pump(self) -> None:
        """Queue what changed since the last call."""
        changes = self._books.index.take_changes()
        self._devices.enqueue_all(changes.devices, delay_s=DEVICE_DELAY_S)
        self._pools.enqueue_all(changes.pools)
        self._nodes.enqueue_all(changes.nodes)

    def set_gauges(self) -> None:
        """Set the gauges that are sums over devices and reservations."""
        index, now = self._books.index, self._now().monotonic
        INDEX_GENERATION.set(index.generation)
        unassigned = 0
        reserved: dict[PoolName, int] = dict.fromkeys(self._catalog.pools, 0)
        for entry in index.devices():
            pool = entry.facts.pool
            if pool is None:
                unassigned += 1
            elif pool in reserved and entry.assumed & ~entry.observed:
                reserved[pool] += 1
        DEVICES_UNASSIGNED.set(unassigned)
        oldest = self._books.oldest_reservations()
        for name, count in reserved.items():
            DEVICES_RESERVED.labels(name).set(count)
            RESERVATION_AGE.labels(name).set(now - oldest[name].created_at if name in oldest else 0)
