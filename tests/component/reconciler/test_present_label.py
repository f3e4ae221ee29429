"""The label by which the node agent finds its nodes: set by any source, removed after the last, never over others."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import (
    DEPLOY_LABELS_ANNOTATION,
    NVIDIA_PRESENT_LABEL,
    PRESENT_LABEL,
    PRESENT_LABEL_MANAGER,
    NodeName,
)
from inventory.discovery.node import DEFAULT_GONE_FOR
from kube.errors import Forbidden, NotFound
from kube.resources import GPU_DEVICES, NODES
from tests.component.reconciler.inventory_run import InventoryRun, an_inventory_run, condition
from tests.support.node_features import (
    agent_device,
    agent_feature,
    detector_feature,
    gfd_labels,
    gpu_feature,
    nfd_feature,
    rule_labels,
)

N1 = NodeName("n1")
GONE_S = DEFAULT_GONE_FOR.total_seconds()
VENDOR = {"feature.node.kubernetes.io/pci-10de.present": "true"}


@pytest.fixture
async def run() -> AsyncIterator[InventoryRun]:
    async with an_inventory_run() as world:
        await world.add_node("n1")
        yield world


async def reconciled(run: InventoryRun) -> float | None:
    await run.observe()
    return await run.present_label.reconcile(N1)


async def value(run: InventoryRun) -> str | None:
    """Reconcile, and return the label's value."""
    await reconciled(run)
    node = await run.client.get(NODES, dict[str, Any], "n1")
    found: str | None = node["metadata"].get("labels", {}).get(PRESENT_LABEL)
    return found


@pytest.mark.parametrize(
    "labels",
    [
        *(
            pytest.param({f"feature.node.kubernetes.io/pci-{key}": "true"}, id=key)
            for device in ("10de", "0300_10de", "0302_10de")
            for key in (f"{device}.present", f"{device}.sriov.capable")
        ),
        pytest.param({"nvidia.com/gpu.present": "true"}, id="NVIDIA's operator"),
        pytest.param({"nvidia.com/gpu.count": "8"}, id="GFD's count"),
        pytest.param({"gpu.deckhouse.io/device-count": "2"}, id="the rule's count"),
    ],
)
async def test_a_label_of_any_source_suffices(run: InventoryRun, labels: dict[str, str]):
    assert await value(run) is None
    await run.label_all(dict(labels))
    assert await value(run) == "true"


@pytest.mark.parametrize(
    "feature",
    [
        pytest.param(nfd_feature("n1"), id="NFD's, with labels"),
        pytest.param(gpu_feature("n1", 1), id="NVML's"),
        pytest.param(detector_feature("n1", 1), id="our detector's"),
        pytest.param(agent_feature("n1", [agent_device("n1", 0)]), id="our agent's"),
        pytest.param(
            agent_feature("n1", [{"uuid": "GPU-1"}]), id="our agent's, of an unknown address"
        ),
    ],
)
async def test_a_feature_of_any_source_suffices(run: InventoryRun, feature: dict[str, Any]):
    await run.publish(feature)
    assert await value(run) == "true"


@pytest.mark.parametrize(
    "device",
    [
        pytest.param({"class": "0403", "vendor": "10de"}, id="its audio function"),
        pytest.param({"class": "0680", "vendor": "10de"}, id="an NVSwitch"),
        pytest.param({"class": "0300", "vendor": "1a03"}, id="another vendor's VGA"),
        pytest.param({"class": "", "vendor": "?"}, id="nonsense"),
    ],
)
async def test_other_devices_on_the_bus_are_none(run: InventoryRun, device: dict[str, str]):
    feature = nfd_feature("n1")
    feature["spec"]["labels"] = {}
    feature["spec"]["features"]["instances"]["pci.device"]["elements"] = [{"attributes": device}]
    await run.publish(feature)
    assert await value(run) is None
    feature["spec"]["features"]["instances"]["pci.device"]["elements"].append(
        {"attributes": {"class": "0300", "vendor": "10de"}}
    )
    await run.publish(feature)
    assert await value(run) == "true"


