"""All five systems, and beside kwok's nodes one that has a kubelet: our agent and the doubles of NVIDIA's images run there."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from agent.inventory.cdi import file_name
from agent.settings import CDI_KIND
from demo.demo_folder import demo_folder
from tests.cluster.environment import binaries, client, nodes, whole_cluster
from tests.cluster.node.environment import nvidia_image, paths
from tests.cluster.node.gpu_node import root_is_shared  # noqa: F401  # a fixture
from tests.cluster.node.upgrade import driver_images
from tests.cluster.node.upgrade.conftest import devices_without_driver  # noqa: F401  # a fixture
from tests.cluster.system.installation import SAMPLE_EVERY_S, GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices


@pytest.fixture
async def images_of_policy(
    control_plane: "ControlPlane",
    node: "RealNode",
    devices: "NodeDevices",
    built_image: "tuple[Path, str]",
) -> None:
    """The doubles, under the names that `render clusterpolicy` prints."""
    (policy,) = filter(None, yaml.safe_load_all(await GpuSystem.render("clusterpolicy")))
    spec, scratch = policy["spec"], control_plane.run.scratch / "joints"
    scratch.mkdir()
    layer, programs = scratch / "layer", scratch / "nvidia.tar"
    layer.mkdir()
    nvidia_image.write_nvidia_image(programs, built_image[0], node.busybox, scratch=layer)
    driver = spec.pop("driver")
    version, end = driver["version"], f"-{driver_images.SYSTEM}"
    written = driver_images.write_images(scratch, node.busybox, devices.devices, [version])
    for tar in (built_image[0], programs, *written):
        await node.import_image(tar)
    manager = name_of(driver["manager"])  # which is that of the manager of VFIO, too
    others = {name_of(item) for item in spec.values() if "image" in item} - {manager}
    double = f"{driver_images.REPOSITORY}/{driver_images.DRIVER}:{version}{end}"
    named = {
        double: [name_of(driver) + end],
        driver_images.MANAGER: [manager],
        nvidia_image.NAME: sorted(others),
    }
    for image, names in named.items():
        await node.containerd.tag_image(image, names)


def name_of(section: "dict[str, Any]") -> str:
    return "{repository}/{image}:{version}".format(**section)


@pytest.fixture
async def whole(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    kwok: "Kwok",
    node: "RealNode",
    images_of_policy: None,
    built_image: "tuple[Path, str]",
    reachable_services: None,
    shared_root: None,
    progress: "Callable[[str], None]",
) -> "AsyncIterator[whole_cluster.WholeCluster]":
    """All systems, and no node but that of real containers."""
    del images_of_policy, reachable_services, shared_root
    assert kwok.process.running
    program = binaries.find_karpenter(progress)
    # A kubelet's directory is one, and ours are two: device plugins register at the usual place.
    (paths.KUBELET_ROOT / "device-plugins").symlink_to(paths.DEVICE_PLUGINS)
    (address,) = await described(control_plane, node, whole_cluster.LABELS)
    settings = {
        "device_plugin": {"image": built_image[1]},
        "bootstrap": {"operands": "External", "period_s": SAMPLE_EVERY_S},
        "kubelet": {"directory": str(paths.KUBELET_ROOT)},
    }
    with demo_folder() as folder:
        opened = whole_cluster.running(
            control_plane, kubectl, program, Path(folder), address=address, settings=settings
        )
        async with opened as cluster:
            yield cluster
    await described(control_plane, node, dict.fromkeys(whole_cluster.LABELS))
    # The next agent's would come after it.
    (paths.USUAL_CDI / file_name(CDI_KIND)).unlink(missing_ok=True)


async def described(
    control_plane: "ControlPlane", node: "RealNode", labels: "Mapping[str, str | None]"
) -> list[str]:
    """Label the node as Node Feature Discovery does; return its addresses."""
    async with client.open_client(control_plane.kubeconfig()) as api:
        body = {"metadata": {"labels": dict(labels)}}
        status = (await api.patch(f"{nodes.NODES}/{node.name}", body))["status"]
    return [item["address"] for item in status["addresses"] if item["type"] == "InternalIP"]
