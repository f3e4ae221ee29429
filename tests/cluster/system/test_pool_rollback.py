"""The chart goes back by one version while pods run: what the next version wrote cannot be read, and nothing of it changes."""

from typing import TYPE_CHECKING, Any

import pytest

from manifests.install.crds import build_crds
from manifests.yaml import render
from tests.cluster.environment import client, definitions, pods, polling
from tests.cluster.system.installation import NAMESPACE, GpuSystem
from tests.cluster.system.objects import DEVICES, POOLS, Pool, a_pod, a_pool_object, check_devices
from tests.support.next_version import NEXT, next_version_of

if TYPE_CHECKING:
    from tests.cluster.environment.kubectl import Kubectl

Json = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
VALIDATION = f"{REGISTRATION}/validatingwebhookconfigurations/gpu-control-plane"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
SKIPPED = "object skipped because it cannot be decoded"


async def install(kubectl: "Kubectl", crds: list[Json]) -> None:
    """Apply definitions as `helm upgrade` and `helm rollback` do."""
    options = ("--server-side", "--force-conflicts", "-f", "-")
    await kubectl("apply", *options, stdin=render(crds))
    await definitions.until_served(kubectl, crds)


async def devices_of_nodes(api: client.ApiClient, pool: Pool) -> list[Json]:
    listed = (await api.get(DEVICES))["items"]
    return [item for item in listed if item["status"].get("nodeName") in pool.nodes]


async def what_stays(api: client.ApiClient, namespace: str, pool: Pool) -> Json:
    pod = await api.get(f"{pods.collection(namespace)}/kept")
    nodes = [await api.get(f"/api/v1/nodes/{name}") for name in pool.nodes]
    sets = await api.get(DAEMON_SETS)
    return {
        "pod": (pod["metadata"]["uid"], pod["metadata"]["annotations"], pod["spec"]["nodeName"]),
        "restarts": [item["restartCount"] for item in pod["status"].get("containerStatuses", ())],
        "pool": (await api.get(pool.path))["metadata"]["finalizers"],
        "devices": {
            device["metadata"]["name"]: (
                device["metadata"]["annotations"],
                device["status"]["poolRef"],
            )
            for device in await devices_of_nodes(api, pool)
        },
        "nodes": [
            (
                node["metadata"]["labels"],
                node["spec"].get("taints"),
                node["spec"].get("unschedulable"),
            )
            for node in nodes
        ],
        "sets": {
            item["metadata"]["name"]: (item["metadata"]["uid"], item["metadata"]["generation"])
            for item in sets["items"]
            if pool.name in item["metadata"]["name"]
        },
    }


async def test_pods_run_on_and_no_device_changes_hands(
    make_pool: Any,
    system: GpuSystem,
    api: client.ApiClient,
    kubectl: "Kubectl",
    namespace: str,
    figures: Any,
):
    pool, other = await make_pool(devices=2), await make_pool(devices=1)
    collection = pods.collection(namespace)
    await api.create(collection, a_pod("kept", pool))
    kept = await pods.wait_for_pod(api, namespace, "kept", pods.is_running)
    await figures(pool, used=1, available=1)
    before = await what_stays(api, namespace, pool)
    following, today = next_version_of(build_crds()), build_crds()
    younger = f"{POOLS}/younger-{namespace}"
    try:
        await set_next_version(system, api, kubectl, pool)
        await install(kubectl, today)
        await system.restore()
        # Any device of its product would do for it.
        spec = {
            "deviceSelector": {"include": {"products": ["NVIDIA-H200"]}},
            "assignment": {"requireAnnotation": False},
        }
        await api.create(POOLS, a_pool_object(younger.rpartition("/")[2], **spec))
        await api.create(collection, a_pod("other", other))
        await pods.wait_for_pod(api, namespace, "other")
        events = [line.get("event") for line in system.server.logs()]
        assert SKIPPED in events
        with pytest.raises(client.ApiRefusedError, match=pool.name):
            await api.create(collection, a_pod("early", pool))
        assert await what_stays(api, namespace, pool) == before
        # The next version is back, and so are values that every version knows.
        await install(kubectl, following)
        await set_values(api, pool, strategy=None, state=None)
        await api.create(collection, a_pod("after", pool))
        after = await pods.wait_for_pod(api, namespace, "after")
        assert len(check_devices([kept, after])) == 2
        await figures(pool, used=2, available=0)
        assert await what_stays(api, namespace, pool) == before
    finally:
        await install(kubectl, today)
        await api.delete(younger)


async def set_next_version(
    system: GpuSystem, api: client.ApiClient, kubectl: "Kubectl", pool: Pool
) -> None:
    """Let a server of the next version write, whose own webhooks know its values."""
    await system.server.terminate()
    ours = await api.get(VALIDATION)
    await api.delete(VALIDATION)
    await install(kubectl, next_version_of(build_crds()))
    await set_values(api, pool, strategy=NEXT, state=NEXT)
    for key in ("resourceVersion", "uid", "managedFields"):
        ours["metadata"].pop(key, None)
    await api.create(VALIDATION.rpartition("/")[0], ours)


async def set_values(
    api: client.ApiClient, pool: Pool, *, strategy: str | None, state: str | None
) -> None:
    body = {"spec": {"scheduling": {"strategy": strategy}, "ofTheNextVersion": strategy}}

    async def is_written() -> bool:
        await api.patch(pool.path, body)
        return True

    await polling.eventually(is_written, what=f"{pool.name} with strategy {strategy}")
    for device in await devices_of_nodes(api, pool):
        path = f"{DEVICES}/{device['metadata']['name']}/status"
        await api.patch(path, {"status": {"state": state}})
