"""CSI's service Identity: the driver's name, and that it has no capability beyond its node service."""

from typing import TYPE_CHECKING, final

import grpc
from google.protobuf.wrappers_pb2 import BoolValue

from api.csi.names import (
    DRIVER_NAME,
    GET_PLUGIN_CAPABILITIES,
    GET_PLUGIN_INFO,
    IDENTITY_SERVICE,
    PROBE,
)
from api.csi.proto.csi_pb2 import (
    GetPluginCapabilitiesRequest,
    GetPluginCapabilitiesResponse,
    GetPluginInfoRequest,
    GetPluginInfoResponse,
    ProbeRequest,
    ProbeResponse,
)
from api.version import VERSION

if TYPE_CHECKING:
    from agent.unary_calls import UnaryCalls


@final
class IdentityService:
    """Answers who the driver is; it is ready as soon as it answers."""

    def handlers(self, calls: "UnaryCalls") -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            IDENTITY_SERVICE,
            {
                GET_PLUGIN_INFO: calls.handler(GET_PLUGIN_INFO, GetPluginInfoRequest, self._info),
                GET_PLUGIN_CAPABILITIES: calls.handler(
                    GET_PLUGIN_CAPABILITIES, GetPluginCapabilitiesRequest, self._capabilities
                ),
                PROBE: calls.handler(PROBE, ProbeRequest, self._probe),
            },
        )

    async def _info(self, _request: GetPluginInfoRequest) -> GetPluginInfoResponse:
        return GetPluginInfoResponse(name=DRIVER_NAME, vendor_version=VERSION)

    async def _capabilities(
        self, _request: GetPluginCapabilitiesRequest
    ) -> GetPluginCapabilitiesResponse:
        return GetPluginCapabilitiesResponse()

    async def _probe(self, _request: ProbeRequest) -> ProbeResponse:
        # A cache that is not there yet is an answer of NodePublishVolume, not of the driver.
        return ProbeResponse(ready=BoolValue(value=True))
