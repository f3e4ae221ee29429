"""Caches of one name in both scopes, and caches of one content."""

from typing import TYPE_CHECKING

from tests.cluster.node.caches.caches import volume_of
from tests.cluster.node.caches.node_oracle import stored_bytes, stored_digests

if TYPE_CHECKING:
    from tests.cluster.node.caches.cache_images import CacheImage, CacheImages
    from tests.cluster.node.caches.caches import Caches
    from tests.cluster.node.stories.agents import Agent


async def test_caches_of_one_name_in_both_scopes_do_not_mix(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    name = f"llama-{caches.namespace}"
    own, shared = images["llama:1"], images["mistral:1"]
    await caches.make(name, own)
    await caches.make(name, shared, of_cluster=True)
    both = caches.a_pod("both", volume_of(name, caches.namespace), volume_of(name, None))
    await caches.run(both)

    assert await caches.marker_in("both", "/cache") == own.marker
    assert await caches.marker_in("both", "/cache-1") == shared.marker
    await caches.shows(name, "Running", podRunningCnt=1)
    await caches.shows(name, "Running", of_cluster=True, podRunningCnt=1)
    await caches.node_shows(name, {own.digest: "Running"})
    await caches.node_shows(name, {shared.digest: "Running"}, of_cluster=True)


async def test_the_same_content_again_is_neither_pulled_nor_stored(
    caches: "Caches", cache_images: "CacheImages", agent: "Agent"
):
    """A cache of the namespace, and then one of the cluster, whose image has the same digest."""
    image = await cache_images.push(f"shared-{caches.namespace}:1", object_bytes=500_000)
    layer = await cache_images.layer_of(image)
    await caches.make("first", image)
    await caches.is_warm("first", image)
    await caches.stores(image)
    size, pulls = stored_bytes(), cache_images.pulls_of(layer)
    assert pulls == 1

    second = f"second-{caches.namespace}"
    await caches.make(second, image, of_cluster=True)
    await caches.run(caches.a_pod("reads", volume_of(second, None)))
    await caches.shows(second, "Running", of_cluster=True, podRunningCnt=1)
    # The pod uses one of the two, and the other one's figures say so.
    await caches.shows("first", "Extracted", podRunningCnt=0)
    assert cache_images.pulls_of(layer) == pulls
    assert stored_digests() == {image.digest}
    # The name of the second one is a few bytes in a file.
    assert 0 <= stored_bytes() - size < 500

    await caches.delete("first")
    await caches.gone("first")
    assert await caches.marker_in("reads") == image.marker
    assert stored_digests() == {image.digest}
