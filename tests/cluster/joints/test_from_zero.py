"""A pod from no node at all to running with a warm cache, with nothing done by hand."""

from typing import TYPE_CHECKING, Final

from api.names import POOL_LABEL
from tests.cluster.joints.from_zero import POOL, FromZero
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.environment.whole_cluster import WholeCluster

WITHIN_S: Final = 60.0
"""Goal of the whole way; nodes of kwok take neither a cloud's time nor a driver's."""


async def test_a_pod_gets_node_driver_pool_and_warm_cache(
    whole: "WholeCluster", namespace: str, tmp_path: "Path", progress: "Callable[[str], None]"
):
    story = FromZero(cluster=whole, namespace=namespace, folder=tmp_path, say=progress)
    await story.play()
    assert max(story.times.values()) < WITHIN_S
    plugins = await whole.api.get(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", labelSelector=f"{POOL_LABEL}={POOL}"
    )
    assert [item["status"]["numberReady"] for item in plugins["items"]] == [1]
    await story.end()
