"""The image of a cache changes under running pods: they keep theirs, new ones get the new one."""

import contextlib
from typing import TYPE_CHECKING

from tests.cluster.environment import polling
from tests.cluster.environment.kubectl import KubectlError

if TYPE_CHECKING:
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches


async def test_a_running_pod_keeps_its_files_and_a_new_one_sees_the_new_ones(
    caches: "Caches", images: "dict[str, CacheImage]", kubectl: "Kubectl"
):
    old, new = images["llama:1"], images["llama:2"]
    await caches.make("llama", old)
    await caches.run(caches.pod_of("old", "llama"))
    await caches.shows("llama", "Running", podRunningCnt=1, podOutdatedCnt=0)

    await caches.change("llama", new)
    await caches.shows("llama", "Outdated", podRunningCnt=0, podOutdatedCnt=1)
    await caches.node_shows("llama", {old.digest: "Outdated", new.digest: "Extracted"})
    await caches.run(caches.pod_of("new", "llama"))

    assert await caches.marker_in("old") == old.marker
    assert await caches.marker_in("new") == new.marker
    await caches.node_shows("llama", {old.digest: "Outdated", new.digest: "Running"})
    await caches.shows("llama", "Outdated", podRunningCnt=1, podOutdatedCnt=1, nodeInUseCnt=1)
    await caches.agrees({"old": old.digest, "new": new.digest})
    listed = (await kubectl("get", "gkmcache", "llama", "-n", caches.namespace)).stdout
    assert "Outdated" in listed

    await caches.end("old")
    await caches.node_shows("llama", {new.digest: "Running"})
    await caches.shows("llama", "Running", podRunningCnt=1, podOutdatedCnt=0)
    await caches.stores(new)
    assert await caches.marker_in("new") == new.marker


async def test_a_container_that_starts_again_in_its_pod_has_the_files_it_had(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    """The volume is the pod's, not the container's."""
    old, new = images["llama:1"], images["llama:2"]
    await caches.make("llama", old)
    pod = caches.pod_of("twice", "llama", restartPolicy="Always")
    await caches.run(pod)
    await caches.change("llama", new)
    await caches.node_shows("llama", {old.digest: "Outdated", new.digest: "Extracted"})
    with contextlib.suppress(KubectlError):  # the container may end before the command does
        await caches.sh("twice", "kill -TERM 1")

    async def is_second_life() -> bool:
        found = await caches.running("twice")
        (status,) = found["status"]["containerStatuses"]
        assert status["restartCount"] >= 1, f"{status}"
        return "running" in status["state"]

    await polling.eventually(is_second_life, what="a second life")
    assert await caches.marker_in("twice") == old.marker
