"""Kernel caches as they are installed: the agent is a pod, and what it mounts reaches the other pods of its node."""

from typing import TYPE_CHECKING

from tests.cluster.environment import binaries, nodes, polling, registries
from tests.cluster.node.caches.cache_images import CacheImages, SigningKey
from tests.cluster.node.caches.caches import Caches
from tests.cluster.node.caches.node_oracle import mount_options, mounted_volumes, stored_digests
from tests.cluster.node.daemonsets.test_daemonsets import OURS, agents, ready
from tests.cluster.node.environment import paths
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.processes import Run
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.pools import Pools
    from tests.cluster.system.installation import GpuSystem

STORE = paths.STATE / "shipped-gkm"
AGENT = "gpu-node-agent"


async def address_of(api: "ApiClient", node: "RealNode") -> str:
    """Return the address of the machine, which its pods reach."""
    status = await api.status(f"{nodes.NODES}/{node.name}")
    found = (
        address["address"] for address in status["addresses"] if address["type"] == "InternalIP"
    )
    return str(next(found))


async def test_the_agents_pod_mounts_caches_for_the_other_pods(
    pools: "Pools",
    node: "RealNode",
    installed_as_pods: "GpuSystem",
    run: "Run",
    progress: "Callable[[str], None]",
):
    """Its mounts go to the node (Bidirectional), stay when it ends, and are found by the agent after it (C7)."""
    registry = await registries.start_docker_registry(
        run,
        binaries.find_docker_registry(progress),
        is_public=True,
        plain_address=await address_of(pools.api, node),
    )
    signer = SigningKey(run.scratch, "shipped-signer")
    image = await CacheImages(registry, run.scratch / "shipped-images", signer).push("llama:1")
    caches = Caches(pools.api, pools.namespace, node)
    (first,) = await agents(pools, AGENT)
    await installed_as_pods.reconfigure(
        kubelet={"directory": str(paths.KUBELET_ROOT)},
        kernel_caches={
            "directory": str(STORE),
            "grace_s": 1,
            "verification": {"keys": [signer.public_pem]},
            "registries": {"plain_http": [registry.host], "private": [registry.host]},
        },
    )
    try:
        second = await ready(pools, AGENT, other_than=first["metadata"]["uid"])
        await caches.make("llama", image)
        pod = await caches.run(caches.pod_of("reads", "llama"))
        assert await caches.marker_in("reads") == image.marker
        (options,) = mount_options(pod["metadata"]["uid"])
        assert options >= {"ro", "nosuid", "nodev"}
        assert stored_digests(STORE) == {image.digest}

        (agent,) = await agents(pools, AGENT)
        await pools.api.delete(f"{OURS}/{agent['metadata']['name']}")
        await ready(pools, AGENT, other_than=second)
        assert await caches.marker_in("reads") == image.marker
        await caches.node_shows("llama", {image.digest: "Running"})
        await caches.shows("llama", "Running", podRunningCnt=1)
        assert [volume.digest for volume in mounted_volumes()] == [image.digest]
        await caches.end("reads")
        assert mounted_volumes() == []
        await caches.delete("llama")
        await caches.gone("llama")

        async def is_empty() -> bool:
            assert stored_digests(STORE) == set()
            return True

        await polling.eventually(is_empty, what="the content is gone")
    except AssertionError:
        (agent,) = await agents(pools, AGENT)
        (container,) = agent["spec"]["containers"]
        name = agent["metadata"]["name"]
        progress(await node.logs(NAMESPACE, name, container=container["name"]))
        raise
    finally:
        await caches.clear()
        await installed_as_pods.reconfigure(kubelet={}, kernel_caches={})
        registry.process.kill9()
