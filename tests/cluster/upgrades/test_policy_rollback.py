"""The chart goes back by one version: a ClusterPolicy of the next one cannot be read, and every driver and node stays as it is."""

import copy
from typing import TYPE_CHECKING, Any

from manifests.nvidia.operator_crds import build_operator_crds
from manifests.yaml import render
from tests.cluster.environment import definitions, polling
from tests.cluster.environment.driver_fleet import DRIVER, FAILED, PODS
from tests.cluster.operator_states.conftest import until_idle
from tests.cluster.system.installation import NAMESPACE
from tests.cluster.upgrades.conftest import POLICY, CreateNodes, Upgrades
from tests.support.next_version import NEXT, next_version_of

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.kubectl import Kubectl

Json = dict[str, Any]
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
FIELD = ("daemonsets", "updateStrategy")


async def install(kubectl: "Kubectl", crds: list[Json]) -> None:
    """Apply definitions as `helm upgrade` and `helm rollback` do."""
    options = ("--server-side", "--force-conflicts", "-f", "-")
    await kubectl("apply", *options, stdin=render(crds))
    await definitions.until_served(kubectl, crds)


async def drivers_and_nodes(api: "ApiClient", upgrades: Upgrades, names: list[str]) -> Json:
    """What must stay: driver DaemonSets, driver pods, and nodes with their marks."""
    sets, pods = await api.get(DAEMON_SETS), await api.get(PODS, labelSelector=DRIVER)
    found = await upgrades.nodes(names)
    return {
        "sets": {
            item["metadata"]["name"]: (item["metadata"]["uid"], item["metadata"]["generation"])
            for item in sets["items"]
        },
        "pods": {
            item["metadata"]["uid"]: item["metadata"].get("deletionTimestamp")
            for item in pods["items"]
        },
        "nodes": {
            name: (
                node["metadata"]["labels"],
                node["metadata"]["annotations"].get("gpu.deckhouse.io/units-withheld"),
                node["spec"].get("unschedulable"),
            )
            for name, node in found.items()
        },
    }


async def test_no_driver_leaves_and_no_node_is_given_back_until_the_next_version_is_back(
    upgrades: Upgrades, gpu_nodes: CreateNodes, api: "ApiClient", kubectl: "Kubectl"
):
    first = await upgrades.roll_out()
    good = await gpu_nodes(2, prefix="kept")
    broken = await gpu_nodes(1, prefix="broken-kept")
    names = [*good, *broken]
    await upgrades.until_driven(names, first)
    second = await upgrades.roll_out(tag="-broken")
    await upgrades.until_driven(good, second)
    await upgrades.until(broken, FAILED)
    today = build_operator_crds()
    following = next_version_of(copy.deepcopy(today))
    try:
        await install(kubectl, following)
        before = await drivers_and_nodes(api, upgrades, names)
        assert [node for node in before["nodes"].values() if node[2]]
        section, field = FIELD
        await api.patch(POLICY, {"spec": {section: {field: NEXT}, "ofTheNextVersion": "set"}})
        await install(kubectl, today)
        await upgrades.software.server.restart()

        async def is_unread() -> bool:
            events = [line.get("event") for line in upgrades.software.server.logs()]
            assert "nothing changes for policies that cannot be read" in events
            return True

        await polling.eventually(is_unread, what="a policy that cannot be read")
        await until_idle(upgrades.software)
        assert await drivers_and_nodes(api, upgrades, names) == before
        # The next version is back, and so is a value that every version knows.
        await install(kubectl, following)
        await api.patch(POLICY, {"spec": {section: {field: None}, "ofTheNextVersion": None}})
        third = await upgrades.roll_out()
        await upgrades.until_driven(names, third, within=120)
    finally:
        await install(kubectl, today)
