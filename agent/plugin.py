"""A device plugin: one resource, its units, and what a container gets for them.

Which pod is asking is not known in Allocate, and kubelet chooses the units among those that are offered.
So the plugin answers for the ids that it is given, and refuses any that are not its own: kubelet then fails
the pod, which is better than a container with a card of another pool.
No call waits for anything, since kubelet sets no deadline and admits no pod while one is open.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import grpc
import structlog

from api import deviceplugin as wire
from api.names import UnitId
from api.poolconfig import HandOut
from pool.units import part_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from agent.offers import Units

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
DEFAULT_CDI_KIND: Final = "nvidia.com/gpu"
"""Under which nvidia-ctk describes cards and MIG instances by UUID."""

_log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


@final
class DevicePlugin:
    """Answers kubelet about one resource."""

    def __init__(
        self, resource: str, *, hand_out: HandOut, cdi_kind: str = DEFAULT_CDI_KIND
    ) -> None:
        self.resource = resource
        self.streams = 0
        """Open ListAndWatch streams; none means that kubelet has forgotten us."""
        self._hand_out = hand_out
        self._cdi_kind = cdi_kind
        self._units: Units = ()
        self._changed = asyncio.Event()

    def offer(self, units: "Units") -> None:
        """Offer these units from now on; kubelet is told where they differ."""
        if units == self._units:
            return
        self._units = units
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the service, for a server."""
        return grpc.method_handlers_generic_handler(
            wire.PLUGIN_SERVICE,
            {
                wire.GET_OPTIONS: grpc.unary_unary_rpc_method_handler(
                    self._options,
                    request_deserializer=wire.decode_empty,
                    response_serializer=wire.encode_options,
                ),
                wire.LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    request_deserializer=wire.decode_empty,
                    response_serializer=wire.encode_devices,
                ),
                wire.ALLOCATE: grpc.unary_unary_rpc_method_handler(
                    self._allocate,
                    request_deserializer=wire.decode_allocation,
                    response_serializer=wire.encode_grants,
                ),
            },
        )

    async def _options(self, _request: None, _context: Context) -> wire.PluginOptions:
        return wire.PluginOptions()

    async def _list_and_watch(self, _request: None, _context: Context) -> "AsyncIterator[Units]":
        self.streams += 1
        try:
            while True:
                changed = self._changed
                yield self._units
                await changed.wait()
        finally:
            self.streams -= 1

    async def _allocate(
        self, containers: tuple[tuple[str, ...], ...], context: Context
    ) -> tuple[wire.ContainerGrant, ...]:
        known = {unit.id for unit in self._units}
        unknown = sorted({unit for ids in containers for unit in ids} - known)
        if unknown:
            await self._refuse(context, unknown)
        _log.info("allocated", resource=self.resource, units=containers)
        return tuple(self._grant(ids) for ids in containers)

    async def _refuse(self, context: Context, unknown: "Iterable[str]") -> NoReturn:
        text = f"{self.resource} has no {', '.join(unknown)} on this node"
        _log.warning("allocation refused", resource=self.resource, error=text)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        raise AssertionError("abort returned")

    def _grant(self, ids: "Iterable[str]") -> wire.ContainerGrant:
        """Return what a container gets; slices of one card are one device."""
        parts = sorted({part_of(UnitId(one)) for one in ids})
        if self._hand_out is HandOut.CDI:
            return wire.ContainerGrant(
                cdi_devices=tuple(f"{self._cdi_kind}={part}" for part in parts)
            )
        return wire.ContainerGrant(environment={VISIBLE_DEVICES: ",".join(parts)})