@pytest.mark.parametrize(
    "labels",
    [
        {"feature.node.kubernetes.io/pci-10de.present": "false"},
        {"nvidia.com/gpu.count": "0"},
        {"nvidia.com/gpu.count": "many"},
        {"feature.node.kubernetes.io/pci-8086.present": "true"},
    ],
)
async def test_labels_that_say_no_are_no_source(run: InventoryRun, labels: dict[str, str]):
    await run.label_all(dict(labels))
    assert await value(run) is None


async def test_a_labelled_node_costs_no_further_write(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    run.api.requests.clear()
    for _ in range(3):
        await run.present_label.reconcile(N1)  # the watch shows nothing yet
        await reconciled(run)
    run.restart()
    await reconciled(run)
    await run.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=run.now()))
    run.api.requests.clear()
    await reconciled(run)
    assert run.writes() == {}


async def test_one_write_sets_it(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    await run.observe()
    run.api.requests.clear()
    for _ in range(3):
        await run.present_label.reconcile(N1)
    assert run.writes() == {"PATCH /api/v1/nodes/n1": 1}


async def test_it_goes_a_while_after_the_last_source(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    assert await value(run) == "true"
    await run.label_all(dict.fromkeys(VENDOR))
    assert await reconciled(run) == GONE_S
    run.time.seconds += GONE_S - 1
    assert await reconciled(run) == 1
    assert await value(run) == "true"
    run.time.seconds += 1
    assert await value(run) is None


async def test_the_label_for_a_policys_operands_is_no_source_where_we_set_it(run: InventoryRun):
    """Either of our two labels would keep the other for ever."""
    theirs = {NVIDIA_PRESENT_LABEL: "true"}
    await run.label_all({**VENDOR, **theirs})
    record = {"metadata": {"annotations": {DEPLOY_LABELS_ANNOTATION: NVIDIA_PRESENT_LABEL}}}
    await run.client.merge_patch(NODES, record, name="n1")
    assert await value(run) == "true"
    await run.label_all(dict.fromkeys(VENDOR))
    assert await reconciled(run) == GONE_S
    run.time.seconds += GONE_S
    assert await value(run) is None
    gone = {"metadata": {"annotations": {DEPLOY_LABELS_ANNOTATION: None}}}
    await run.client.merge_patch(NODES, gone, name="n1")
    assert await value(run) == "true"


async def test_a_source_that_comes_back_ends_the_while(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    await reconciled(run)
    for _ in range(2):
        await run.label_all(dict.fromkeys(VENDOR))
        assert await reconciled(run) == GONE_S
        run.time.seconds += GONE_S - 1
        await run.label_all(dict(VENDOR))
        assert await reconciled(run) is None


async def test_a_node_keeps_it_while_it_has_a_gpudevice(run: InventoryRun):
    """A device that is assigned or in use is watched by its agent, whatever labels say."""
    agents = agent_feature("n1", [agent_device("n1", 0)], heartbeat=run.now())
    await run.publish(agents)
    await run.until_stable()
    assert await value(run) == "true"
    await run.withdraw(agents)
    for _ in range(3):
        run.time.seconds += GONE_S
        assert await value(run) == "true"
    (device,) = await run.gpus()
    await run.client.delete(GPU_DEVICES, device)
    assert await reconciled(run) == GONE_S
    run.time.seconds += GONE_S
    assert await value(run) is None


async def test_an_agent_that_went_silent_keeps_its_node(run: InventoryRun):
    await run.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=run.now()))
    for _ in range(3):
        run.time.seconds += 1_000
        assert await value(run) == "true"


@pytest.mark.parametrize("is_agents", [True, False], ids=["the agent's", "NVML's"])
async def test_a_list_that_got_empty_takes_devices_and_label_away(
    run: InventoryRun, is_agents: bool
):
    """Our own label is no source: neither of the label, nor of the inventory."""

    async def publish(count: int) -> None:
        devices = [agent_device("n1", number) for number in range(count)]
        agents = agent_feature("n1", devices, heartbeat=run.now())
        await run.publish(agents if is_agents else gpu_feature("n1", count))
        await run.until_stable()

    await publish(1)
    assert await value(run) == "true"
    assert len(await run.gpus()) == 1
    await publish(0)
    assert await run.gpus() == {}
    assert await reconciled(run) == GONE_S
    run.time.seconds += GONE_S
    assert await value(run) is None


@pytest.mark.parametrize("theirs", ["true", "false", "elsewhere"])
async def test_a_label_of_another_manager_stays(run: InventoryRun, theirs: str):
    await run.label_all({PRESENT_LABEL: theirs})
    run.api.requests.clear()
    assert await value(run) == theirs
    await run.label_all({**VENDOR, **gfd_labels(2)})
    assert await value(run) == theirs
    await run.label_all(dict.fromkeys({**VENDOR, **gfd_labels(2)}))
    for _ in range(2):
        run.time.seconds += GONE_S
        assert await value(run) == theirs


async def test_an_administrator_who_takes_it_over_keeps_the_agent_away(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    assert await value(run) == "true"
    await run.label_all({PRESENT_LABEL: "false"})
    assert await value(run) == "false"
    await run.label_all({PRESENT_LABEL: None})
    assert await value(run) == "true"


async def test_a_rules_own_label_is_a_source_of_the_inventory(run: InventoryRun):
    await run.label_all(dict(rule_labels(1)))
    await run.until_stable()
    assert condition(await run.inventory(), "InventoryIncomplete")[0] == "True"


async def test_our_label_alone_makes_no_inventory(run: InventoryRun):
    labelled = {"name": "n1", "labels": {PRESENT_LABEL: "true"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": labelled}
    await run.client.apply(NODES, body, field_manager=PRESENT_LABEL_MANAGER)
    assert await run.until_stable() == 0
    with pytest.raises(NotFound):
        await run.inventory()


async def test_a_label_of_nvidias_makes_an_inventory_that_names_what_is_missing(
    run: InventoryRun,
):
    await run.label_all({"nvidia.com/gpu.present": "true"})
    await run.until_stable()
    found = condition(await run.inventory(), "InventoryIncomplete")
    assert found[:2] == ("True", "SourceMissing")


async def test_a_label_that_somebody_sets_meanwhile_is_left_to_them(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    await run.observe()
    await run.label_all({PRESENT_LABEL: "false"})
    assert await run.present_label.reconcile(N1) is not None
    assert await value(run) == "false"


async def test_a_node_that_was_deleted_meanwhile_is_not_made_again(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    await run.observe()
    await run.client.delete(NODES, "n1")
    await run.present_label.reconcile(N1)
    with pytest.raises(NotFound):
        await run.client.get(NODES, dict[str, Any], "n1")


async def test_a_refused_write_is_tried_again(run: InventoryRun):
    await run.label_all(dict(VENDOR))
    run.api.faults.fail("PATCH", "/nodes/n1$", 403)
    with pytest.raises(Forbidden):
        await reconciled(run)
    assert await value(run) == "true"


async def test_a_detected_device_is_labelled_known_and_forgotten(run: InventoryRun):
    detected = detector_feature("n1", 1)
    await run.publish(detected)
    assert await value(run) == "true"
    await run.until_stable()
    status, reason, message = condition(await run.inventory(), "InventoryIncomplete")
    assert (status, reason) == ("True", "AddressesMissing"), message
    await run.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=run.now()))
    await run.until_stable()
    assert condition(await run.inventory(), "InventoryIncomplete")[0] == "False"
    await run.withdraw(detected)
    await run.publish(agent_feature("n1", [], heartbeat=run.now()))
    await run.until_stable()
    assert await reconciled(run) == GONE_S
    run.time.seconds += GONE_S
    assert await value(run) is None


async def test_a_detected_device_that_is_gone_leaves_anothers_label(run: InventoryRun):
    detected = detector_feature("n1", 1)
    await run.label_all({PRESENT_LABEL: "true"})
    await run.publish(detected)
    assert await value(run) == "true"
    await run.withdraw(detected)
    for _ in range(2):
        run.time.seconds += GONE_S
        assert await value(run) == "true"
