"""The role detect: its NodeFeature at an API server over HTTP, and its process."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.detection.report import write_report
from agent.driver.pci import read_devices
from api.foreign.nodefeature import NodeFeature
from inventory.discovery.sources import feature_report
from kube.errors import NotFound
from kube.resources import NAMESPACES, NODE_FEATURES, NODES
from manifests.constants import DEFAULT_NAMESPACE
from tests.bench.agent_footprint import footprint
from tests.component.agent.test_command import a_process
from tests.support.polling import until, until_async
from tests.support.published_crds import faults, published_crd
from tests.support.running_server import Cluster, a_cluster
from tests.unit.agent.test_pci import put_function

NAME = "gpu-control-plane-detector-n1"
RSS_MIB = 25


@pytest.fixture
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with a_cluster(folder) as found:
        await found.install_discovery()
        namespace = {"metadata": {"name": DEFAULT_NAMESPACE}}
        await found.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **namespace}
        )
        await found.client.create(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        )
        yield found


async def feature(cluster: Cluster) -> dict[str, Any]:
    return await cluster.client.get(
        NODE_FEATURES, dict[str, Any], NAME, namespace=DEFAULT_NAMESPACE
    )


async def report(cluster: Cluster, sysfs: Path) -> list[str]:
    """Report once; return the writes."""
    cluster.api.requests.clear()
    await write_report(cluster.client, read_devices(sysfs), node="n1", namespace=DEFAULT_NAMESPACE)
    return [write.method for write in cluster.api.requests.writes()]


async def test_device_is_told_once_and_forgotten_with_it(cluster: Cluster, tmp_path: Path):
    function = put_function(tmp_path, "0000:3b:00.0")
    assert await report(cluster, tmp_path) == ["PATCH"]
    assert await report(cluster, tmp_path) == []
    current = await feature(cluster)
    node = await cluster.client.get(NODES, dict[str, Any], "n1")
    (owner,) = current["metadata"]["ownerReferences"]
    assert owner["uid"] == node["metadata"]["uid"]
    function.rename(tmp_path / "pulled")
    assert await report(cluster, tmp_path) == ["DELETE"]
    assert await report(cluster, tmp_path) == []
    with pytest.raises(NotFound):
        await feature(cluster)


async def test_edited_feature_is_written_again(cluster: Cluster, tmp_path: Path):
    put_function(tmp_path, "0000:3b:00.0")
    await report(cluster, tmp_path)
    edit = {"spec": {"labels": {"gpu.deckhouse.io/device-count": "7"}}}
    await cluster.client.merge_patch(NODE_FEATURES, edit, name=NAME, namespace=DEFAULT_NAMESPACE)
    assert await report(cluster, tmp_path) == ["PATCH"]
    assert (await feature(cluster))["spec"]["labels"]["gpu.deckhouse.io/device-count"] == "1"


async def test_feature_is_valid_by_nfds_definition(cluster: Cluster, tmp_path: Path):
    put_function(tmp_path, "0000:3b:00.0")
    await report(cluster, tmp_path)
    assert faults(await feature(cluster), published_crd("nodefeatures.nfd.k8s-sigs.io")) == []


async def test_process_is_small_tells_of_devices_and_stops_when_told(
    cluster: Cluster, folder: Path
):
    put_function(folder / "sys", "0000:3b:00.0")

    async def is_reported() -> bool:
        try:
            current = await cluster.client.get(
                NODE_FEATURES, NodeFeature, NAME, namespace=DEFAULT_NAMESPACE
            )
        except NotFound:
            return False
        return feature_report(current).labels["gpu.deckhouse.io/device-count"] == "1"

    async with a_process(
        node="n1", roles="detect", sysfs=folder / "sys", kubeconfig=cluster.kubeconfig()
    ) as process:
        await until_async(is_reported)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        await until(lambda: not children.read_text("ascii"))
        assert footprint(process.pid).rss <= RSS_MIB
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 120) == 0
