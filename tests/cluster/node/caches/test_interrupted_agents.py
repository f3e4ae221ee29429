"""Agent, kubelet and the machine's mounts fail under pods: usage is right again, and every volume can go."""

import subprocess
from typing import TYPE_CHECKING

from tests.cluster.environment import pods
from tests.cluster.node.caches.caches import volume_of
from tests.cluster.node.caches.node_oracle import PODS, STORE, mounted_volumes, stored_digests

if TYPE_CHECKING:
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches
    from tests.cluster.node.stories.agents import Agent


async def test_an_agent_that_is_killed_finds_the_pods_that_use_its_caches(
    caches: "Caches", images: "dict[str, CacheImage]", agent: "Agent"
):
    """C7: kill -9, restart; mounts and files stay, usage is right, and volumes are unpublished afterwards."""
    await caches.make("llama", images["llama:1"])
    await caches.run(caches.pod_of("stays", "llama"))
    await caches.run(caches.pod_of("ends", "llama"))
    before = mounted_volumes()
    agent.kill9()
    assert mounted_volumes() == before
    assert await caches.marker_in("stays") == images["llama:1"].marker
    await agent.start()

    digest = images["llama:1"].digest
    await caches.agrees({"stays": digest, "ends": digest})
    assert mounted_volumes() == before
    await caches.end("ends")
    await caches.agrees({"stays": digest})
    await caches.shows("llama", "Running", podRunningCnt=1)
    await caches.run(caches.pod_of("comes", "llama"))
    await caches.agrees({"stays": digest, "comes": digest})


async def test_pods_that_end_and_caches_that_change_while_no_agent_runs_are_seen_to(
    caches: "Caches", images: "dict[str, CacheImage]", agent: "Agent"
):
    """kubelet tries again until the agent is back; what changed meanwhile is done then."""
    old, new = images["llama:1"], images["llama:2"]
    await caches.make("llama", old)
    await caches.run(caches.pod_of("ends", "llama"))
    await caches.run(caches.pod_of("stays", "llama"))
    agent.kill9()
    await caches.api.delete(f"/api/v1/namespaces/{caches.namespace}/pods/ends")
    await caches.change("llama", new)
    await caches.create(caches.pod_of("comes", "llama"))
    await agent.start()

    await caches.running("comes")
    await pods.wait_for_pod_gone(caches.api, caches.namespace, "ends")
    await caches.agrees({"stays": old.digest, "comes": new.digest})
    await caches.shows("llama", "Outdated", podRunningCnt=1, podOutdatedCnt=1)


async def test_kubelet_restarts_under_pods_with_caches(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    """A kubelet that comes back asks for every volume again, and finds the driver by its socket."""
    old, new = images["llama:1"], images["llama:2"]
    await caches.make("llama", old)
    await caches.run(caches.pod_of("stays", "llama"))
    before = mounted_volumes()
    await caches.node.kubelet.stop()
    await caches.change("llama", new)
    await caches.node.kubelet.start()
    await caches.node.wait_ready()
    await caches.run(caches.pod_of("comes", "llama"))

    await caches.agrees({"stays": old.digest, "comes": new.digest})
    assert before[0] in mounted_volumes()
    assert await caches.marker_in("stays") == old.marker
    await caches.end("stays")
    await caches.agrees({"comes": new.digest})


async def test_volumes_that_somebody_unmounted_can_go(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    """And one on which something else was mounted; the containers keep what they have."""
    image = images["llama:1"]
    await caches.make("llama", image)
    lost = await caches.run(caches.pod_of("lost", "llama"))
    hidden = await caches.run(caches.pod_of("hidden", "llama"))
    run("umount", target_of(lost["metadata"]["uid"]))
    over = target_of(hidden["metadata"]["uid"])
    run("mount", "-t", "tmpfs", "tmpfs", over)

    assert await caches.marker_in("lost") == image.marker
    await caches.end("lost", "hidden")
    await caches.agrees({})
    await caches.shows("llama", "Extracted", podRunningCnt=0)


def target_of(uid: str) -> str:
    (target,) = (PODS / uid / "volumes" / "kubernetes.io~csi").glob("*/mount")
    return str(target)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


async def test_the_machine_restarts(
    caches: "Caches", images: "dict[str, CacheImage]", agent: "Agent"
):
    """Everything that runs on the node ends, and every mount: kubelet publishes what its pods still have (C7)."""
    image = images["llama:1"]
    await caches.make("llama", image)
    await caches.run(caches.pod_of("lives-on", "llama", restartPolicy="Always"))
    agent.kill9()
    caches.node.kubelet.kill9()
    for volume in mounted_volumes():
        run("umount", target_of(volume.pod_uid))
    await caches.node.kubelet.start()
    await caches.node.wait_ready()
    await agent.start()

    await caches.agrees({"lives-on": image.digest})
    assert await caches.marker_in("lives-on") == image.marker


async def test_contents_that_were_removed_by_hand_are_pulled_again(
    caches: "Caches", images: "dict[str, CacheImage]", agent: "Agent"
):
    image = images["llama:1"]
    await caches.make("llama", image)
    await caches.is_warm("llama", image)
    agent.kill9()
    run("rm", "-rf", str(STORE / "content"))
    await agent.start()
    await caches.run(caches.a_pod("reads", volume_of("llama", caches.namespace)))

    assert stored_digests() == {image.digest}
    await caches.agrees({"reads": image.digest})
