"""Agent, kubelet and the machine's mounts fail under pods: usage is right again, and every volume can go."""

import subprocess
from typing import TYPE_CHECKING

from tests.cluster.node.caches.node_oracle import PODS, mounted_volumes

if TYPE_CHECKING:
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches
    from tests.cluster.node.stories.agents import Agent


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
