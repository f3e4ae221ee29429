"""Tests with real containers: containerd, runc and kubelet, unmodified. They need root.

    pytest tests/cluster/node --with-cluster

One node, `real-1`, for this directory: it is deleted before the tests of the next one begin, whose
pods a scheduler could put on it. There is no registry: images are OCI layout tars that are imported
(`node.import_image`), and pods say `imagePullPolicy: Never`.
"""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import binaries
from tests.cluster.node.environment import built_image as built_images
from tests.cluster.node.environment import paths, real_node, service_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import kubectl as kubectls


@pytest.fixture(scope="package")
def node(
    control_plane: "control_planes.ControlPlane",
    kubectl: "kubectls.Kubectl",
    progress: "Callable[[str], None]",
) -> "Iterator[real_node.RealNode]":
    """A running containerd and kubelet, their node Ready."""
    real_node.refuse_unfit_machine(user=os.geteuid(), kubelet_directory=paths.KUBELET_DEFAULT_ROOT)
    started = real_node.RealNode(control_plane, binaries.find_node_programs(progress), kubectl)
    try:
        asyncio.run(started.start())
        yield started
    finally:
        asyncio.run(started.close())


@pytest.fixture(scope="package")
def reachable_services(
    control_plane: "control_planes.ControlPlane", node: real_node.RealNode
) -> "Iterator[None]":
    """Pods reach Services, and so the API server, by their addresses and names."""
    proxy = service_proxy.ServiceProxy(control_plane, node.busybox)
    asyncio.run(proxy.start())
    yield
    proxy.close()


@pytest.fixture(scope="package")
def built_image(progress: "Callable[[str], None]") -> tuple[Path, str]:
    """The tar of our image, and its name."""
    return built_images.build(progress)
