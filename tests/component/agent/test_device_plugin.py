"""The device plugin against a kubelet double, on real sockets: it serves its pool and stays up."""

import gzip
from functools import partial
from pathlib import Path

import grpc
import pytest

from api.kubelet.proto.deviceplugin_pb2 import CDIDevice
from api.nodefiles.poolconfig import PACKED_CONFIG_KEY, DeviceInjection
from telemetry.metrics import REGISTRY
from tests.component.agent.node import RESOURCE, MountedConfig, a_plugin, config_of
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.polling import until


@pytest.fixture
def mounted(folder: Path) -> MountedConfig:
    return MountedConfig(folder / "pool")


def ids(kubelet: PluginsOfKubelet, resource: str = RESOURCE) -> list[str]:
    return [device.ID for device in kubelet.devices.get(resource, ())]


def has_failed(times: float) -> bool:
    return failures() == times


def failures() -> float:
    return REGISTRY.get_sample_value("gpu_task_failures_total", {"task": "pool.config"}) or 0.0


async def test_the_nodes_devices_are_offered_and_no_others(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    mounted.put_devices("GPU-2", "GPU-1")
    async with a_plugin(kubelet, mounted) as served:
        await until(lambda: ids(kubelet) == ["GPU-1", "GPU-2"])
        await until(lambda: served.missing == [])
        assert served.is_alive


async def test_a_change_of_the_list_reaches_kubelet_without_a_restart(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["GPU-1"])
        mounted.put_devices("GPU-1", "GPU-2")
        await until(lambda: ids(kubelet) == ["GPU-1", "GPU-2"])
        mounted.put_devices()
        await until(lambda: ids(kubelet) == [])
        assert len(kubelet.registrations) == 1


async def test_a_list_that_makes_no_sense_changes_nothing(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["GPU-1"])
        before = failures()
        for count, content in enumerate((b'{"version": "v2"}', b"{"), start=1):
            mounted.put(content)
            await until(partial(has_failed, before + count))
            assert ids(kubelet) == ["GPU-1"]
        mounted.put_devices("GPU-1", "GPU-3")
        await until(lambda: ids(kubelet) == ["GPU-1", "GPU-3"])


async def test_until_the_list_is_there_the_plugin_is_unready(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    async with a_plugin(kubelet, mounted) as served:
        assert served.missing == ["no pool configuration was read yet"]
        mounted.put_devices("GPU-1")
        await until(lambda: ids(kubelet) == ["GPU-1"])


async def test_a_packed_list_is_read_as_well(kubelet: PluginsOfKubelet, mounted: MountedConfig):
    mounted.put(gzip.compress(config_of("GPU-1")), PACKED_CONFIG_KEY)
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["GPU-1"])


async def test_a_kubelet_that_restarts_knows_the_plugin_again(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted):
        for _ in range(2):
            await until(lambda: ids(kubelet) == ["GPU-1"])
            await kubelet.restart()
        # kubelet admits waiting pods 0.94 s after its socket is there.
        await until(lambda: ids(kubelet) == ["GPU-1"], within_s=0.9)
        assert len(kubelet.registrations) == 3
        await kubelet.admit(RESOURCE, 1)


async def test_a_plugin_that_kubelet_dropped_registers_again(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["GPU-1"])
        kubelet.disconnect(RESOURCE)
        await until(lambda: len(kubelet.registrations) == 2 and ids(kubelet) == ["GPU-1"])


async def test_a_plugin_waits_for_a_kubelet_that_comes_later(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    await kubelet.stop()
    (kubelet.directory / "kubelet.sock").unlink(missing_ok=True)
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted) as served:
        await until(lambda: served.missing == [f"{RESOURCE} is not registered with kubelet"])
        await kubelet.restart()
        await until(lambda: ids(kubelet) == ["GPU-1"])


async def test_a_socket_that_a_killed_process_left_is_no_hindrance(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    (kubelet.directory / "gpu.deckhouse.io_whole.sock").touch()
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["GPU-1"])


async def test_each_plugin_of_a_node_serves_its_own_pool_and_stays_up(
    kubelet: PluginsOfKubelet, folder: Path, mounted: MountedConfig
):
    """Lesson 10: two pools and an unassigned device on one node."""
    other = MountedConfig(folder / "other")
    mounted.put_devices("GPU-1")
    other.put_devices("GPU-2", pool="slices", slices=2)
    slices = "gpu.deckhouse.io/slices"
    async with a_plugin(kubelet, mounted) as whole, a_plugin(kubelet, other) as sliced:
        await until(lambda: ids(kubelet) == ["GPU-1"])
        await until(lambda: ids(kubelet, slices) == ["GPU-2::0", "GPU-2::1"])
        await until(lambda: not whole.missing and not sliced.missing)
        for unknown in ("GPU-2::0", "GPU-unassigned"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await kubelet.allocate(RESOURCE, [unknown])
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert refused.value.details() == f"{RESOURCE} has no {unknown} on this node"
        response = await kubelet.admit(RESOURCE, 1)
        assert list(response.cdi_devices) == [CDIDevice(name="gpu.deckhouse.io/gpu=GPU-1")]
        assert not whole.missing


async def test_slices_of_one_device_are_one_device_to_the_container(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    mounted.put_devices("GPU-1", "GPU-2", slices=2)
    async with a_plugin(kubelet, mounted, hand_out=DeviceInjection.ENVIRONMENT):
        await until(lambda: kubelet.capacity(RESOURCE) == 4)
        response = await kubelet.allocate(RESOURCE, ["GPU-2::1", "GPU-1::0", "GPU-1::1"])
        assert response.envs == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
            "GPU_POOL": "whole",
            "GPU_UNITS": "GPU-1::0,GPU-1::1,GPU-2::1",
        }
        assert not response.cdi_devices


async def test_units_of_a_withheld_device_are_listed_and_not_given_out(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    devices = [{"uuid": "GPU-1", "isWithheld": True}, {"uuid": "GPU-2", "numaNode": 1}]
    mounted.put_devices(nodes={"n1": devices})
    async with a_plugin(kubelet, mounted):
        await until(lambda: kubelet.capacity(RESOURCE) == 2)
        assert kubelet.allocatable(RESOURCE) == 1
        response = await kubelet.admit(RESOURCE, 1)
        assert list(response.cdi_devices) == [CDIDevice(name="gpu.deckhouse.io/gpu=GPU-2")]
        with pytest.raises(LookupError):
            await kubelet.admit(RESOURCE, 1)


async def test_mig_instances_are_offered_by_their_own_ids(
    kubelet: PluginsOfKubelet, mounted: MountedConfig
):
    devices = [
        {"uuid": "GPU-1", "instances": ["MIG-2", "MIG-1"]},
        {"uuid": "GPU-2", "instances": []},
    ]
    mounted.put_devices(nodes={"n1": devices})
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["MIG-1", "MIG-2"])


async def test_a_stopped_plugin_leaves_no_socket(kubelet: PluginsOfKubelet, mounted: MountedConfig):
    mounted.put_devices("GPU-1")
    async with a_plugin(kubelet, mounted):
        await until(lambda: ids(kubelet) == ["GPU-1"])
    await until(lambda: kubelet.devices == {})
    assert [path.name for path in kubelet.directory.iterdir()] == ["kubelet.sock"]
