"""The gRPC service of a device plugin: one resource, its units, and the responses for containers.

kubelet makes two calls for most containers. GetPreferredAllocation identifies the container and names the
units, which kubelet then takes. Allocate carries ids alone, and is answered for exactly these at once.

An Allocate may come without a preference: kubelet hands on the units of an init container, or a
TopologyManager policy leaves no choice. The last List is then out of date, and kubelet is asked about each pod
that may have a unit (`agent.plugin.unpreferred_allocation`); never by a List, which makes kubelet allocate the
units of an open Allocate twice.

The service refuses units that it does not advertise and units of another live pod. kubelet then fails the
pod, which is better than two pods on one device. kubelet sets no deadline, and admits no pod of the node
while a call is open.
"""

import asyncio
from typing import TYPE_CHECKING, NoReturn, final

import grpc
import structlog

from agent.plugin.container_response import ResponseParameters, UnknownUnits, response_for
from agent.plugin.device_selection import SelectionRefused
from agent.plugin.pod_identification import PodQuery
from agent.unary_calls import CallContext, CallRefusedError, UnaryCalls
from api.kubelet.deviceplugin import (
    ALLOCATE,
    GET_OPTIONS,
    GET_PREFERRED,
    LIST_AND_WATCH,
    PLUGIN_SERVICE,
    PRE_START,
    VERSION,
)
from api.kubelet.proto.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from telemetry.agent_metrics import REFUSED_ALLOCATIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from agent.plugin.advertised import Unit, Units
    from agent.plugin.devices_file import DevicesOfNode
    from agent.plugin.pod_identification import IdentifiedContainer
    from agent.plugin.preferred_allocation import PreferredAllocator
    from api.clock import Clock


_log = structlog.get_logger()


