"""Sources of the units to advertise: the file of one pool, or the API server for all pools.

A source calls `advertise` with all units whenever something changed. An invalid file is logged and counted,
and the units advertised before stay.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.errors import BadPoolConfigError
from agent.plugin.advertised import AdvertisedUnits, Unit, advertised_units
from agent.problems.registry import ProblemRegistry
from pool.facts import device_facts, pool_facts
from pool.layout import layout_of, units_by_resource
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.api_cache import NodeObjects
    from agent.plugin.pool_config import ConfigFile
    from api.names import PoolName

RELOAD_EVERY_S: Final = 1.0
COALESCE_S: Final = 0.1
CONFIG_SOURCE: Final = "pool.config"

_log = structlog.get_logger()


class AdvertisedUnitsSink(Protocol):
    """Advertises units to kubelet."""

    def advertise(self, advertised: "Iterable[AdvertisedUnits]") -> None:
        """Advertise exactly these units from now on."""


@final
class FileSource:
    """The file of one pool."""

    def __init__(
        self,
        file: "ConfigFile",
        node: str,
        sink: AdvertisedUnitsSink,
        *,
        problems: ProblemRegistry | None = None,
    ) -> None:
        self._file = file
        self._node = node
        self._sink = sink
        self._problems = problems or ProblemRegistry()

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        while True:
            self.reload()
            await asyncio.sleep(RELOAD_EVERY_S)

    def reload(self) -> None:
        """Read the file if it changed."""
        try:
            config = self._file.read_if_changed()
        except BadPoolConfigError as error:
            TASK_FAILURES.labels("pool.config").inc()
            self._problems.set(CONFIG_SOURCE, AgentDegraded.BAD_CONFIG, str(error))
            return
        if config is not None:
            self._problems.clear(CONFIG_SOURCE)
            advertised = advertised_units(config, self._node)
            units = sum(len(item.units) for item in advertised)
            _log.info("pool configuration read", pool=config.pool, units=units)
            self._sink.advertise(advertised)


@final
class ClusterSource:
    """GPUDevices of the node, and all GPUPools, from the API server."""

    def __init__(self, objects: "NodeObjects", sink: AdvertisedUnitsSink) -> None:
        self._objects = objects
        self._sink = sink

    async def run(self) -> NoReturn:
        """Follow devices and pools until cancelled; their informers run elsewhere."""
        changed = asyncio.Event()
        self._objects.subscribe(changed.set)
        await self._objects.synced()
        while True:
            changed.clear()
            self._sink.advertise(self.advertised())
            await changed.wait()
            await asyncio.sleep(COALESCE_S)

    def advertised(self) -> list[AdvertisedUnits]:
        """Return the units of the node's devices by pool and resource."""
        units: dict[tuple[PoolName, str], list[Unit]] = {}
        pools = self._objects.pools()
        for device in self._objects.devices():
            facts = device_facts(device)
            pool = None if facts.pool is None else pools.get(facts.pool)
            if pool is None:
                continue
            facts_of_pool = pool_facts(pool)
            for resource, ids in units_by_resource(
                layout_of(facts, facts_of_pool), facts_of_pool
            ).items():
                units.setdefault((pool.name, resource), []).extend(
                    Unit(
                        id=unit,
                        device=facts.uuid,
                        is_healthy=not (facts.is_faulted or facts.is_draining),
                        numa_node=device.status.numa_node,
                    )
                    for unit in ids
                )
        return [
            AdvertisedUnits(
                name,
                resource,
                tuple(sorted(found, key=lambda unit: unit.id)),
                pools[name].slice_placement,
            )
            for (name, resource), found in sorted(units.items())
        ]
