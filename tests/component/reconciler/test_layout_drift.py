"""Devices whose MIG instances others change: they are withheld and counted, and too much of it stops the pool."""

from typing import Any

import pytest

from api.names import CONFIRM_ANNOTATION
from kube.resources import GPU_POOLS
from tests.component.reconciler.cluster import Cluster
from tests.component.reconciler.pool_lives import (
    WHOLE,
    change,
    maintenance,
    pool,
    run_pass,
    until_stable,
)

PROFILE = "1g.10gb"
FIRST, SECOND = "n1-0", "n1-1"


def instances(device: str, *profiles: str) -> list[dict[str, str]]:
    return [
        {"profile": profile, "uuid": f"MIG-{device}-{number}"}
        for number, profile in enumerate(profiles)
    ]


async def cut(cluster: Cluster, device: str, *profiles: str) -> None:
    """The device has these instances now, and seven of the pool's profile would fit."""
    mig = {
        "capable": True,
        "mode": "Enabled",
        "capacities": {PROFILE: 7, "3g.40gb": 2},
        "instances": instances(device, *profiles) or None,
    }
    await cluster.report(device, mig=mig)
    await cluster.observe()


@pytest.fixture
async def parts(cluster: Cluster) -> Cluster:
    """A pool of instances whose two devices have all of theirs."""
    await until_stable(cluster)
    for device in (FIRST, SECOND):
        await cut(cluster, device, *[PROFILE] * 7)
    await change(cluster, allocation={"mode": "MIG", "migProfile": PROFILE})
    await run_pass(cluster, times=3)
    assert figures(cluster) == (14, 14, 0)
    cluster.events()
    cluster.writes()
    return cluster


def figures(cluster: Cluster) -> tuple[int, int, int]:
    """Return the pool's units, those that are available, and those that it lacks."""
    state = cluster.allocation_state.index.state(WHOLE)
    capacity = state.capacity()
    return capacity.total, capacity.available, sum(state.differing.values())


async def condition(cluster: Cluster, type_: str) -> dict[str, Any]:
    await cluster.reconcile_pool()
    await cluster.observe()
    conditions = (await cluster.status_of())["conditions"]
    return next(item for item in conditions if item["type"] == type_)


async def confirm(cluster: Cluster, generation: object) -> None:
    annotations = {CONFIRM_ANNOTATION: str(generation)}
    await cluster.client.merge_patch(
        GPU_POOLS, {"metadata": {"annotations": annotations}}, name="whole"
    )
    await cluster.observe()
    await run_pass(cluster, times=2)


async def fight(cluster: Cluster) -> None:
    """A user takes an instance of a device three times, and three times its agent makes it again."""
    for _ in range(3):
        for count in (6, 7):
            await cut(cluster, FIRST, *[PROFILE] * count)
            await run_pass(cluster)
        cluster.time.seconds += 60
    await run_pass(cluster)


async def test_a_device_that_differs_is_withheld_and_its_missing_units_are_counted(parts: Cluster):
    await cut(parts, FIRST, *[PROFILE] * 4)
    assert figures(parts) == (11, 7, 3)
    ready = await condition(parts, "Ready")
    assert ready["message"].endswith(
        "3 units missing: the MIG instances of 1 device differ from the allocation (n1-0)"
    )
    assert (await parts.status_of())["capacity"]["missing"] == 3
    await cut(parts, FIRST, *[PROFILE] * 7)
    assert figures(parts) == (14, 14, 0)


async def test_a_foreign_instance_beside_all_of_the_pools_own_withholds_the_device(parts: Cluster):
    await cut(parts, FIRST, *[PROFILE] * 7, "1g.10gb+me")
    assert figures(parts) == (14, 7, 0)


async def test_a_whole_device_that_somebody_partitions_is_missing(cluster: Cluster):
    await until_stable(cluster)
    await cut(cluster, FIRST, *[PROFILE] * 7)
    assert figures(cluster) == (1, 1, 1)


