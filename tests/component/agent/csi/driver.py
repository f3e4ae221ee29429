"""A driver of one node on a real socket, with a store and mounts in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from agent.csi.identity_service import IdentityService
from agent.csi.node_service import NodeService
from agent.csi.volume_source import CacheVolume
from agent.csi.volume_targets import VolumeTargets
from agent.served_socket import ServedSocket
from agent.unary_calls import UnaryCalls
from api.cache_name import CacheName
from http_edge.system_clock import SystemClock
from tests.support.csi import A_DIGEST, UID, CsiClient, MounterDouble, StoreDouble, a_target

NODE = "node-1"
LLAMA = CacheName(name="llama", namespace="team-a")


@final
@dataclass
class Driver:
    folder: Path
    pods: Path
    store: StoreDouble
    mounter: MounterDouble
    client: CsiClient

    @property
    def socket(self) -> Path:
        return self.folder / "csi.sock"

    def a_pod(self, uid: str = UID, volume: str = "cache") -> Path:
        """Make what kubelet makes before it publishes a volume; return the target."""
        target = a_target(self.pods, uid, volume)
        target.parent.mkdir(parents=True)
        return target

    def a_cache(self, name: CacheName = LLAMA, *, content: str = "content") -> CacheVolume:
        """Put a cache on the node."""
        volume = CacheVolume(
            content=self.folder / content, digest=A_DIGEST, has_shared_objects=False
        )
        volume.content.mkdir(exist_ok=True)
        self.store.caches[name] = volume
        return volume


def calls_of_driver() -> UnaryCalls:
    return UnaryCalls(
        component="the CSI driver",
        api="CSI 1.10",
        task="csi.answer",
        clock=SystemClock(),
        log_keys={},
    )


@asynccontextmanager
async def a_driver(folder: Path, pods: Path | None = None) -> AsyncIterator[Driver]:
    """Serve a driver below the folder; `pods` is kubelet's directory, in the folder by default."""
    driver = Driver(
        folder=folder,
        pods=pods or folder / "pods",
        store=StoreDouble(),
        mounter=MounterDouble(),
        client=CsiClient(folder / "csi.sock"),
    )
    driver.pods.mkdir(exist_ok=True)
    node = NodeService(
        NODE, driver.store, VolumeTargets(driver.pods, driver.mounter), pods=driver.pods
    )
    calls = calls_of_driver()
    served = ServedSocket(driver.socket, [IdentityService().handlers(calls), node.handlers(calls)])
    await served.ensure()
    try:
        yield driver
    finally:
        await served.stop(0)
