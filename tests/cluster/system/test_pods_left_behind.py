"""Objects of pods that outlive their containers, their node or their namespace: who has their units."""

from functools import partial

from tests.cluster.environment import pods, polling
from tests.cluster.system.objects import a_pod, check_devices

NODES = "/api/v1/nodes"
LONG_S = 240
"""The pod garbage collector looks each 20 s, and gives a node that is gone 40 s."""


async def bind_pod(api, namespace, pool, name: str) -> None:
    await api.create(pods.collection(namespace), a_pod(name, pool))
    await pods.wait_for_pod(api, namespace, name, pods.is_running)


async def set_finalizers(api, namespace: str, name: str, *finalizers: str) -> None:
    body = {"metadata": {"finalizers": list(finalizers) or None}}
    await api.patch(f"{pods.collection(namespace)}/{name}", body)


async def register_again(api, node) -> None:
    """Make a deleted Node again, as its kubelet does."""
    kept = {key: node["metadata"].get(key, {}) for key in ("name", "labels", "annotations")}
    await api.create(NODES, {"metadata": kept})
    status = {key: node["status"][key] for key in ("capacity", "allocatable", "conditions")}
    await api.patch(f"{NODES}/{kept['name']}/status", {"status": status})
    await api.patch(f"{NODES}/{kept['name']}", {"spec": {"taints": None}})


async def test_the_unit_of_a_pod_that_ended_is_free_while_a_finalizer_keeps_its_object(
    make_pool, api, namespace
):
    """Job tracking: a pod that succeeded stays until its Job has counted it."""
    pool = await make_pool(devices=1)
    await bind_pod(api, namespace, pool, "done")
    await set_finalizers(api, namespace, "done", "batch.kubernetes.io/job-tracking")
    await pods.finish_pod(api, namespace, "done")
    await bind_pod(api, namespace, pool, "next")
    await set_finalizers(api, namespace, "done")


async def test_units_of_a_namespace_that_goes_are_free_for_another(make_pool, api, namespace):
    pool = await make_pool(devices=2)
    going = f"{namespace}-going"
    await api.create("/api/v1/namespaces", {"metadata": {"name": going}})
    account = f"/api/v1/namespaces/{going}/serviceaccounts/default"
    await polling.eventually(partial(api.find, account), what=account)
    await api.create(pods.collection(going), a_pod("bound", pool, 2))
    await pods.wait_for_pod(api, going, "bound", pods.is_running)
    await api.create(pods.collection(going), a_pod("waiting", pool))
    await api.create(pods.collection(namespace), a_pod("other", pool))
    await pods.wait_for_pod(api, namespace, "other", pods.is_unschedulable)
    await api.delete(f"/api/v1/namespaces/{going}")
    other = await pods.wait_for_pod(api, namespace, "other")
    assert len(check_devices([other])) == 1


async def test_a_pod_that_is_shown_running_keeps_its_unit_when_its_node_is_made_again(
    make_pool, api, namespace
):
    """A spot machine of a fixed name: kube-scheduler counts the pod's other resources, too."""
    pool = await make_pool(devices=1)
    await bind_pod(api, namespace, pool, "old")
    await set_finalizers(api, namespace, "old", "example.com/kept")
    node = await api.get(f"{NODES}/{pool.nodes[0]}")
    await api.delete(f"{NODES}/{pool.nodes[0]}")
    await register_again(api, node)
    await api.create(pods.collection(namespace), a_pod("new", pool))
    await pods.wait_for_pod(api, namespace, "new", pods.is_unschedulable)
    old = await api.get(f"{pods.collection(namespace)}/old")
    assert old["status"]["phase"] == "Running"
    await set_finalizers(api, namespace, "old")
    await api.delete(f"{pods.collection(namespace)}/old", gracePeriodSeconds="0")
    await pods.wait_for_pod(api, namespace, "new")


async def test_a_pod_that_the_garbage_collector_ended_keeps_no_unit(make_pool, api, namespace):
    """Argo Workflows, CI runners: a finalizer keeps the pod of a machine that vanished, and no kubelet ends its containers."""
    pool = await make_pool(devices=1)
    await bind_pod(api, namespace, pool, "old")
    await set_finalizers(api, namespace, "old", "workflows.argoproj.io/status")
    node = await api.get(f"{NODES}/{pool.nodes[0]}")
    await api.delete(f"{NODES}/{pool.nodes[0]}")

    def is_failed(pod) -> bool:
        return pod["status"]["phase"] == "Failed" and "deletionTimestamp" in pod["metadata"]

    old = await pods.wait_for_pod(api, namespace, "old", is_failed, within=LONG_S)
    states = [list(container["state"]) for container in old["status"]["containerStatuses"]]
    assert states == [["running"]]
    await register_again(api, node)
    await bind_pod(api, namespace, pool, "new")
    assert (await api.get(f"{pods.collection(namespace)}/old"))["status"]["phase"] == "Failed"
    await set_finalizers(api, namespace, "old")
