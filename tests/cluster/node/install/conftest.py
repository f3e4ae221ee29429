"""A cluster as an operator has it before Helm: a node with devices, images on it, a scheduler of its own."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from manifests.yaml import render
from simulator.node.nfd import node_feature_crd
from tests.cluster.environment import binaries
from tests.cluster.environment.helm import Helm
from tests.cluster.environment.prometheus import Prometheus
from tests.cluster.node.environment import images
from tests.cluster.node.gpu_node import (  # noqa: F401  # fixtures
    devices_in_dev,
    labelled_gpu_node,
    root_is_shared,
)
from tests.cluster.node.install.release import Release
from tests.cluster.node.stories.pools import Pools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices

SCHEDULER_IMAGE = "registry.k8s.io/kube-scheduler"


@pytest.fixture(scope="package")
def images_on_the_node(
    control_plane: "ControlPlane", node: "RealNode", built_image: "tuple[Path, str]"
) -> None:
    """Our image, and kube-scheduler's under the name that a cluster of this version has it."""
    scratch = control_plane.run.scratch
    tar = scratch / "kube-scheduler.tar"
    (scratch / "kube-scheduler-image").mkdir()
    images.write_program_image(
        tar,
        control_plane.programs.kube_scheduler,
        name=f"{SCHEDULER_IMAGE}:{binaries.kubernetes_version()}",
        scratch=scratch / "kube-scheduler-image",
    )

    async def import_both() -> None:
        await node.import_image(tar)
        await node.import_image(built_image[0])

    asyncio.run(import_both())


@pytest.fixture(scope="package")
def helm(control_plane: "ControlPlane", progress: "Callable[[str], None]") -> Helm:
    program = binaries.find_helm(progress)
    return Helm(program, control_plane.run.directory, control_plane.kubeconfig())


@pytest.fixture
async def release(  # all that has to be there before
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    helm: Helm,
    gpu_node: "RealNode",
    images_on_the_node: None,
) -> "AsyncIterator[Release]":
    """Our release, not installed yet."""
    made = Release(control_plane, kubectl, helm)
    try:
        await kubectl("apply", "-f", "-", stdin=render([node_feature_crd()]))
        yield made
    finally:
        await made.keep_logs()
        await made.remove()


@pytest.fixture
async def prometheus(
    control_plane: "ControlPlane", progress: "Callable[[str], None]"
) -> "AsyncIterator[Prometheus]":
    """Not started yet."""
    made = Prometheus(control_plane, binaries.find_prometheus("prometheus", progress))
    yield made
    made.close()


@pytest.fixture
async def pools(
    api: "ApiClient", namespace: str, node: "RealNode", devices: "NodeDevices"
) -> Pools:
    return Pools(api, namespace, node, devices)
