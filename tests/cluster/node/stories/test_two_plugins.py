"""A second device plugin, as NVIDIA's own one, has given a device before a pool wants it."""

from typing import TYPE_CHECKING

from tests.cluster.environment import polling
from tests.cluster.node.environment.own_plugin import OwnPlugin, offers, served
from tests.cluster.node.stories.conftest import SLICED
from tests.cluster.node.stories.test_assigned_devices import check

if TYPE_CHECKING:
    from tests.cluster.node.stories.pools import Pools

RESOURCE = "nvidia.com/gpu"
FREE = SLICED[-1] + 1
"""A device in no pool that tests share."""


async def test_a_device_joins_its_pool_once_the_pod_that_has_it_by_the_other_plugin_has_ended(
    pools: "Pools",
):
    uuid = pools.devices.uuids[FREE]
    async with served(pools.node, OwnPlugin(RESOURCE, [uuid], has_devices=False)):
        await polling.eventually(offers(pools.api, pools.node, RESOURCE), what="the other plugin")
        await pools.create(pools.node.a_pod("before", limits={RESOURCE: 1}))
        await pools.running("before")
    resource = await pools.make(FREE, is_awaited=False)
    user = f"{pools.namespace}/before"

    async def waits() -> bool:
        device = await pools.device(FREE)
        conditions = {item["type"]: item for item in device["status"].get("conditions", ())}
        current = conditions.get("Assigned", {})
        assert current.get("reason") == "OtherDevicePlugin", f"{current}"
        assert user in current["message"], f"{current}"
        return "poolRef" not in device["status"]

    await polling.eventually(waits, what="the device waits")
    assert await pools.allocations("before") == {"main": [uuid]}
    await pools.delete("before")
    await pools.offers(resource, 1)
    pod = await pools.run(pools.a_pod("after", resource))
    await check(pools, pod, "main")
