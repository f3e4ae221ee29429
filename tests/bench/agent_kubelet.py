"""What kubelet does with a plugin for one pod, timed: GetPreferredAllocation, then Allocate.

Over one kept connection, as kubelet has it; `tests.support.kubelet.plugins` opens one for each call.
"""

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

import grpc

from api.kubelet.deviceplugin import ALLOCATE, GET_OPTIONS, GET_PREFERRED, PLUGIN_SERVICE
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.kubelet.proto.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredAllocationRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from tests.bench.report import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NAMESPACE = "default"
CONTAINER = "main"


class Times(NamedTuple):
    """Of one container, in seconds."""

    prefer_s: float
    allocate_s: float


@final
class AllocationState:
    """kubelet's own: pods that are admitted or being admitted, and their units."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self.given: dict[str, tuple[str, ...]] = {}
        """Pod's name -> its units; none while it is being admitted."""

    def list_pods(self) -> list[PodUnits]:
        return [self._current(name) for name in self.given]

    def find_pod(self, namespace: str, name: str) -> PodUnits | None:
        return self._current(name) if namespace == NAMESPACE and name in self.given else None

    def allocatable(self) -> "Mapping[str, Sequence[str]]":
        return {}

    def in_use(self) -> set[str]:
        return {unit for units in self.given.values() for unit in units}

    def _current(self, name: str) -> PodUnits:
        units = self.given[name]
        held = {self._resource: units} if units else {}
        return PodUnits(NAMESPACE, name, (ContainerUnits(CONTAINER, held),))


@final
class Asking:
    """A connection to the plugin; an async context manager."""

    def __init__(
        self, socket: "Path", allocation_state: AllocationState, chance: random.Random
    ) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}")
        self._allocation_state = allocation_state
        self._chance = chance

    async def __aenter__(self) -> Self:
        await self._channel.channel_ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def admit(self, name: str, assigned: "Sequence[str]", healthy: "Sequence[str]") -> Times:
        """Admit a pod of one container, and check that it gets exactly what it was assigned."""
        in_use = self._allocation_state.in_use()
        available = [unit for unit in healthy if unit not in in_use]
        # kubelet's set has no order.
        self._chance.shuffle(available)
        request = ContainerPreferredAllocationRequest(
            available_deviceIDs=available, allocation_size=len(assigned)
        )
        content = PreferredAllocationRequest(container_requests=[request]).SerializeToString()
        self._allocation_state.given[name] = ()
        began = time.perf_counter()
        answer = await self._call(GET_PREFERRED, content)
        prefer_s = time.perf_counter() - began
        (response,) = PreferredAllocationResponse.FromString(answer).container_responses
        units = tuple(response.deviceIDs)
        assert set(units) == set(assigned), f"{name} was assigned {assigned}, preferred is {units}"
        checked("preferred allocation")
        allocate_s = await self.allocate(units)
        self._allocation_state.given[name] = tuple(sorted(units))
        return Times(prefer_s, allocate_s)

    async def allocate(self, ids: "Sequence[str]") -> float:
        """Have units handed out, and check that it is these; return the seconds."""
        content = _allocate_request(ids)
        began = time.perf_counter()
        answer = await self._call(ALLOCATE, content)
        took_s = time.perf_counter() - began
        (response,) = AllocateResponse.FromString(answer).container_responses
        assert response.envs["GPU_UNITS"] == ",".join(sorted(ids)), response
        devices = {unit.partition("::")[0] for unit in ids}
        assert {device.name.partition("=")[2] for device in response.cdi_devices} == devices, (
            response
        )
        checked("allocation")
        return took_s

    async def ask_options(self) -> float:
        """Have the plugin say what it can do: what a call costs that needs nothing; the seconds."""
        began = time.perf_counter()
        await self._call(GET_OPTIONS, b"")
        return time.perf_counter() - began

    async def refuses(self, ids: "Sequence[str]") -> None:
        """Check that units which a live pod has are refused."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._call(ALLOCATE, _allocate_request(ids))
            raise AssertionError(f"{ids} were given out twice")
        checked("refusal")

    async def _call(self, call: str, content: bytes) -> bytes:
        calling: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = self._channel.unary_unary(
            f"/{PLUGIN_SERVICE}/{call}"
        )
        return bytes(await calling(content, timeout=10.0))


def _allocate_request(ids: "Sequence[str]") -> bytes:
    request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=ids)])
    return request.SerializeToString()