@final
class DevicePluginService:
    """Serves one resource to kubelet."""

    def __init__(
        self,
        resource: str,
        clock: "Clock",
        *,
        allocator: "PreferredAllocator | None" = None,
    ) -> None:
        """Advertise nothing yet; without `allocator` kubelet chooses the units by itself."""
        self.resource = resource
        self.streams = 0
        """Open ListAndWatch streams; none means that kubelet has dropped the plugin."""
        self.streams_opened = 0
        """Streams that were opened since the start."""
        self.on_stream_end: Callable[[], None] = lambda: None
        """Called when a ListAndWatch stream has ended."""
        self._parameters = ResponseParameters(pool="")
        self._clock = clock
        self._allocator = allocator
        self._units: Units = ()
        self._by_id: dict[str, Unit] = {}
        self._devices: DevicesOfNode | None = None
        self._preferred_for: IdentifiedContainer | None = None
        # Of the last preference. An Allocate without one may be for that pod or for any other.
        self._expected: frozenset[str] | None = None
        # The units of the last preference, until the Allocate that follows it.
        self._changed = asyncio.Event()
        self._stream_generation = 0
        # Streams of an earlier generation end.

    def advertise(
        self,
        units: "Units",
        parameters: "ResponseParameters | None" = None,
        devices: "DevicesOfNode | None" = None,
    ) -> None:
        """Advertise exactly these units; ListAndWatch sends them where they differ."""
        self._parameters, self._devices = parameters or self._parameters, devices
        if units == self._units:
            return
        self._units = units
        self._by_id = {unit.id: unit for unit in units}
        self._notify()

    def end_streams(self) -> None:
        """End all ListAndWatch streams, by which kubelet learns that the plugin stops."""
        self._stream_generation += 1
        self._notify()

    def handlers(self) -> grpc.GenericRpcHandler:
        calls = UnaryCalls(
            component="the device plugin",
            api=f"the device plugin API {VERSION}",
            task="plugin.answer",
            clock=self._clock,
            log_keys={"resource": self.resource},
        )
        return grpc.method_handlers_generic_handler(
            PLUGIN_SERVICE,
            {
                GET_OPTIONS: calls.handler(GET_OPTIONS, Empty, self._options),
                LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    response_serializer=ListAndWatchResponse.SerializeToString,
                ),
                GET_PREFERRED: calls.handler(
                    GET_PREFERRED, PreferredAllocationRequest, self._prefer
                ),
                ALLOCATE: calls.handler(ALLOCATE, AllocateRequest, self._allocate),
                PRE_START: calls.handler(PRE_START, PreStartContainerRequest, self._pre_start),
            },
        )

    async def _options(self, _request: Empty) -> DevicePluginOptions:
        return DevicePluginOptions(get_preferred_allocation_available=self._allocator is not None)

    async def _list_and_watch(
        self, _request: bytes, _context: CallContext
    ) -> "AsyncIterator[ListAndWatchResponse]":
        generation = self._stream_generation
        # A kubelet that connects again has dropped its last preference.
        self._preferred_for = self._expected = None
        self.streams += 1
        self.streams_opened += 1
        try:
            while generation == self._stream_generation:
                changed = self._changed
                yield ListAndWatchResponse(devices=[unit.to_message() for unit in self._units])
                await changed.wait()
        finally:
            self.streams -= 1
            self.on_stream_end()

    async def _prefer(self, request: PreferredAllocationRequest) -> PreferredAllocationResponse:
        requests = request.container_requests
        if len(requests) > 1:
            text = f"{self.resource}: allocator of {len(requests)} containers in one request"
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text)
        return PreferredAllocationResponse(
            container_responses=[
                ContainerPreferredAllocationResponse(deviceIDs=await self._preferred(item))
                for item in requests
            ]
        )

    async def _preferred(self, request: ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        if self._allocator is None or request.allocation_size <= 0:
            return ()
        self._preferred_for = self._expected = None
        query = PodQuery(self.resource, request, self._parameters.slice_placement)
        preferred = await self._allocator.prefer(query, self._by_id)
        self._preferred_for, choice = preferred.container, preferred.choice
        if isinstance(choice, SelectionRefused):
            raise CallRefusedError(grpc.StatusCode.FAILED_PRECONDITION, choice.text)
        self._expected = frozenset(choice.units)
        return choice.units

    async def _allocate(self, request: AllocateRequest) -> AllocateResponse:
        containers = [item.devices_ids for item in request.container_requests]
        everything = [id_ for ids in containers for id_ in ids]
        unknown = sorted(set(everything) - self._by_id.keys())
        if unknown:
            self._refuse("unknown", f"{self.resource} has no {', '.join(unknown)} on this node")
        was_preferred, self._expected = self._expected == frozenset(everything), None
        if was_preferred:
            self._refuse_shared(everything)
        else:
            await self._refuse_held(everything)
        container = self._preferred_for if was_preferred else None
        responses = [self._response(dict.fromkeys(ids), container) for ids in containers]
        if self._allocator is not None and container is not None:
            self._allocator.record_allocation(container, self.resource, everything)
        return AllocateResponse(container_responses=responses)

    def _response(
        self, ids: "dict[str, None]", container: "IdentifiedContainer | None"
    ) -> ContainerAllocateResponse:
        units = [self._by_id[id_] for id_ in ids]
        response = response_for(units, self._parameters, self._devices)
        if isinstance(response, UnknownUnits):
            self._refuse("unknown", f"{self.resource}: {response.text}")
        pod = container.pod.ref if container else ""
        _log.info("allocated", resource=self.resource, units=list(ids), pod=pod)
        return response

    def _refuse_shared(self, ids: "Sequence[str]") -> None:
        if self._allocator is None:
            return
        pod = self._preferred_for.pod if self._preferred_for else None
        for id_ in ids:
            holder = self._allocator.holder(id_, self.resource, pod)
            if holder is not None:
                self._refuse("held", f"{self.resource}: {id_} is held by {holder}")

    async def _refuse_held(self, ids: "Sequence[str]") -> None:
        """Refuse the units of other pods, where the call's own pod is not known and the List is old."""
        if self._allocator is None:
            return
        last = self._preferred_for.pod if self._preferred_for else None
        held = await self._allocator.holders(ids, self.resource, last)
        if held:
            found = ", ".join(f"{item} is held by {ref}" for item, ref in sorted(held.items()))
            self._refuse("held", f"{self.resource}: {found}")

    def _refuse(self, cause: str, text: str) -> NoReturn:
        REFUSED_ALLOCATIONS.labels(self.resource, cause).inc()
        raise CallRefusedError(
            grpc.StatusCode.INVALID_ARGUMENT
            if cause == "unknown"
            else grpc.StatusCode.FAILED_PRECONDITION,
            text,
        )

    async def _pre_start(self, _request: PreStartContainerRequest) -> PreStartContainerResponse:
        return PreStartContainerResponse()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
