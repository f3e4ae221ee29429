"""csi-sanity, CSI's conformance tests of drivers, on the services Identity and Node; it needs no Kubernetes.

What it leaves out by itself is what the driver does not advertise (C1): a controller, staging, expansion, health,
several writers. Volumes to mount come from the controller of `driver_process`.

Building csi-sanity takes about 40 s once (18 MB), its tests a second.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cluster.caches.conftest import DriverProcess
from tests.cluster.caches.driver_process import (
    CONTROLLER_SOCKET,
    DRIVER_SOCKET,
    WITH_CONTROLLER_SOCKET,
)
from tests.cluster.environment import binaries

WITHIN_S = 300
CONFORMING = frozenset(
    {
        "Identity Service GetPluginCapabilities should return appropriate capabilities",
        "Identity Service GetPluginInfo should return appropriate information",
        "Identity Service Probe should return appropriate information",
        "Node Service NodeGetCapabilities should return appropriate capabilities",
        "Node Service NodeGetInfo should return appropriate values",
        "Node Service NodeGetVolumeStats should fail when no volume id is provided",
        "Node Service NodeGetVolumeStats should fail when no volume path is provided",
        "Node Service NodeGetVolumeStats should fail when volume does not exist on the specified path",
        "Node Service NodeGetVolumeStats should fail when volume is not found",
        "Node Service NodePublishVolume should fail when no target path is provided",
        "Node Service NodePublishVolume should fail when no volume capability is provided",
        "Node Service NodePublishVolume should fail when no volume id is provided",
        "Node Service NodeUnpublishVolume should fail when no target path is provided",
        "Node Service NodeUnpublishVolume should fail when no volume id is provided",
        "Node Service NodeUnpublishVolume should remove target path",
    }
)
WITH_CONTROLLER = frozenset({"Node Service should be idempotent", "Node Service should work"})
"""csi-sanity runs these two only where Identity names a controller."""


@pytest.mark.parametrize(
    ("socket", "focus", "expected"),
    [
        pytest.param(
            DRIVER_SOCKET, "Node Service|Identity Service", CONFORMING, id="Node and Identity"
        ),
        pytest.param(
            WITH_CONTROLLER_SOCKET,
            "Node Service should (work|be idempotent)",
            WITH_CONTROLLER,
            id="whole lives of volumes",
        ),
    ],
)
async def test_csi_sanity_passes(
    driver: DriverProcess,
    progress: Callable[[str], None],
    tmp_path: Path,
    socket: str,
    focus: str,
    expected: frozenset[str],
):
    """C1, C2."""
    report = tmp_path / "report.xml"
    program = binaries.find_csi_sanity(progress)
    # Each test makes this directory and removes it; the target is in it.
    mounts = driver.target.parent
    mounts.rmdir()
    output = await run_bounded(
        program,
        f"--csi.endpoint=unix://{driver.folder / socket}",
        f"--csi.controllerendpoint=unix://{driver.folder / CONTROLLER_SOCKET}",
        f"--csi.mountdir={mounts}",
        f"--csi.stagingdir={driver.folder / 'staging'}",
        f"--ginkgo.focus={focus}",
        f"--ginkgo.junit-report={report}",
        "--ginkgo.no-color",
    )
    by_status = defaultdict(set)
    for case in ET.parse(report).getroot().iter("testcase"):
        by_status[case.get("status")].add(str(case.get("name")).removeprefix("[It] "))
    failed = len(by_status["failed"])
    progress(f"csi-sanity, {focus}: {len(by_status['passed'])} passed, {failed} failed")
    assert failed == 0, output
    assert by_status["passed"] == expected, output
    assert str(mounts) not in driver.mountinfo()


async def run_bounded(program: Path, *arguments: str) -> str:
    """Return what the program prints."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return output.decode()