async def test_devices_that_differ_for_long_stop_the_pool_until_that_is_confirmed(parts: Cluster):
    await cut(parts, FIRST, "3g.40gb", "3g.40gb")
    await cut(parts, SECOND, *[PROFILE] * 4)
    assert await run_pass(parts) is not None
    assert (await maintenance(parts))["status"] == "False"
    parts.time.seconds += 301
    await run_pass(parts)
    found = await maintenance(parts)
    assert (found["status"], found["reason"]) == ("True", "LayoutDiffers")
    generation = (await pool(parts))["metadata"]["generation"]
    text = (
        "2 of 2 devices were partitioned by others (n1-0, n1-1); once nobody else partitions them:"
        f" kubectl annotate --overwrite gpupool whole gpu.deckhouse.io/confirm={generation}"
    )
    assert found["message"] == text
    facts = parts.allocation_state.index.state(WHOLE).facts
    assert facts is not None
    assert facts.drift == text
    misconfigured = await condition(parts, "Misconfigured")
    assert (misconfigured["status"], misconfigured["reason"]) == ("True", "LayoutDiffers")
    assert (await parts.status_of())["phase"] == "Maintenance"
    reasons = [reason for reason, _ in parts.events()]
    assert {"Maintenance", "Misconfigured"} <= set(reasons)

    for device in (FIRST, SECOND):
        await cut(parts, device, *[PROFILE] * 7)
    parts.time.seconds += 3600
    await run_pass(parts, times=2)
    assert (await maintenance(parts))["message"] == text
    assert figures(parts) == (14, 0, 0)  # nobody has confirmed

    await confirm(parts, generation)
    assert (await maintenance(parts))["status"] == "False"
    assert figures(parts) == (14, 14, 0)
    assert CONFIRM_ANNOTATION not in (await pool(parts))["metadata"].get("annotations", {})
    assert (await condition(parts, "Misconfigured"))["status"] == "False"


@pytest.mark.parametrize("value", [1, "yes", ""])
async def test_what_is_not_the_generation_confirms_nothing_and_is_named(
    parts: Cluster, value: object
):
    await fight(parts)
    await confirm(parts, value)
    found = await maintenance(parts)
    assert found["status"] == "True"
    assert found["message"].endswith(
        f"({value} is not the pool's generation, and confirms nothing)"
    )
    await confirm(parts, (await pool(parts))["metadata"]["generation"])
    assert (await maintenance(parts))["status"] == "False"


async def test_a_device_that_is_partitioned_again_and_again_stops_the_pool(parts: Cluster):
    await fight(parts)
    found = await maintenance(parts)
    assert (found["status"], found["reason"]) == ("True", "LayoutDiffers")
    assert found["message"].startswith("another program keeps partitioning n1-0; ")
    generation = (await pool(parts))["metadata"]["generation"]
    await confirm(parts, generation)
    assert (await maintenance(parts))["status"] == "False"
    await cut(parts, FIRST, *[PROFILE] * 6)
    await run_pass(parts)
    assert (await maintenance(parts))["status"] == "False"  # the count begins again


async def test_a_process_that_takes_over_keeps_the_pool_stopped(parts: Cluster):
    await fight(parts)
    text = (await maintenance(parts))["message"]
    parts.__post_init__()
    await parts.observe()
    parts.writes()
    await run_pass(parts, times=2)
    assert (await maintenance(parts))["message"] == text
    assert parts.writes() == []


async def test_a_confirmation_of_nothing_goes(parts: Cluster):
    """It would confirm whatever comes next."""
    generation = (await pool(parts))["metadata"]["generation"]
    await confirm(parts, generation)
    assert CONFIRM_ANNOTATION not in (await pool(parts))["metadata"].get("annotations", {})


async def test_devices_that_are_partitioned_for_the_first_time_stop_nothing(cluster: Cluster):
    await until_stable(cluster)
    for device in (FIRST, SECOND):
        await cut(cluster, device, "3g.40gb")
    await change(cluster, allocation={"mode": "MIG", "migProfile": PROFILE})
    await run_pass(cluster, times=3)
    cluster.time.seconds += 4000
    await run_pass(cluster, times=2)
    assert (await maintenance(cluster))["reason"] == "Rebuilding"
