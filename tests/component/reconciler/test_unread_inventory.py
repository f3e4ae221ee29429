"""One GPUDevice or GPUNodeInventory that this version cannot read: it stays as it is, and the others of its node are served."""

from collections.abc import AsyncIterator

import pytest

from api.names import NodeName
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES
from manifests.install.crds import build_crds
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run
from tests.support.next_version import NEXT, allow_next_version
from tests.support.node_features import gfd_labels, gpu_feature

N1 = NodeName("n1")


@pytest.fixture
async def run() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as opened:
        await opened.add_node()
        await opened.label_all({**gfd_labels()})
        await opened.publish(gpu_feature("n1"))
        await opened.until_stable()
        yield opened


async def test_the_other_devices_of_a_node_follow_their_sources(run: InventoryRun):
    first, second = list(await run.gpus())
    await allow_next_version(run.client, build_crds(), "GPUDevice", "status", "state")
    await run.client.merge_patch(
        GPU_DEVICES, {"status": {"state": NEXT}}, name=first, subresource="status"
    )
    run.restart()
    await run.client.merge_patch(
        GPU_DEVICES, {"status": {"product": "wrong"}}, name=second, subresource="status"
    )
    for _ in range(3):
        await run.observe()
        await run.controller.reconcile(N1)
    assert (await run.gpu(second)).status.product == "NVIDIA-H200"


async def test_an_inventory_that_cannot_be_read_stays(run: InventoryRun):
    await allow_next_version(run.client, build_crds(), "GPUNodeInventory", "status", "phase")
    await run.client.merge_patch(
        GPU_NODE_INVENTORIES, {"status": {"phase": NEXT}}, name="n1", subresource="status"
    )
    run.restart()
    for _ in range(3):
        await run.observe()
        await run.controller.reconcile(N1)
    listing = await run.client.list_(GPU_NODE_INVENTORIES, dict)
    assert [item["status"]["phase"] for item in listing.items] == [NEXT]
