"""What keeps a node from being upgraded concerns this node alone, and what an admin did to a node stays."""

from typing import TYPE_CHECKING, Any

from api.driver_upgrade import UNITS_WITHHELD_ANNOTATION
from tests.cluster.environment import client, nodes, polling
from tests.cluster.environment.audit import AuditLog
from tests.cluster.system.installation import SERVER_USER
from tests.cluster.upgrades.conftest import (
    FAILED,
    CreateNodes,
    Json,
    Upgrades,
    is_cordoned,
    state_of,
)

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient

RESOURCE = "gpu.deckhouse.io/trained"
APP = {"app": "train"}


async def test_budget_holds_the_node_of_its_pod_alone(
    upgrades: Upgrades,
    gpu_nodes: CreateNodes,
    api: client.ApiClient,
    namespace: str,
    audit: AuditLog,
):
    names = await gpu_nodes(3, prefix="held", resources={RESOURCE: 1})
    held, *others = names
    await upgrades.until_driven(names, await upgrades.roll_out())
    pod = await run_with_budget(api, namespace, held)
    mark = await audit.mark()
    version = await upgrades.roll_out()
    await upgrades.until_driven(others, version)
    entry = await upgrades.entry(held, "EvictionRefused")
    assert f"{namespace}/{pod['metadata']['name']}" in entry["message"]
    assert "budget train allows no disruption now" in entry["message"]
    assert (await pods_of(api, namespace)) == [pod["metadata"]["uid"]]
    budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/train"
    await api.patch(budget, {"spec": {"minAvailable": 0}})
    await upgrades.until_driven(names, version)
    assert not [name for name, item in (await upgrades.nodes(names)).items() if is_cordoned(item)]
    ours = await audit.writes(mark, user=SERVER_USER)
    ended = [
        (our.verb, our.resource)
        for our in ours
        if our.namespace == namespace and our.resource in {"pods", "pods/eviction"}
    ]
    assert ended == [("create", "pods/eviction")]

    async def runs_again() -> bool:
        found = await pods_of(api, namespace)
        return bool(found) and pod["metadata"]["uid"] not in found

    await polling.eventually(runs_again, what="another pod on the node")


async def test_cordoned_hidden_and_deleted_nodes_beside_others(
    upgrades: Upgrades, gpu_nodes: CreateNodes, api: client.ApiClient
):
    hidden, *remaining = names = [
        *await gpu_nodes(1, prefix="hidden", resources={"pods": 0}),
        *await gpu_nodes(4, prefix="beside"),
    ]
    cordoned, leaving, *plain = remaining
    await upgrades.until_driven(remaining, await upgrades.roll_out())
    await api.patch(f"{nodes.NODES}/{cordoned}", {"spec": {"unschedulable": True}})
    version = await upgrades.roll_out()

    async def is_under_way() -> bool:
        return is_cordoned(await api.get(f"{nodes.NODES}/{leaving}"))

    await polling.eventually(is_under_way, what=f"{leaving} is cordoned")
    await nodes.delete_nodes(api, [leaving])
    await upgrades.until_driven([cordoned, *plain], version)
    found = await upgrades.nodes(names)
    assert {name for name, item in found.items() if is_cordoned(item)} == {cordoned}
    assert state_of(found[hidden]) == "upgrade-required"
    entry = await upgrades.entry(hidden, "NoDriverPod")
    assert "Too many pods" in entry["message"]
    assert leaving not in await upgrades.entries()
    await nodes.set_extended_resources(api, hidden, {"pods": 110})
    await upgrades.until_driven([hidden], version)


