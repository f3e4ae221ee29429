"""One node goes through a driver upgrade, from a pod that its disruption budget keeps to its successor's first library."""

from typing import TYPE_CHECKING, Any

from api.driver_upgrade import AGENT_DEPLOY_LABEL, DRIVER_UPGRADE, UNITS_WITHHELD_ANNOTATION
from tests.cluster.environment import nodes, pods, polling
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.node.upgrade.driven_node import PODS, VERSIONS
from tests.cluster.system.installation import NAMESPACE, SERVER_USER

if TYPE_CHECKING:
    from tests.cluster.environment.audit import AuditLog
    from tests.cluster.node.stories.pools import Pools
    from tests.cluster.node.upgrade.driven_node import DrivenNode

Json = dict[str, Any]

OLD, NEW = VERSIONS
APP = {"app": "train"}
MANAGER = "k8s-driver-manager"
VALIDATIONS = "/run/nvidia/validations"
FURTHER_MODULE = "/run/nvidia/driver/sys/module/nvidia_fs"
CHECKED = {f"{name}-ready" for name in ("driver", "gdrcopy", "nvidia-fs", "nvidia-peermem")}
"""Files of NVIDIA's validator beside a driver with all modules."""
TOLERATION = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


async def test_a_node_is_upgraded_once_the_budget_of_its_pod_allows_it(
    driven: "DrivenNode", pools: "Pools", audit: "AuditLog"
):
    resource = await pools.make(0, 1)
    deployment = f"/apis/apps/v1/namespaces/{pools.namespace}/deployments"
    budget = f"/apis/policy/v1/namespaces/{pools.namespace}/poddisruptionbudgets"
    await pools.api.create(deployment, a_deployment(pools, resource))
    await pools.api.create(budget, a_budget())
    try:
        before = await trained(pools)
        await check(pools, before, "main")
        assert OLD in await libraries(pools, before)
        # What must be gone before the driver is unloaded, as the image sees it.
        assert await driven.run_in_driver("driver-users") != ""
        assert await driven.run_in_driver("cat", "/sys/module/nvidia/version") == f"{OLD}\n"
        driver, agent = await driven.pod("driver"), await driven.pod("agent")

        mark = await audit.mark()
        async with driven.observed() as observed:
            await driven.roll_out(NEW, with_modules=True)
            said = await driven.says("EvictionRefused")
            assert f"{pools.namespace}/{before['metadata']['name']}" in said
            assert "budget train allows no disruption now" in said
            await check_held(driven, pools, resource, before)
            assert (await driven.pod("driver"))["metadata"]["uid"] == driver["metadata"]["uid"]
            assert (await driven.pod("agent"))["metadata"]["uid"] == agent["metadata"]["uid"]
            assert observed.order == []

            await pools.api.patch(f"{budget}/train", {"spec": {"minAvailable": 0}})
            await driven.until_done(NEW)
            await observed.until(("agent", "ADDED"))
        await check_upgraded(driven, observed.order)
        after = await trained(pools, other_than=before["metadata"]["uid"])
        for item in (after, await pools.running("late")):
            await check(pools, item, "main")
            assert NEW in await libraries(pools, item)
            assert OLD not in await libraries(pools, item)
        ours = await audit.writes(mark, user=SERVER_USER)
        assert [
            (our.verb, our.resource)
            for our in ours
            if our.namespace == pools.namespace
            and (our.resource == "pods/eviction" or our.verb == "delete")
            and our.succeeded
        ] == [("create", "pods/eviction")]
        await check_validator_waits(driven)
    finally:
        await pools.api.delete(f"{deployment}/train", propagationPolicy="Background")


async def check_held(driven: "DrivenNode", pools: "Pools", resource: str, pod: Json) -> None:
    """Check that the node takes no pod, whatever that tolerates, and that the pod on it runs on undisturbed."""
    current = await pools.api.get(f"{nodes.NODES}/{pools.node.name}")
    assert current["spec"]["unschedulable"]
    assert current["metadata"]["annotations"][UNITS_WITHHELD_ANNOTATION] == DRIVER_UPGRADE
    assert AGENT_DEPLOY_LABEL not in current["metadata"]["labels"]
    await pools.create(pools.a_pod("late", resource, tolerations=[TOLERATION]))
    await pods.wait_for_pod(pools.api, pools.namespace, "late", pods.is_unschedulable)
    now = await pools.get(pod["metadata"]["name"])
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "deletionTimestamp" not in now["metadata"]
    assert runs_of(now) == runs_of(pod)
    await check(pools, now, "main")
    assert OLD in await libraries(pools, now)
    assert await driven.run_in_driver("nvidia-smi") == f"Driver Version: {OLD}\n"


