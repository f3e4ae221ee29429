"""Another program partitions a device of a pool again and again: the pool stops until an operator confirms."""

from typing import TYPE_CHECKING, Any

import pytest

from api.names import CONFIRM_ANNOTATION
from tests.cluster.environment import client, polling
from tests.cluster.system import objects

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.cluster.system.conftest import MakePool

PROFILE = "1g.18gb"


async def test_a_pool_whose_device_is_fought_over_stops_until_its_generation_is_confirmed(
    make_pool: "MakePool",
    api: client.ApiClient,
    figures: "Callable[..., Awaitable[dict[str, int]]]",
    namespace: str,
):
    pool = await make_pool(devices=2, mig_profiles=(PROFILE,) * 7)
    device = objects.a_device(pool.nodes[0], 0, pool.name, mig_profiles=(PROFILE,) * 7)
    path = f"{objects.DEVICES}/{device['metadata']['name']}/status"
    mig = device["status"]["mig"] | {"capacities": {PROFILE: 7}}
    for _ in range(3):
        for missing in (1, 0):
            changed = mig | {"instances": mig["instances"][missing:]}
            await api.patch(path, {"status": {"mig": changed}})
            await figures(pool, missing=missing)

    async def maintenance(status: str, text: str) -> dict[str, Any]:
        async def does() -> dict[str, Any]:
            found = (await api.conditions(pool.path)).get("Maintenance", {})
            assert (found.get("status"), text in found.get("message", "")) == (status, True), found
            return found

        return await polling.eventually(does, what=f"Maintenance is {status}: {text}")

    found = await maintenance("True", "another program keeps partitioning")
    assert found["reason"] == "LayoutDiffers"
    with pytest.raises(client.ApiRefusedError, match="another program keeps partitioning"):
        await api.create(f"/api/v1/namespaces/{namespace}/pods", objects.a_pod("p", pool))
    generation = (await api.get(pool.path))["metadata"]["generation"]
    for value in (generation + 1, generation):
        annotations = {CONFIRM_ANNOTATION: str(value)}
        await api.patch(pool.path, {"metadata": {"annotations": annotations}})
        if value != generation:
            await maintenance("True", f"({value} is not the pool's generation")
    await maintenance("False", "")
    await figures(pool, available=14)
