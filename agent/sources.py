"""Where a node learns what its pools offer: the pool's file, or the API server for all pools.

A source calls `offer` with everything whenever something changed. What cannot be used is logged and
counted, and what was offered before stays.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar, final

import structlog

from agent.errors import BadConfig
from agent.offers import Offer, offer_of
from api.deviceplugin import OfferedDevice
from api.gpudevice import GPUDevice
from api.gpupool import GPUPool
from kube.errors import cut
from kube.resources import GPU_DEVICES, GPU_POOLS
from kube.watching import Informer, Selection
from pool.facts import device_facts, pool_facts
from pool.units import layout_of
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.config import ConfigFile
    from api.clock import Clock
    from api.names import PoolName
    from kube.client import KubeClient

LOOK_EVERY_S: Final = 1.0
COALESCE_S: Final = 0.1

_log = structlog.get_logger()

T = TypeVar("T", GPUDevice, GPUPool)


class Taker(Protocol):
    """Takes what is offered."""

    def offer(self, offers: "Iterable[Offer]") -> None:
        """Offer exactly this from now on."""


@final
class FileSource:
    """The file of one pool."""

    def __init__(self, file: "ConfigFile", node: str, taker: Taker) -> None:
        self._file = file
        self._node = node
        self._taker = taker

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Read the file if it changed."""
        try:
            config = self._file.read_if_changed()
        except BadConfig as error:
            TASK_FAILURES.labels("pool.config").inc()
            _log.error("list of cards not used", error=cut(str(error)))
            return
        if config is not None:
            offer = offer_of(config, self._node)
            _log.info("cards", pool=offer.pool, units=len(offer.units))
            self._taker.offer([offer])


@final
class _Kept(Generic[T]):
    """Objects by name, and that something changed."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.by_name: dict[str, T] = {}
        self._changed = changed

    def replace_all(self, items: "Sequence[T]") -> None:
        self.by_name = {item.metadata.name: item for item in items}
        self._changed.set()

    def upsert(self, item: T) -> None:
        self.by_name[item.metadata.name] = item
        self._changed.set()

    def discard(self, item: T) -> None:
        self.by_name.pop(item.metadata.name, None)
        self._changed.set()


@final
class ClusterSource:
    """GPUDevices of the node, and all GPUPools, from the API server."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, node: str, taker: Taker) -> None:
        self._taker = taker
        self._changed = asyncio.Event()
        self._devices: _Kept[GPUDevice] = _Kept(self._changed)
        self._pools: _Kept[GPUPool] = _Kept(self._changed)
        on_node = Selection(field_selector=f"status.nodeName={node}")
        self._informers: tuple[Informer[Any], ...] = (
            Informer(
                client, GPU_DEVICES, GPUDevice, sink=self._devices, clock=clock, selection=on_node
            ),
            Informer(client, GPU_POOLS, GPUPool, sink=self._pools, clock=clock),
        )

    async def run(self) -> NoReturn:
        """Follow devices and pools until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            for informer in self._informers:
                await informer.synced.wait()
            while True:
                self._changed.clear()
                self._taker.offer(self.offers())
                await self._changed.wait()
                await asyncio.sleep(COALESCE_S)
        raise AssertionError("a task group of endless tasks ended")

    def offers(self) -> list[Offer]:
        """Return what the node's cards offer, pool by pool."""
        units: dict[PoolName, list[OfferedDevice]] = {}
        for _, device in sorted(self._devices.by_name.items()):
            facts = device_facts(device)
            pool = None if facts.pool is None else self._pools.by_name.get(facts.pool)
            if pool is None:
                continue
            units.setdefault(pool.name, []).extend(
                OfferedDevice(
                    id=unit,
                    is_healthy=not (facts.is_faulted or facts.is_draining),
                    numa_node=device.status.numa_node,
                )
                for unit in layout_of(facts, pool_facts(pool)).ids
            )
        return [
            Offer(
                name,
                self._pools.by_name[name].resource_name,
                tuple(sorted(found, key=lambda unit: unit.id)),
            )
            for name, found in sorted(units.items())
        ]
