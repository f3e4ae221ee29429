"""`index.changes`: what changed in the index goes to the controllers that write status back.

Also sets the gauges that belong to no single pool. A full look at everything at start covers what
changed before the controllers ran.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

from pool.index.change_log import Changes
from reconciler.pool.gauges import showing_sums
from reconciler.runtime.batches import steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.names import DeviceName, NodeName, PoolName
    from pool.allocation_reader import AllocationReader
    from pool.catalog import Catalog
    from pool.index.device_index import DeviceIndex
    from pool.model import Instant
    from reconciler.runtime.controller import Controller

PERIOD_S: Final = 0.25
DEVICE_DELAY_S: Final = 1.0
"""A pod's hold, commitment and binding follow each other within this; the device is written once."""
GAUGES_EVERY: Final = 20
"""Periods between two settings of the gauges: 5 s."""
QUEUED_A_TURN: Final = 1_000
"""Keys queued before others get their turn: a change of a pool is one of all of its devices."""


def _nobody(_changes: Changes) -> None:
    pass


@final
class IndexChangeDispatcher:
    """Hands changed keys to the controllers."""

    def __init__(  # noqa: PLR0913  # where changes come from, and all who get them
        self,
        index: "DeviceIndex",
        catalog: "Catalog",
        now: "Callable[[], Instant]",
        *,
        reader: "AllocationReader",
        pools: "Controller[PoolName]",
        devices: "Controller[DeviceName]",
        nodes: "Controller[NodeName]",
        on_changes: "Callable[[Changes], None]" = _nobody,
    ) -> None:
        """Take where changes come from and where they go; `on_changes` gets them too, in parts, and only notes them."""
        self._index = index
        self._reader = reader
        self._catalog = catalog
        self._now = now
        self._pools = pools
        self._devices = devices
        self._nodes = nodes
        self._on_changes = on_changes

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._run()
        finally:
            self._index.changes.leave()

    async def _run(self) -> NoReturn:
        self._index.changes.take()
        everything = Changes(
            frozenset(entry.facts.name for entry in self._index.devices.all()),
            frozenset(self._catalog.pools),
            frozenset(node.name for node in self._index.nodes.values())
            | frozenset(entry.facts.node for entry in self._index.devices.all()),
        )
        await self._queue(everything, device_delay_s=0)
        round_ = 0
        while True:
            await self.pump()
            if round_ % GAUGES_EVERY == 0:
                await self.set_gauges()
            round_ += 1
            await asyncio.sleep(PERIOD_S)

    async def pump(self) -> None:
        """Queue what changed since the last call."""
        await self._queue(self._index.changes.take(), device_delay_s=DEVICE_DELAY_S)

    async def set_gauges(self) -> None:
        """Set the gauges that are sums; others get their turn while it adds up."""
        for _ in showing_sums(self._reader, self._catalog, self._now(), index=self._index):
            await asyncio.sleep(0)

    async def _queue(self, changes: Changes, *, device_delay_s: float) -> None:
        """Hand on what changed, pools first: what is thought of them decides about nodes and devices."""
        nobody: frozenset[NodeName] = frozenset()
        nothing: frozenset[DeviceName] = frozenset()
        self._pools.enqueue_all(changes.pools)
        self._on_changes(Changes(nothing, changes.pools, nobody))
        for nodes in steps(list(changes.nodes), QUEUED_A_TURN):
            self._nodes.enqueue_all(nodes)
            self._on_changes(Changes(nothing, frozenset(), frozenset(nodes)))
            await asyncio.sleep(0)
        for devices in steps(list(changes.devices), QUEUED_A_TURN):
            self._devices.enqueue_all(devices, delay_s=device_delay_s)
            self._on_changes(Changes(frozenset(devices), frozenset(), nobody))
            await asyncio.sleep(0)
