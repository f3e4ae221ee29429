"""Images of a registry that asks for a login: the pull secret of a cache, wrong, missing, and right again."""

from typing import TYPE_CHECKING

from tests.cluster.environment import polling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.caches.cache_images import CacheImages
    from tests.cluster.node.caches.caches import Caches

PULL_SECRET = "registry-login"


async def described(kubectl: "Kubectl", caches: "Caches", name: str, *texts: str) -> None:
    """Wait until `kubectl describe` has the texts; its lines count as one."""

    async def does() -> bool:
        done = await kubectl("describe", "gkmcache", name, "-n", caches.namespace)
        reported = " ".join(done.stdout.split())
        missing = [text for text in texts if text not in reported]
        assert not missing, f"{missing} in {reported}"
        return True

    await polling.eventually(does, what=f"description of {name}")


async def test_a_registry_that_refuses_is_named_until_it_does_not(
    caches: "Caches", private_images: "CacheImages", kubectl: "Kubectl"
):
    """The pull secret is right when the cache is made, wrong when a pod needs it, and right again."""
    image = await private_images.push("guarded:1")
    secret = await make_pull_secret(caches, private_images.login())
    await caches.make("guarded", image, pullSecrets=[{"name": PULL_SECRET}], warm="Demand")
    await caches.shows("guarded", "Pending")
    await caches.api.patch(
        secret, {"stringData": {".dockerconfigjson": private_images.login("no")}}
    )

    await caches.create(caches.pod_of("waits", "guarded"))
    await caches.recorded("waits", "Unavailable")
    await caches.shows("guarded", "Error", nodeErrorCnt=1)
    host = private_images.registry.host
    await described(kubectl, caches, "guarded", f"node {caches.node.name}: ", host)

    await caches.api.patch(secret, {"stringData": {".dockerconfigjson": private_images.login()}})
    await caches.running("waits")
    assert await caches.marker_in("waits") == image.marker
    await caches.shows("guarded", "Running", nodeErrorCnt=0, podRunningCnt=1)


async def make_pull_secret(caches: "Caches", login: str) -> str:
    """Make a pull secret in the namespace that server and agents may read; return its path."""
    secrets = f"/api/v1/namespaces/{caches.namespace}/secrets"
    secret = {
        "metadata": {"name": PULL_SECRET},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": login},
    }
    await caches.api.create(secrets, secret)
    accounts = ("gpu-control-plane", "gpu-node-agent")
    binding: Mapping[str, object] = {
        "metadata": {"name": "kernel-cache-pull-secrets"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "gpu-kernel-cache-pull-secrets",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": "gpu-control-plane"}
            for name in accounts
        ],
    }
    group = "/apis/rbac.authorization.k8s.io/v1"
    await caches.api.create(f"{group}/namespaces/{caches.namespace}/rolebindings", binding)
    return f"{secrets}/{PULL_SECRET}"


async def test_a_cache_without_its_pull_secret_is_refused_with_the_cure(
    caches: "Caches", private_images: "CacheImages", kubectl: "Kubectl"
):
    image = await private_images.push("guarded:1")
    manifest = caches.manifest("guarded", image)
    refused = await kubectl.apply_yaml(manifest, check=False)
    assert refused.returncode == 1
    repository = image.reference.removesuffix(":1")
    assert refused.stderr.splitlines()[-1].endswith(
        f"ImageUnusable: {image.reference}: {repository}: the registry asks for user and password, and no"
        " pull secret has any for it; give a pull secret with an entry of this registry"
    )
    assert not await caches.api.find(caches.path("guarded"))
