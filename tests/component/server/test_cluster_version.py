"""The cluster that the server finds: its version, and kinds that it does without."""

import asyncio

import pytest

from api.names import PRESENT_LABEL
from kube.client import KubeClient
from kube.config.connection import BadConfigurationError, StaticConnection
from kube.errors import Undecodable
from kube.resources import NODES
from kube.server_version import ServerVersion
from server.cluster_version import check_cluster_version, version_fault
from simulator.node.kubelet import register_node
from tests.support.canned_api import CannedApi, Hang, Json, Text
from tests.support.loop_clock import LoopClock
from tests.support.polling import until, until_async
from tests.support.running_server import SERVER_USER, Cluster, a_server


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [
        (ServerVersion(major="1", minor="29", git_version="v1.29.15"), True),
        (ServerVersion(major="1", minor="29+", git_version="v1.29.4-gke.1043002"), True),
        (ServerVersion(major="0", minor="99", git_version="v0.99"), True),
        (ServerVersion(major="1", minor="30", git_version="v1.30.0"), False),
        (ServerVersion(major="1", minor="34+", git_version="v1.34.2-eks-1"), False),
        (ServerVersion(major="2", minor="0", git_version="v2.0.0"), False),
        (ServerVersion(major="", minor="", git_version="main"), False),
    ],
    ids=lambda value: value.git_version if isinstance(value, ServerVersion) else "",
)
def test_a_version_before_130_is_refused(version: ServerVersion, is_refused: bool):
    fault = version_fault(version)
    assert (fault is not None) is is_refused
    if fault is not None:
        assert fault == (
            f"Kubernetes {version.git_version} is too old:"
            " the GPU control plane needs 1.30 or later"
        )


@pytest.mark.looptime
@pytest.mark.parametrize(
    "answer",
    [Text(), Hang(), Json({"kind": "Status"}, status=403), Json([1]), Json({"minor": 29})],
    ids=["proxy", "silent", "forbidden", "no object", "no text"],
)
async def test_an_answer_that_says_no_version_ends_nothing(answer: Text | Hang | Json):
    async with CannedApi() as api, KubeClient(StaticConnection(api.url), LoopClock()) as client:
        api.always = answer
        await check_cluster_version(client)


async def test_an_undecodable_version_is_an_error_of_the_client():
    async with CannedApi() as api, KubeClient(StaticConnection(api.url), LoopClock()) as client:
        api.always = Json({"major": 1})
        with pytest.raises(Undecodable, match="/version"):
            await client.server_version()


async def test_a_server_does_not_start_in_an_older_cluster(cluster: Cluster):
    cluster.api.version.update(minor="29", gitVersion="v1.29.15")
    async with a_server(cluster) as server:
        await until(lambda: server.is_over)
    assert isinstance(server.ended, BadConfigurationError)
    assert str(server.ended).startswith("Kubernetes v1.29.15 is too old")
    assert cluster.api.requests.writes(user=SERVER_USER) == []


async def test_without_the_kind_nodefeature_labels_are_the_source_and_one_line_says_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
):
    async def is_labelled() -> bool:
        node = await cluster.client.get(NODES, dict, "n1")
        return bool(node["metadata"]["labels"].get(PRESENT_LABEL) == "true")

    label = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
    await register_node(cluster.client, "n1", {})
    await cluster.client.merge_patch(NODES, {"metadata": {"labels": label}}, name="n1")
    async with a_server(cluster) as server:
        await server.until_ready()
        await until_async(is_labelled)
        await asyncio.sleep(0)
    lines = [line for line in capsys.readouterr().out.splitlines() if "nodefeatures" in line]
    assert len([line for line in lines if "not served" in line]) == 1
