"""A layer that comes too slowly gives its slot to others; the time of the node's own disk does not count."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.kernelcache.layer_pull import OpenedLayer, PullProgress
from oci.errors import RegistryTimedOut


class PullClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class LayerDouble:
    size = 50


class ImageDouble:
    layer = LayerDouble()


class ClientDouble:
    def __init__(self, clock: PullClock, every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s

    async def blob(self, *_: object) -> AsyncIterator[bytes]:
        for _part in range(50):
            self._clock.now += self._every_s
            yield b"1"


async def received(*, every_s: float, disk_s: float) -> int:
    clock: Any = PullClock()
    client: Any = ClientDouble(clock, every_s)
    image: Any = ImageDouble()
    reference: Any = "registry.test/a:1"
    layer = OpenedLayer(client, reference, image, progress=PullProgress(), clock=clock)
    count = 0
    async with layer() as chunks:
        async for _ in chunks:
            clock.now += disk_s
            count += 1
    return count


async def test_a_registry_below_the_least_rate_gives_way() -> None:
    with pytest.raises(RegistryTimedOut, match="sent 7 bytes in 63 s, and gives way"):
        await received(every_s=9.0, disk_s=0.0)


async def test_the_time_of_the_disk_does_not_count() -> None:
    assert await received(every_s=1.0, disk_s=30.0) == 50
