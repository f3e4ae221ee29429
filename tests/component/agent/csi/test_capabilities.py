"""What the driver says it can do, and that it does nothing else (C1)."""

import re

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from api.csi import names
from api.csi.proto import csi_pb2
from api.version import VERSION
from tests.component.agent.csi.driver import NODE, Driver


async def test_the_driver_has_the_name_of_the_csidriver_object(driver: Driver):
    found = await driver.client.call(
        names.GET_PLUGIN_INFO, b"", csi_pb2.GetPluginInfoResponse, service=names.IDENTITY_SERVICE
    )
    assert (found.name, found.vendor_version) == (names.DRIVER_NAME, VERSION)
    assert re.fullmatch("[a-z][a-z.]{0,61}[a-z]", found.name)


async def test_the_driver_has_no_controller(driver: Driver):
    """C1: no capability of the plugin is advertised, on the wire not a byte."""
    found = await driver.client.call(
        names.GET_PLUGIN_CAPABILITIES, b"", Empty, service=names.IDENTITY_SERVICE
    )
    assert found.SerializeToString() == b""


async def test_a_driver_that_answers_is_ready(driver: Driver):
    found = await driver.client.call(
        names.PROBE, b"", csi_pb2.ProbeResponse, service=names.IDENTITY_SERVICE
    )
    assert found.ready.value is True


async def test_volume_statistics_are_all_that_the_node_service_adds(driver: Driver):
    """C1: neither staging nor expansion, and what is advertised answers."""
    found = await driver.client.call(
        names.NODE_GET_CAPABILITIES, b"", csi_pb2.NodeGetCapabilitiesResponse
    )
    kinds = [capability.rpc.type for capability in found.capabilities]
    assert kinds == [csi_pb2.NodeServiceCapability.RPC.GET_VOLUME_STATS]
    request = csi_pb2.NodeGetVolumeStatsRequest(volume_id="csi-1", volume_path="some/path")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await driver.client.call(names.NODE_GET_STATS, request, csi_pb2.NodeGetVolumeStatsResponse)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "call", ["NodeStageVolume", "NodeUnstageVolume", "NodeExpandVolume", "NodeGetVolumeHealth"]
)
async def test_what_is_not_advertised_is_unimplemented(driver: Driver, call: str):
    """C1."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await driver.client.call(call, b"", Empty)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_node_is_known_by_its_name_and_has_no_limit_of_volumes(driver: Driver):
    found = await driver.client.call(names.NODE_GET_INFO, b"", csi_pb2.NodeGetInfoResponse)
    assert found == csi_pb2.NodeGetInfoResponse(node_id=NODE)
