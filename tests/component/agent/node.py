"""A pool's file as kubelet mounts it, and plugins that run beside a kubelet double."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from agent.files import replace_file
from agent.kubelet.node_pods import NodePods, node_pod
from agent.kubelet.pod_resources import PodResources
from agent.plugin.advertised import AdvertisedUnits, Unit
from agent.plugin.config_sources import FileSource
from agent.plugin.devices_file import DevicesFile
from agent.plugin.held_units import HeldUnits
from agent.plugin.pods_file import PodsFile
from agent.plugin.pool_config import ConfigFile
from agent.plugin.preferred_allocation import PreferredAllocator
from agent.plugin.servers import PluginServers
from agent.problems.registry import ProblemRegistry
from api.foreign.core import Pod
from api.kinds.gpupool import SlicePlacement
from api.nodefiles.node_pods_file import PODS_FILE, NodePodsFile, NodePodUnits
from api.nodefiles.poolconfig import CONFIG_KEY, DeviceInjection
from http_edge.system_clock import SystemClock
from telemetry.reasons import EventReason
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.polling import until
from tests.support.recorded_events import RecordedEvents

RESOURCE = "gpu.deckhouse.io/whole"


class MountedConfig:
    """A ConfigMap volume: `config.json` -> `..data/config.json`, `..data` swapped at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._numbers = itertools.count()
        self.path = directory / CONFIG_KEY
        self.readers: list[Callable[[], object]] = []
        """Called after each change, in place of a look each second."""

    def put(self, content: bytes, key: str = CONFIG_KEY) -> None:
        version = self._directory / f"..{next(self._numbers)}"
        version.mkdir()
        (version / key).write_bytes(content)
        fresh = self._directory / "..fresh"
        fresh.symlink_to(version.name)
        fresh.rename(self._directory / "..data")
        link = self._directory / key
        if not link.is_symlink():
            link.symlink_to(f"..data/{key}")
        for read in self.readers:
            read()

    def put_devices(self, *uuids: str, pool: str = "whole", **more: Any) -> None:
        self.put(config_of(*uuids, pool=pool, **more))


def config_of(*uuids: str, pool: str = "whole", **more: Any) -> bytes:
    devices = [{"uuid": uuid} for uuid in uuids]
    return msgspec.json.encode(
        {
            "version": "v1",
            "pool": pool,
            "resource": f"gpu.deckhouse.io/{pool}",
            "nodes": {"n1": devices, "n2": [{"uuid": "GPU-elsewhere"}]},
            **more,
        }
    )


@asynccontextmanager
async def a_plugin(
    kubelet: PluginsOfKubelet,
    mounted: MountedConfig,
    *,
    hand_out: DeviceInjection = DeviceInjection.CDI,
) -> AsyncIterator[PluginServers]:
    """The plugin of a pool on node n1; it reads each change of the file at once."""
    served = PluginServers(kubelet.directory, SystemClock(), hand_out=hand_out)
    source = FileSource(ConfigFile(mounted.path), "n1", served)
    source.reload()
    mounted.readers.append(source.reload)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(served.run())
        yield served
        task.cancel()


DISTINCT_DEVICES = SlicePlacement.DISTINCT_DEVICES


def whole_devices(count: int, resource: str = RESOURCE, pool: str = "whole") -> AdvertisedUnits:
    return AdvertisedUnits(
        pool, resource, tuple(Unit(id=f"GPU-{n}", device=f"GPU-{n}") for n in range(count))
    )


def numa_devices(*numa_nodes: int) -> AdvertisedUnits:
    """A device for each number, on the NUMA node of that number."""
    units = (
        Unit(id=f"GPU-{n}", device=f"GPU-{n}", numa_node=at) for n, at in enumerate(numa_nodes)
    )
    return AdvertisedUnits("whole", RESOURCE, tuple(units))


def slices_of(
    devices: int, slices: int, resource: str, *, placement: SlicePlacement = DISTINCT_DEVICES
) -> AdvertisedUnits:
    units = [
        Unit(id=f"GPU-s{device}::{n}", device=f"GPU-s{device}")
        for device in range(devices)
        for n in range(slices)
    ]
    in_order = tuple(sorted(units, key=lambda unit: unit.id))
    return AdvertisedUnits("slices", resource, in_order, placement)


class Agent:
    """All plugins of a node, and what they were told and tell; a watch that shows pods when asked to."""

    def __init__(self, kubelet: KubeletOfNode, folder: Path, **more: Any) -> None:
        clock = SystemClock()
        self.kubelet = kubelet
        self.pods = NodePods()
        self.problems = ProblemRegistry()
        self.recorder = RecordedEvents()
        self.pod_resources = PodResources(kubelet.pod_resources.directory, clock)
        self.pods_file = folder / PODS_FILE
        self.held_units = HeldUnits(self.pods, PodsFile(folder, clock))
        self.allocator = PreferredAllocator(
            self.pods,
            self.pod_resources,
            held_units=self.held_units,
            events=self.recorder,
            problems=self.problems,
        )
        self.served = PluginServers(
            kubelet.plugins.directory,
            clock,
            **{
                "hand_out": DeviceInjection.CDI,
                "devices": DevicesFile(folder),
                "allocator": self.allocator,
                "problems": self.problems,
                "reports_numa_nodes": lambda: True,
                **more,
            },
        )

    @property
    def events(self) -> list[tuple[str, EventReason, str]]:
        """Pod, reason and note."""
        return [
            (event.regarding.name, EventReason(event.reason), event.note)
            for event in self.recorder.events
        ]

    def show(self, pod: Pod) -> None:
        """As the watch does."""
        found = node_pod(pod)
        assert found is not None
        self.pods.upsert(found)

    def forget(self, pod: Pod) -> None:
        found = node_pod(pod)
        assert found is not None
        self.pods.discard(found)

    async def admit(self, pod: Pod, *, lag_s: float = 0.0) -> dict[str, set[str]]:
        """Bind a pod, show it after a while, and return what each of its containers got."""
        if lag_s:
            asyncio.get_running_loop().call_later(lag_s, self.show, pod)
        else:
            self.show(pod)
        admitted = await self.kubelet.admit(pod)
        return {
            name: {unit for units in got.units.values() for unit in units}
            for name, got in admitted.items()
        }

    def report_holders(self, **units: str) -> None:
        """As the node's agent does: pods, and what they have until their processes are gone."""
        pods = [
            NodePodUnits(
                uid=f"uid-{name}", namespace="default", name=name, units=item.split(), is_given=True
            )
            for name, item in units.items()
        ]
        replace_file(self.pods_file, msgspec.json.encode(NodePodsFile(version="v1", pods=pods)))

    def end(self, pod: Pod) -> None:
        """A pod ends, and its watch shows it at once."""
        self.kubelet.end(pod.metadata.uid)
        self.forget(pod)

    @asynccontextmanager
    async def running(self, *advertised: AdvertisedUnits) -> AsyncIterator["Agent"]:
        self.served.advertise(advertised)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.served.run())
            plugins = self.kubelet.plugins
            await until(
                lambda: all(
                    plugins.capacity(item.resource) == len(item.units) for item in advertised
                )
            )
            yield self
            task.cancel()
        await self.pod_resources.close()
