"""Where a node learns what its pools offer: the pool's file, or the API server for all pools.

A source calls `offer` with everything whenever something changed. What cannot be used is logged and
counted, and what was offered before stays.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.errors import BadPoolConfigError
from agent.plugin.advertised import AdvertisedUnits, Unit, offer_of
from agent.problems.registry import ProblemRegistry
from pool.facts import device_facts, pool_facts
from pool.layout import layout_of
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.api_cache import NodeObjects
    from agent.plugin.pool_config import ConfigFile
    from api.names import PoolName

LOOK_EVERY_S: Final = 1.0
COALESCE_S: Final = 0.1
CONFIG_SOURCE: Final = "pool.config"

_log = structlog.get_logger()


class Taker(Protocol):
    """Takes what is offered."""

    def offer(self, offers: "Iterable[AdvertisedUnits]") -> None:
        """Offer exactly this from now on."""


@final
class FileSource:
    """The file of one pool."""

    def __init__(
        self,
        file: "ConfigFile",
        node: str,
        taker: Taker,
        *,
        problems: ProblemRegistry | None = None,
    ) -> None:
        self._file = file
        self._node = node
        self._taker = taker
        self._problems = problems or ProblemRegistry()

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Read the file if it changed."""
        try:
            config = self._file.read_if_changed()
        except BadPoolConfigError as error:
            TASK_FAILURES.labels("pool.config").inc()
            self._problems.set(CONFIG_SOURCE, AgentDegraded.BAD_CONFIG, str(error))
            return
        if config is not None:
            self._problems.clear(CONFIG_SOURCE)
            offer = offer_of(config, self._node)
            _log.info("cards", pool=offer.pool, units=len(offer.units))
            self._taker.offer([offer])


@final
class ClusterSource:
    """GPUDevices of the node, and all GPUPools, from the API server."""

    def __init__(self, objects: "NodeObjects", taker: Taker) -> None:
        self._objects = objects
        self._taker = taker

    async def run(self) -> NoReturn:
        """Follow devices and pools until cancelled; somebody else runs their informers."""
        changed = asyncio.Event()
        self._objects.listeners.append(changed.set)
        await self._objects.synced()
        while True:
            changed.clear()
            self._taker.offer(self.offers())
            await changed.wait()
            await asyncio.sleep(COALESCE_S)

    def offers(self) -> list[AdvertisedUnits]:
        """Return what the node's cards offer, pool by pool."""
        units: dict[PoolName, list[Unit]] = {}
        pools = self._objects.pools()
        for device in self._objects.devices():
            facts = device_facts(device)
            pool = None if facts.pool is None else pools.get(facts.pool)
            if pool is None:
                continue
            units.setdefault(pool.name, []).extend(
                Unit(
                    id=unit,
                    device=facts.uuid,
                    is_healthy=not (facts.is_faulted or facts.is_draining),
                    numa_node=device.status.numa_node,
                )
                for unit in layout_of(facts, pool_facts(pool)).ids
            )
        return [
            AdvertisedUnits(
                name,
                pools[name].resource_name,
                tuple(sorted(found, key=lambda unit: unit.id)),
            )
            for name, found in sorted(units.items())
        ]