def runs_of(pod: Json) -> list[tuple[str, int]]:
    """Return which run of its containers a pod is in."""
    current = pod["status"]["containerStatuses"]
    return [(item["containerID"], item["restartCount"]) for item in current]


async def check_upgraded(driven: "DrivenNode", order: list[tuple[str, str]]) -> None:
    """Check that the agent was away while the driver was replaced, and that the node is in service again."""
    left, *replaced, returned = (item for item in order if item[0] != "validator")
    assert (left, returned) == (("agent", "DELETED"), ("agent", "ADDED"))
    # The successor is there, and waits, while the driver pod ends.
    assert sorted(replaced) == [("driver", "ADDED"), ("driver", "DELETED")]
    driver = await driven.pod("driver")
    (manager,) = driver["status"]["initContainerStatuses"]
    assert manager["restartCount"] == 0
    name = driver["metadata"]["name"]
    said = await driven.node.logs(NAMESPACE, name, container=MANAGER)
    assert said == f"unloaded {OLD}, which no process had open\n"
    assert await driven.run_in_driver("nvidia-smi") == f"Driver Version: {NEW}\n"
    assert await driven.run_in_driver("driver-users") != ""
    checked = (await driven.run_in_driver("ls", VALIDATIONS)).split()
    assert set(checked) >= CHECKED, f"{checked}"
    current = await driven.api.get(f"{nodes.NODES}/{driven.node.name}")
    assert "unschedulable" not in current["spec"]
    assert UNITS_WITHHELD_ANNOTATION not in current["metadata"]["annotations"]
    assert AGENT_DEPLOY_LABEL not in current["metadata"]["labels"]


async def trained(pools: "Pools", *, other_than: str = "") -> Json:
    """Wait for the Deployment's pod to run; return it."""

    async def runs() -> Json:
        listed = await pools.api.get(pods.collection(pools.namespace), labelSelector="app=train")
        found = [item for item in listed["items"] if item["metadata"]["uid"] != other_than]
        assert found, "no pod"
        assert pods.is_running(found[0]), f"{found[0]['status']}"
        return dict(found[0])

    return await polling.eventually(runs, what="pod of the Deployment", within=120)


async def libraries(pools: "Pools", pod: Json) -> str:
    """Return the names of the driver's libraries that the container has."""
    name = pod["metadata"]["name"]
    return await pools.node.exec(pools.namespace, name, ["ls", "/usr/local/nvidia/lib64"])


def a_deployment(pools: "Pools", resource: str) -> Json:
    pod = pools.a_pod("train", resource, restartPolicy="Always")
    template = {"metadata": {"labels": APP}, "spec": pod["spec"]}
    del template["spec"]["nodeName"]
    return {
        "metadata": {"name": "train"},
        "spec": {"replicas": 1, "selector": {"matchLabels": APP}, "template": template},
    }


def a_budget() -> Json:
    spec = {"minAvailable": 1, "selector": {"matchLabels": APP}}
    return {"metadata": {"name": "train"}, "spec": spec}


async def check_validator_waits(driven: "DrivenNode") -> None:
    """Check that the driver's libraries alone are no driver to the validator: it knows the DaemonSet for its operator's.

    It waits for the file that the startup probe of the driver's container writes, and for the modules that the file names.
    """
    before = (await driven.pod("validator"))["metadata"]
    await driven.run_in_driver("rm", "-r", f"{VALIDATIONS}/.driver-ctr-ready", FURTHER_MODULE)
    await driven.api.delete(f"{PODS}/{before['name']}")

    async def successor() -> Json:
        listed = await driven.api.get(PODS, labelSelector="app=nvidia-operator-validator")
        found = [pod for pod in listed["items"] if pod["metadata"]["uid"] != before["uid"]]
        assert found, "no pod"
        return dict(found[0])

    async def is_checking() -> str:
        pod = await successor()
        checks = pod["status"].get("initContainerStatuses") or ()
        assert ["running" in check["state"] for check in checks[:1]] == [True], f"{checks}"
        return str(pod["metadata"]["name"])

    name = await polling.eventually(is_checking, what="the check of the driver")
    check = "driver-validation"

    async def until_waiting(what: str) -> None:
        async def waits() -> bool:
            said = await driven.node.logs(NAMESPACE, name, container=check)
            assert f"waiting until {what}" in said, said
            return True

        await polling.eventually(waits, what=f"the check waits until {what}")

    await until_waiting(".driver-ctr-ready is there")
    await driven.run_in_driver("sh", "/usr/local/bin/startup-probe.sh")
    await until_waiting("the module of nvidia-fs is loaded")
    await driven.run_in_driver("mkdir", FURTHER_MODULE)

    async def passes() -> bool:
        return pods.is_running(await successor())

    await polling.eventually(passes, what="all checks pass")
    said = await driven.node.logs(NAMESPACE, name, container=check)
    assert said.endswith("driver validated\n")
