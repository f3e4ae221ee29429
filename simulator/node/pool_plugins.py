"""A fake of the pools' device plugins on all nodes, seen through kubelet: the allocatable of nodes.

It follows the device lists that the control plane writes for the plugins, and writes the units that
kubelet would advertise into each Node's status: all units as capacity, those of devices that are
not withheld as allocatable, and zero once a pool has no device on the node any more.
"""

import asyncio
import base64
import gzip
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from api.foreign.workload_kinds import ConfigMap
from api.names import POOL_LABEL
from api.nodefiles.poolconfig import CONFIG_KEY, PACKED_CONFIG_KEY, PoolConfig
from kube.errors import KubeError, NotFound
from kube.informer import Informer, Selection
from kube.resources import CONFIG_MAPS, NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

RETRY_S: Final = 1.0

Offer = dict[str, tuple[int, int]]
"""Resource -> its capacity and what of it is allocatable, on one node."""

_log = structlog.get_logger()
_decoder = msgspec.json.Decoder(PoolConfig)


@final
class PoolPlugins:
    """The device plugins of all pools on all nodes."""

    def __init__(
        self, client: "KubeClient", clock: "Clock", *, namespace: str, left_alone: str = "/"
    ) -> None:
        """`left_alone` is how the names of nodes begin that have a kubelet; by default there are none."""
        self._client = client
        self._clock = clock
        self._left_alone = left_alone
        self._selection = Selection(namespace=namespace, label_selector=POOL_LABEL)
        self._lists: dict[str, PoolConfig] = {}
        # name of the ConfigMap -> what it says
        self._offered: defaultdict[str, Offer] = defaultdict(dict)
        # node -> what its status says
        self._changed = asyncio.Event()

    async def run(self) -> NoReturn:
        informer = Informer(
            self._client,
            CONFIG_MAPS,
            ConfigMap,
            sink=self,
            clock=self._clock,
            selection=self._selection,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run(), name="plugins/lists")
            group.create_task(self._advertise(), name="plugins/advertise")
        raise AssertionError("a task group of endless tasks ended")

    def replace_all(self, items: "Sequence[ConfigMap]") -> None:
        gone = self._lists.keys() - {item.metadata.name for item in items}
        for name in gone:
            del self._lists[name]
        for item in items:
            self.upsert(item)
        self._changed.set()

    def upsert(self, item: ConfigMap) -> None:
        """Store a list; an unreadable one changes nothing."""
        try:
            config = _config_of(item)
        except (ValueError, OSError, EOFError) as error:
            _log.warning("list not read", config_map=item.metadata.name, error=str(error))
            return
        if config is not None:
            self._lists[item.metadata.name] = config
            self._changed.set()

    def discard(self, item: ConfigMap) -> None:
        self._lists.pop(item.metadata.name, None)
        self._changed.set()

    async def _advertise(self) -> NoReturn:
        while True:
            await self._changed.wait()
            self._changed.clear()
            offers = _advertised_units(self._lists.values(), self._left_alone)
            # Each node has a kubelet of its own: none waits for another one's write.
            async with asyncio.TaskGroup() as group:
                for node in sorted(offers.keys() | self._offered.keys()):
                    group.create_task(self._write_with_retries(node, offers.get(node, {})))

    async def _write_with_retries(self, node: str, offer: Offer) -> None:
        try:
            await self._write_units(node, offer)
        except KubeError as error:
            _log.warning("node status not written", node=node, error=str(error))
            await asyncio.sleep(RETRY_S)
            self._changed.set()

    async def _write_units(self, node: str, offer: Offer) -> None:
        """Write differences; a resource without a plugin stays, with zero units."""
        before = self._offered[node]
        requested = dict.fromkeys(before, (0, 0)) | offer
        news = {name: counts for name, counts in requested.items() if before.get(name) != counts}
        if not news:
            return
        status = {
            "capacity": {name: str(total) for name, (total, _) in news.items()},
            "allocatable": {name: str(healthy) for name, (_, healthy) in news.items()},
        }
        try:
            await self._client.merge_patch(
                NODES, {"status": status}, name=node, subresource="status"
            )
        except NotFound:
            self._offered.pop(node)
            return
        before.update(news)


def _config_of(item: ConfigMap) -> PoolConfig | None:
    """Return the list of a ConfigMap; None for others."""
    content: str | bytes
    if item.data and CONFIG_KEY in item.data:
        content = item.data[CONFIG_KEY]
    elif item.binary_data and PACKED_CONFIG_KEY in item.binary_data:
        content = gzip.decompress(base64.b64decode(item.binary_data[PACKED_CONFIG_KEY]))
    else:
        return None
    return _decoder.decode(content)


def _advertised_units(lists: "Iterable[PoolConfig]", left_alone: str) -> dict[str, Offer]:
    """Return the units that each node advertises, but for those of these names."""
    totals: Counter[tuple[str, str]] = Counter()
    healthy: Counter[tuple[str, str]] = Counter()
    listed = (
        (config, node, device)
        for config in lists
        for node, devices in config.nodes.items()
        for device in devices
    )
    for config, node, device in listed:
        for resource, ids in config.units_by_resource(device).items():
            totals[node, resource] += len(ids)
            healthy[node, resource] += 0 if device.is_withheld else len(ids)
    offers: defaultdict[str, Offer] = defaultdict(dict)
    for (node, resource), total in totals.items():
        if node.startswith(left_alone):
            continue
        offers[node][resource] = (total, healthy[node, resource])
    return offers
