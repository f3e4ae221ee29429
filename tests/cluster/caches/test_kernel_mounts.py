"""The driver on the kernel's own mounts: what a container could do with a volume, and when a volume stays."""

import errno
import os
from functools import partial
from pathlib import Path

import grpc
import pytest

from api.csi.names import NODE_GET_STATS
from api.csi.proto import csi_pb2
from tests.cluster.caches.conftest import DriverProcess
from tests.cluster.caches.driver_process import CONTENT
from tests.support.csi import a_publish


def options_of(mountinfo: str, target: Path) -> list[set[str]]:
    """Return the options of the mounts at a path, the uppermost last; the path has no blanks."""
    lines = [line.split(" ") for line in mountinfo.splitlines()]
    return [set(line[5].split(",")) for line in lines if line[4] == str(target)]


async def test_a_volume_can_be_read_and_not_written(driver: DriverProcess):
    """C4: root cannot write through the mount either; the store can."""
    await driver.client.publish(a_publish(driver.target))
    (options,) = options_of(driver.mountinfo(), driver.target)
    assert options >= {"ro", "nosuid", "nodev", "noexec"}
    mounted = driver.seen(driver.target)
    assert (mounted / "kernel.cubin").read_bytes() == b"x" * 1000
    file = mounted / "kernel.cubin"
    for change in (
        partial(file.write_bytes, b"poison"),
        partial(file.chmod, 0o777),
        file.unlink,
        (mounted / "more").mkdir,
    ):
        with pytest.raises(OSError, match="Read-only file system") as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert (driver.folder / CONTENT / "kernel.cubin").read_bytes() == b"x" * 1000


async def test_a_volume_in_use_stays_mounted_until_it_is_not(driver: DriverProcess):
    """C2 and C10: no lazy unmount, which would lose the reference."""
    await driver.client.publish(a_publish(driver.target))
    used = os.open(driver.seen(driver.target) / "kernel.cubin", os.O_RDONLY)
    try:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await driver.client.unpublish(driver.target)
        assert refused.value.code() is grpc.StatusCode.ABORTED
        text = refused.value.details() or ""
        assert text.startswith(str(driver.target))
        assert "Device or resource busy" in text
        assert len(options_of(driver.mountinfo(), driver.target)) == 1
    finally:
        os.close(used)
    await driver.client.unpublish(driver.target)
    assert options_of(driver.mountinfo(), driver.target) == []
    assert not driver.target.exists()


async def test_a_volume_is_measured_by_its_files(driver: DriverProcess):
    await driver.client.publish(a_publish(driver.target))
    request = csi_pb2.NodeGetVolumeStatsRequest(volume_id="csi-1", volume_path=str(driver.target))
    found = await driver.client.call(NODE_GET_STATS, request, csi_pb2.NodeGetVolumeStatsResponse)
    assert [(item.unit, item.used) for item in found.usage] == [
        (csi_pb2.VolumeUsage.BYTES, 1000),
        (csi_pb2.VolumeUsage.INODES, 1),
    ]
