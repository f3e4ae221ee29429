"""`make node-demo`: a kernel cache on a real kubelet, told line by line; each line is checked."""

import textwrap
from typing import TYPE_CHECKING, Final

from tests.cluster.environment import client
from tests.cluster.node.caches.cache_images import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.caches.caches import Caches

CACHE: Final = "llama"
LIST: Final = "cd /cache && find . -type f -exec ls -l {} +"


async def test_a_pod_lists_a_cache_and_cannot_write_there(
    caches: "Caches",
    images: "dict[str, CacheImage]",
    kubectl: "Kubectl",
    progress: "Callable[[str], None]",
):
    image = images["llama:1"]
    namespace = caches.namespace

    def quote(text: str) -> None:
        progress(textwrap.indent(text.rstrip(), "      "))

    progress("\n── A kernel cache on a real node: kube-apiserver, kubelet, containerd, a registry")
    progress(f"  gpu-control-plane cache pack … --image {image.reference} --sign-key signer.key")
    progress(f"  ✓ packed and signed: {image.digest}")
    try:
        await caches.make("nobody", images["unsigned"])
    except client.ApiRefusedError as refused:
        progress("  a GKMCache with an image without a signature:")
        quote(textwrap.fill(str(refused).partition(" Forbidden: ")[2], 90))
    else:
        raise AssertionError("an unsigned image was accepted")

    progress(f"  $ kubectl apply -f - <<< 'kind: GKMCache … image: {image.reference}'")
    await caches.make(CACHE, image)
    await caches.shows(CACHE, "Extracted")
    progress("  $ kubectl get gkmcaches")
    quote((await kubectl("get", "gkmcaches", "-n", namespace)).stdout)

    progress("  a pod mounts it at /cache:")
    await caches.run(caches.pod_of("server", CACHE))
    progress(f"  $ kubectl exec server -- sh -c '{LIST}'")
    listed = await caches.sh("server", LIST)
    quote(listed)
    assert MARKER in listed
    progress("  $ kubectl exec server -- touch /cache/poison")
    said = await caches.sh("server", "touch /cache/poison 2>&1 || true")
    quote(said)
    assert "Read-only file system" in said
    await caches.shows(CACHE, "Running", podRunningCnt=1)
    progress("  $ kubectl get gkmcaches")
    quote((await kubectl("get", "gkmcaches", "-n", namespace)).stdout)

    await caches.end("server")
    await caches.delete(CACHE)
    await caches.gone(CACHE)
    await caches.agrees({})
    progress("  ✓ pod and cache are deleted: nothing is mounted, and no object of them is left")
