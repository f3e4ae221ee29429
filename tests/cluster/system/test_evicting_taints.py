"""A taint that evicts pods comes to the nodes of the pool that has it, and with the server's token to no other."""

import pytest

from api.names import POOL_TAINTS_ANNOTATION
from tests.cluster.environment import client, polling
from tests.cluster.system.installation import NAMESPACE

EVICTING = {"key": "gpu.example.com/evicting", "value": "yes", "effect": "NoExecute"}


async def test_a_taint_that_evicts_comes_to_nodes_of_its_pool_alone(
    control_plane, api, make_pool, create_nodes
):
    pool = await make_pool(scheduling={"taints": [EVICTING]})
    path = f"/api/v1/nodes/{pool.nodes[0]}"

    async def is_tainted() -> bool:
        taints = (await api.get(path))["spec"].get("taints", [])
        return any(taint["key"] == EVICTING["key"] for taint in taints)

    await polling.eventually(is_tainted, what="the pool's taint on its node")
    (other,) = await create_nodes(1, gpus=0)
    kubeconfig = await control_plane.service_account_kubeconfig(NAMESPACE, "gpu-control-plane")
    async with client.open_client(kubeconfig) as stolen:
        for name, key in ((other, EVICTING["key"]), (pool.nodes[0], "evil")):
            node = await api.get(f"/api/v1/nodes/{name}")
            taints = node["spec"].get("taints", [])
            change = {
                "metadata": {"annotations": {POOL_TAINTS_ANNOTATION: f"{key}:NoExecute"}},
                "spec": {"taints": [*taints, EVICTING | {"key": key}]},
            }
            with pytest.raises(client.ApiRefusedError, match="InvalidTaint") as refused:
                await stolen.patch(f"/api/v1/nodes/{name}", change)
            assert refused.value.status == 403
