"""Volumes and caches that are refused, or wait: the exact text in the pod's Event, or from kubectl."""

from typing import TYPE_CHECKING

from tests.cluster.environment import pods
from tests.cluster.node.caches.caches import (
    ATTRIBUTE,
    NAMESPACE_ATTRIBUTE,
    volume_of,
)
from tests.cluster.node.caches.node_oracle import mounted_volumes

if TYPE_CHECKING:
    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches


def failed(code: str, text: str) -> str:
    """Return kubelet's Event of a first volume that is not mounted."""
    return f'MountVolume.SetUp failed for volume "cache-0" : rpc error: code = {code} desc = {text}'


async def refused(caches: "Caches", name: str, volume: "JsonObject", event: str) -> None:
    """Check that a pod with the volume waits with exactly this Event, and has nothing mounted."""
    await caches.create(caches.a_pod(name, volume))
    assert await caches.recorded(name, "MountVolume.SetUp failed") == event
    pod = await caches.api.get(f"{pods.collection(caches.namespace)}/{name}")
    assert not pods.is_running(pod)
    assert pod["metadata"]["uid"] not in {item.pod_uid for item in mounted_volumes()}


async def test_a_cache_of_another_namespace_is_refused(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    """C5; whether that namespace has such a cache is not told."""
    await caches.make("llama", images["llama:1"])
    text = (
        f"pod {caches.namespace}/{{}} cannot mount GKMCache default/llama: a pod mounts the GKMCaches"
        " of its own namespace, and ClusterGKMCaches"
    )
    event = failed("PermissionDenied", text.format("spy"))
    await refused(caches, "spy", volume_of("llama", "default"), event)


async def test_a_pod_cannot_say_that_it_is_another(
    caches: "Caches", images: "dict[str, CacheImage]"
):
    """C5: kubelet's words about the pod go over those of the pod's author."""
    await caches.make("llama", images["llama:1"])
    volume = volume_of("llama", "default")
    volume["csi"]["volumeAttributes"]["csi.storage.k8s.io/pod.namespace"] = "default"
    text = (
        f"pod {caches.namespace}/spy cannot mount GKMCache default/llama: a pod mounts the GKMCaches"
        " of its own namespace, and ClusterGKMCaches"
    )
    await refused(caches, "spy", volume, failed("PermissionDenied", text))


async def test_names_that_lead_elsewhere_are_refused(caches: "Caches"):
    """C9."""
    text = f"{ATTRIBUTE} is '../../content', which no cache can be called"
    volume = volume_of("../../content", caches.namespace)
    await refused(caches, "climbs", volume, failed("InvalidArgument", text))
    text = (
        f"{NAMESPACE_ATTRIBUTE} is '../kube-system', which no namespace can be called;"
        " remove it for a ClusterGKMCache"
    )
    volume = volume_of("llama", "../kube-system")
    await refused(caches, "climbs-too", volume, failed("InvalidArgument", text))


async def test_an_unknown_cache_is_waited_for(caches: "Caches", images: "dict[str, CacheImage]"):
    await caches.create(caches.pod_of("early", "llama"))
    event = await caches.recorded("early", "NotFound")
    assert event.startswith(failed("NotFound", f"GKMCache {caches.namespace}/llama: "))
    await caches.make("llama", images["llama:1"])
    await caches.running("early")
    assert await caches.marker_in("early") == images["llama:1"].marker


async def test_an_unsigned_image_is_refused_at_apply(
    caches: "Caches", images: "dict[str, CacheImage]", kubectl: "Kubectl"
):
    image = images["unsigned"]
    caches.will_make("unsigned")
    done = await kubectl.apply_yaml(caches.manifest("unsigned", image), check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        'Error from server (Forbidden): error when creating "STDIN": admission webhook'
        f' "z-mgkmcache.kb.io" denied the request: ImageNotVerified: {image.reference}:'
        f" kernel_caches.verification: {image.digest}: not accepted: it has no signature"
    )
    assert not await caches.api.find(caches.path("unsigned"))
