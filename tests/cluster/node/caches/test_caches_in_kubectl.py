"""What `kubectl get` and `kubectl describe` show of caches: figures, and why a node does not have one."""

from typing import TYPE_CHECKING

from tests.cluster.environment import pods, polling
from tests.cluster.system.installation import GKM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.caches.cache_images import CacheImage, CacheImages
    from tests.cluster.node.caches.caches import Caches
    from tests.cluster.node.stories.agents import Agent

COLUMNS = (
    "NAME",
    "AGE",
    "STATUS",
    "NODES",
    "NODE-IN-USE",
    "NODE-NOT-IN-USE",
    "NODE-ERROR",
    "POD-RUNNING",
    "POD-OUTDATED",
    "POD-DELETING",
)
PULL_SECRET = "registry-login"


async def current(kubectl: "Kubectl", caches: "Caches", *what: str) -> dict[str, dict[str, str]]:
    """Return name -> column -> text."""
    printed = (await kubectl("get", *what, "-n", caches.namespace)).stdout.splitlines()
    header = printed[0].split()
    rows = [dict(zip(header, line.split(), strict=True)) for line in printed[1:]]
    return {row.pop("NAME"): row for row in rows}


async def test_the_columns_count_nodes_and_pods(
    caches: "Caches", images: "dict[str, CacheImage]", kubectl: "Kubectl"
):
    await caches.make("llama", images["llama:1"])
    await caches.make("mistral", images["mistral:1"])
    await caches.make("alien", images["alien"])
    for name in ("one", "two"):
        await caches.run(caches.pod_of(name, "llama"))
    await caches.shows("llama", "Running", nodeInUseCnt=1, podRunningCnt=2)
    await caches.shows("mistral", "Extracted", nodeNotInUseCnt=1)
    await caches.shows("alien", "Error", nodeErrorCnt=1)

    header = (await kubectl("get", "gkmcache", "-n", caches.namespace)).stdout.splitlines()[0]
    assert sorted(header.split()) == sorted(COLUMNS)
    found = await current(kubectl, caches, "gkmcache")
    by_name = {name: [row[item] for item in COLUMNS[2:]] for name, row in found.items()}
    # Nodes, then nodes in use, not in use and in error, then pods running, outdated and deleting.
    assert by_name == {
        "llama": ["Running", "1", "1", "0", "0", "2", "0", "0"],
        "mistral": ["Extracted", "1", "0", "1", "0", "0", "0", "0"],
        "alien": ["Error", "1", "0", "0", "1", "0", "0", "0"],
    }
    (node,) = (await current(kubectl, caches, "gkmcachenode")).values()
    assert (node["NODE"], node["POD-RUNNING"], node["NODE-ERROR"]) == (caches.node.name, "2", "1")


async def test_describe_says_that_a_cache_fits_no_device_of_a_node(
    caches: "Caches", images: "dict[str, CacheImage]", kubectl: "Kubectl"
):
    await caches.make("alien", images["alien"])
    await caches.shows("alien", "Error", nodeErrorCnt=1)
    incompatibility = (
        "the cache fits no device of the node: arch 80 of the cache, device has 90 (4 devices)"
    )
    failed = "An error occurred trying to extract the Kernel Cache"
    await described(
        kubectl, caches, "alien", f"{failed}: node {caches.node.name}: {incompatibility}"
    )

    await caches.create(caches.pod_of("waits", "alien"))
    event = await caches.recorded("waits", "FailedPrecondition")
    assert event.endswith(f"desc = GKMCache {caches.namespace}/alien: {incompatibility}")
    entry = (await caches.on_node("alien"))[images["alien"].digest]
    assert sorted(entry["incompatibleGPUs"]) == [0, 1, 2, 3]
    assert not entry.get("compatibleGPUs")


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


async def test_a_registry_that_is_away_does_not_stop_pods_of_what_is_extracted(
    caches: "Caches", images: "dict[str, CacheImage]", cache_images: "CacheImages", agent: "Agent"
):
    """A pod of what is not waits with the reason, and starts when the registry is back."""
    await caches.make("llama", images["llama:1"])
    await caches.make("mistral", images["mistral:1"], warm="Demand")
    await caches.is_warm("llama", images["llama:1"])
    await caches.shows("mistral", "Pending")
    cache_images.registry.process.kill9()

    await caches.create(caches.pod_of("waits", "mistral"))
    await caches.run(caches.pod_of("runs", "llama"))
    event = await caches.recorded("waits", cache_images.registry.host)
    assert f"GKMCache {caches.namespace}/mistral: " in event
    assert not pods.is_running(await caches.api.get(f"{pods.collection(caches.namespace)}/waits"))

    await cache_images.registry.restart()
    await caches.running("waits")
    await caches.agrees({"waits": images["mistral:1"].digest, "runs": images["llama:1"].digest})


async def test_a_quiet_node_writes_nothing(
    caches: "Caches", images: "dict[str, CacheImage]", agent: "Agent"
):
    """Neither objects of the node nor of the cache change while nothing happens."""
    await caches.make("llama", images["llama:1"])
    await caches.run(caches.pod_of("runs", "llama"))
    await caches.shows("llama", "Running", podRunningCnt=1)
    watched = (
        caches.path("llama"),
        f"{GKM}/namespaces/{caches.namespace}/gkmcachenodes/{caches.node.name}",
    )
    before = [await version_of(caches, path) for path in watched]
    # Another cache comes and goes meanwhile, in the cluster: its own objects change.
    other = f"other-{caches.namespace}"
    await caches.make(other, images["mistral:1"], of_cluster=True)
    await caches.shows(other, "Extracted", of_cluster=True)
    await caches.delete(other, of_cluster=True)
    await caches.gone(other, of_cluster=True)

    async def is_removed() -> bool:
        found = await caches.api.find(f"{GKM}/clustergkmcachenodes/{caches.node.name}")
        return not found

    await polling.eventually(is_removed, what="the node's object of the cluster's caches is gone")
    assert [await version_of(caches, path) for path in watched] == before


async def version_of(caches: "Caches", path: str) -> str:
    return str((await caches.api.get(path))["metadata"]["resourceVersion"])
