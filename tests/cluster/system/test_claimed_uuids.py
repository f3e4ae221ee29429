"""What the token of one node agent can do to the devices of another node, by telling of their UUIDs."""

import pytest

from tests.cluster.environment import client, polling
from tests.cluster.system.features import FEATURES, apply_feature
from tests.cluster.system.objects import API, DEVICES, Pool, capacity
from tests.support.node_features import agent_device, agent_feature

DEVICES_OF_NODE = 8


async def uuids_of(api: client.ApiClient, *nodes: str) -> list[str]:
    """Return the UUIDs of the devices of nodes."""
    statuses = [item.get("status", {}) for item in (await api.get(DEVICES))["items"]]
    return sorted(status["uuid"] for status in statuses if status.get("nodeName") in nodes)


async def until_incomplete(api: client.ApiClient, node: str, *reasons: str) -> None:
    """Wait until the inventory of a node lacks something for one of these reasons."""

    async def is_so() -> bool:
        found = await api.conditions(f"{API}/gpunodeinventories/{node}")
        return found.get("InventoryIncomplete", {}).get("reason") in reasons

    await polling.eventually(is_so, what=f"InventoryIncomplete of {node}: {reasons}")


async def available(api: client.ApiClient, pool: Pool) -> int:
    return int(capacity(await api.get(pool.path))["available"])


@pytest.mark.usefixtures("system")
async def test_node_that_tells_of_devices_of_another_takes_none_of_them_away(
    make_pool, create_nodes, api
):
    pool = await make_pool(nodes=1, devices=DEVICES_OF_NODE)
    (thief,) = await create_nodes(1, gpus=0)
    uuids = await uuids_of(api, *pool.nodes)
    assert (len(uuids), await available(api, pool)) == (DEVICES_OF_NODE, DEVICES_OF_NODE)
    forged = [agent_device(thief, number) | {"uuid": uuid} for number, uuid in enumerate(uuids)]
    own = agent_device(thief, DEVICES_OF_NODE)
    feature = agent_feature(thief, [*forged, own])
    await apply_feature(api, feature)
    await until_incomplete(api, thief, "UUIDsClaimed")
    assert await uuids_of(api, thief) == [own["uuid"]]
    assert await available(api, pool) == DEVICES_OF_NODE
    await api.delete(f"{FEATURES}/{feature['metadata']['name']}")
    await until_incomplete(api, thief, "Complete")
    assert await uuids_of(api, thief) == [own["uuid"]]
    assert await available(api, pool) == DEVICES_OF_NODE