async def test_taints_of_pools_leave_no_node_behind(
    upgrades: Upgrades, gpu_nodes: CreateNodes, api: client.ApiClient
):
    """The taint of one pool is there before the upgrade, and that of another one comes in the middle of it."""
    early, late, plain = names = await gpu_nodes(3, prefix="tainted")
    await upgrades.until_driven(names, await upgrades.roll_out())
    before = [{"key": "pool.gpu.deckhouse.io/early", "effect": "NoSchedule"}]
    await api.patch(f"{nodes.NODES}/{early}", {"spec": {"taints": before}})
    version = await upgrades.roll_out(maxUnavailable=2)

    async def is_begun() -> bool:
        return is_cordoned(await api.get(f"{nodes.NODES}/{late}"))

    await polling.eventually(is_begun, what=f"{late} is cordoned")
    meanwhile = [{"key": "pool.gpu.deckhouse.io/late", "effect": "NoExecute"}]
    await api.patch(f"{nodes.NODES}/{late}", {"spec": {"taints": meanwhile}})
    await upgrades.until_driven([early, late, plain], version)
    found = await upgrades.nodes(names)
    assert not [name for name, item in found.items() if is_cordoned(item)]


async def test_a_node_keeps_its_driver_until_another_one_fits(
    upgrades: Upgrades, gpu_nodes: CreateNodes
):
    names = small, *others = [
        *await gpu_nodes(1, prefix="small", resources={"cpu": 2}),
        *await gpu_nodes(1, prefix="large"),
    ]
    first = await upgrades.roll_out()
    await upgrades.until_driven(names, first)
    second = await upgrades.roll_out(resources={"requests": {"cpu": "3"}})
    await upgrades.until_driven(others, second)
    entry = await upgrades.entry(small, "DriverKeptAway")
    assert entry["state"] == "upgrade-required"
    assert "its pod requests 3000m of cpu" in entry["message"]
    assert any("3000m of cpu" in event["note"] for event in await upgrades.events(small))
    found = await upgrades.nodes([small])
    assert not is_cordoned(found[small])
    assert (await upgrades.drivers())[small] == first
    third = await upgrades.roll_out(resources={"requests": {"cpu": "1"}})
    await upgrades.until_driven(names, third)


async def test_server_is_killed_in_the_middle(
    upgrades: Upgrades, gpu_nodes: CreateNodes, api: client.ApiClient
):
    names = await gpu_nodes(6, prefix="crash")
    await upgrades.until_driven(names, await upgrades.roll_out())
    async with upgrades.observed(names) as observer:
        version = await upgrades.roll_out(maxUnavailable=2)
        for count in (1, 3):

            async def are_upgraded(count: int = count) -> bool:
                drivers = await upgrades.drivers()
                new = [name for name in names if drivers.get(name) == version]
                return len(new) >= count

            await polling.eventually(are_upgraded, what=f"{count} with {version}")
            await upgrades.crash()
            await upgrades.software.server.start()
        await upgrades.until_driven(names, version)
    found = await upgrades.nodes(names)
    for name, item in found.items():
        assert not is_cordoned(item), name
        assert UNITS_WITHHELD_ANNOTATION not in (item["metadata"].get("annotations") or {}), name
        assert FAILED not in observer.states[name]
    assert observer.most_away <= 2


async def run_with_budget(api: "ApiClient", namespace: str, node: str) -> Json:
    """Let a Deployment run a pod of a GPUPool on the node, of which a budget lets none go; return the pod."""
    container: dict[str, Any] = {"name": "train", "image": "registry.test/train"}
    container["resources"] = {"limits": {RESOURCE: "1"}}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    await api.create(
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {
            "metadata": {"name": "train"},
            "spec": {
                "selector": {"matchLabels": APP},
                "template": {"metadata": {"labels": APP}, "spec": spec},
            },
        },
    )
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await api.create(
        budgets,
        {
            "metadata": {"name": "train"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": APP}},
        },
    )

    async def is_counted() -> bool:
        status = await api.status(f"{budgets}/train")
        assert status.get("currentHealthy") == 1, status
        return True

    await polling.eventually(is_counted, what="the budget counts the pod")
    (pod,) = (await api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
    return dict(pod)


async def pods_of(api: "ApiClient", namespace: str) -> list[str]:
    """Return the UIDs of pods that run."""
    listed = (await api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
    return [item["metadata"]["uid"] for item in listed if item["status"].get("phase") == "Running"]
