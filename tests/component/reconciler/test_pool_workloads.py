"""What runs for a pool follows its devices, and is written only when it differs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import POOL_LABEL, NodeName, PoolName
from api.nodefiles.poolconfig import ConfiguredDevice
from kube.errors import ServerError
from kube.resources import CONFIG_MAPS, DAEMON_SETS, GPU_DEVICES, GPU_POOLS, NODES
from manifests.node.device_plugin import PluginKind, PluginMode, WorkloadSettings
from reconciler.pool.workloads import SEEN_WITHIN_S, naming_workloads
from reconciler.sinks.live_workloads import ALL_POOLS
from tests.component.reconciler.workloads import (
    CONFIG_PATH,
    NAMESPACE,
    PLUGIN_PATH,
    WHOLE,
    Workloads,
    a_cluster_with_workloads,
)

NAME = "gpu-device-plugin-whole"
BOTH = [("PATCH", f"{CONFIG_PATH}/{NAME}"), ("PATCH", f"{PLUGIN_PATH}/{NAME}")]


@pytest.fixture
async def workloads() -> AsyncIterator[Workloads]:
    async with a_cluster_with_workloads() as found:
        yield found


async def test_a_pool_with_devices_gets_their_list_and_a_plugin(workloads: Workloads):
    assert await workloads.until_stable() == BOTH
    config = await workloads.config()
    assert config.nodes == {
        "n1": [ConfiguredDevice(uuid="GPU-n1-0"), ConfiguredDevice(uuid="GPU-n1-1")]
    }
    plugin = await workloads.plugin()
    assert plugin["metadata"]["labels"][POOL_LABEL] == "whole"
    (owner,) = plugin["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("GPUPool", "whole", True)


async def test_a_second_reconcile_writes_nothing(workloads: Workloads):
    """Lesson 11: what the API server defaulted is no difference, at any later look."""
    await workloads.until_stable()
    plugin = await workloads.plugin()
    assert plugin["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst", "it was defaulted"
    for _ in range(3):
        assert await workloads.until_stable() == []
    assert await workloads.controller.reconcile(WHOLE) is None


async def test_a_write_that_the_watch_has_not_shown_is_not_repeated(workloads: Workloads):
    assert await workloads.controller.reconcile(WHOLE) == SEEN_WITHIN_S
    assert workloads.cluster.writes() == BOTH
    assert await workloads.controller.reconcile(WHOLE) == SEEN_WITHIN_S
    assert workloads.cluster.writes() == []


async def test_a_write_that_was_undone_unseen_is_repeated(workloads: Workloads):
    await workloads.controller.reconcile(WHOLE)
    await workloads.cluster.client.delete(DAEMON_SETS, NAME, namespace=NAMESPACE)
    assert await workloads.until_stable() == []
    workloads.cluster.time.seconds += SEEN_WITHIN_S
    assert await workloads.until_stable() == BOTH[1:]


async def test_a_write_that_failed_is_tried_again(workloads: Workloads):
    workloads.cluster.api.faults.fail("PATCH", "configmaps", 500)
    with pytest.raises(ServerError):
        await workloads.controller.reconcile(WHOLE)
    workloads.cluster.writes()
    assert await workloads.until_stable() == BOTH


async def test_a_new_device_changes_the_list_and_never_the_template(workloads: Workloads):
    await workloads.until_stable()
    before = await workloads.plugin()
    workloads.reported.clear()
    await workloads.cluster.add_device("n1-2")
    assert await workloads.until_stable() == BOTH[:1]
    assert workloads.reported == [WHOLE]
    after = await workloads.plugin()
    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    devices = (await workloads.config()).nodes["n1"]
    assert [device.uuid for device in devices] == ["GPU-n1-0", "GPU-n1-1", "GPU-n1-2"]


async def test_units_that_come_and_go_tell_nobody(workloads: Workloads):
    await workloads.until_stable()
    workloads.reported.clear()
    await workloads.cluster.report(
        "n1-0", state="Reserved", units={"capacity": 1, "reserved": 1, "allocated": 0}
    )
    assert await workloads.until_stable() == []
    assert workloads.reported == []


async def test_a_device_that_is_faulted_or_leaves_is_withheld(workloads: Workloads):
    healthy = {"reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": "Healthy", "status": "False", **healthy}]
    await workloads.cluster.report("n1-0", conditions=conditions)
    await workloads.until_stable()
    assert [device.is_withheld for device in (await workloads.config()).nodes["n1"]] == [
        True,
        False,
    ]


async def test_no_taint_of_a_node_or_of_the_pool_changes_anything(workloads: Workloads):
    """Lesson 4: a template that follows taints restarts the pods of all nodes with each of them."""
    await workloads.until_stable()
    taint = {"key": "maintenance", "effect": "NoExecute"}
    await workloads.cluster.client.merge_patch(NODES, {"spec": {"taints": [taint]}}, name="n1")
    scheduling = {"spec": {"scheduling": {"taints": [taint]}}}
    await workloads.cluster.client.merge_patch(GPU_POOLS, scheduling, name="whole")
    assert await workloads.until_stable() == []
    assert (await workloads.plugin())["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resource", "patch", "expected"),
    [
        pytest.param(CONFIG_MAPS, {"data": {"config.json": "{}"}}, BOTH[:1], id="the list"),
        pytest.param(
            DAEMON_SETS,
            {"spec": {"template": {"spec": {"priorityClassName": "low"}}}},
            BOTH[1:],
            id="the template",
        ),
        pytest.param(
            DAEMON_SETS,
            {"metadata": {"annotations": {"gpu.deckhouse.io/config-hash": "older"}}},
            BOTH[1:],
            id="the digest",
        ),
    ],
)
async def test_what_somebody_else_changed_of_ours_is_put_back(
    workloads: Workloads, resource: Any, patch: Any, expected: Any
):
    await workloads.until_stable()
    await workloads.cluster.client.merge_patch(resource, patch, name=NAME, namespace=NAMESPACE)
    assert await workloads.until_stable() == expected
    assert await workloads.until_stable() == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"metadata": {"labels": {"team": "ml"}}}, id="a label"),
        pytest.param(
            {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}},
            id="a field that we do not set",
        ),
        pytest.param(
            {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "i"}]}}}},
            id="a container",
        ),
    ],
)
async def test_what_somebody_else_added_stays(workloads: Workloads, body: Any):
    await workloads.until_stable()
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", **body}
    body["metadata"] = {"name": NAME, "namespace": NAMESPACE, **body.get("metadata", {})}
    await workloads.cluster.client.apply(DAEMON_SETS, body, field_manager="somebody")
    assert await workloads.until_stable() == []
    assert "somebody" in str((await workloads.plugin())["metadata"]["managedFields"])


async def test_a_client_that_fights_for_a_field_is_met_ever_less_often_and_told_once(
    workloads: Workloads,
):
    await workloads.until_stable()
    workloads.recorded.take()
    edit = {"spec": {"template": {"spec": {"priorityClassName": "low"}}}}
    writes = 0
    for _ in range(60):
        await workloads.cluster.client.merge_patch(
            DAEMON_SETS, edit, name=NAME, namespace=NAMESPACE
        )
        writes += len(await workloads.until_stable())
        workloads.cluster.time.seconds += 10
    # At 0, 10, 30, 70, 150 and 310 seconds of ten minutes.
    assert writes == 6
    ((name, reason, note),) = workloads.recorded.take()
    assert (name, reason) == (NAME, "GPUOperandRestored")
    assert "Change the GPUPool or the settings of the server instead" in note


async def test_an_item_that_somebody_added_to_a_list_of_ours_is_taken_out(workloads: Workloads):
    await workloads.until_stable()
    ours = {"operator": "Exists"}
    tolerations = [ours, {"key": "k", "operator": "Exists"}]
    patch = {"spec": {"template": {"spec": {"tolerations": tolerations}}}}
    await workloads.cluster.client.merge_patch(DAEMON_SETS, patch, name=NAME, namespace=NAMESPACE)
    assert await workloads.until_stable() == BOTH[1:]
    spec = (await workloads.plugin())["spec"]["template"]["spec"]
    assert spec["tolerations"] == [ours]


@pytest.mark.parametrize(
    ("type_", "status"),
    [("Supported", "False"), ("Misconfigured", "True")],
)
async def test_a_pool_that_cannot_be_served_has_no_workloads(
    workloads: Workloads, type_: str, status: str
):
    """Lesson 18: an unsupported pool has no workload."""
    await workloads.until_stable()
    conditions = [
        {
            "type": type_,
            "status": status,
            "reason": "r",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    await workloads.cluster.client.merge_patch(
        GPU_POOLS, {"status": {"conditions": conditions}}, name="whole", subresource="status"
    )
    await workloads.until_stable()
    assert await workloads.names() == set()


async def test_a_pool_that_lost_its_last_device_has_no_workloads(workloads: Workloads):
    await workloads.until_stable()
    for device in ("n1-0", "n1-1"):
        await workloads.cluster.client.delete(GPU_DEVICES, device)
    await workloads.until_stable()
    assert await workloads.names() == set()
    assert await workloads.until_stable() == []


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "being deleted"])
async def test_nothing_of_a_deleted_pool_stays(workloads: Workloads, is_gone: bool):
    """Lesson 8: also where the deletion was not seen by this process."""
    await workloads.until_stable()
    if not is_gone:
        patch = {"metadata": {"finalizers": ["gpu.deckhouse.io/pool"]}}
        await workloads.cluster.client.merge_patch(GPU_POOLS, patch, name="whole")
    await workloads.cluster.client.delete(GPU_POOLS, "whole")
    restarted = Workloads(workloads.cluster)
    await restarted.observe()
    assert restarted.config_maps.groups() == {WHOLE}, "a replica reconciles it as it starts"
    await restarted.until_stable()
    assert await restarted.names() == set()


async def test_a_restarted_process_knows_the_devices_before_it_judges(workloads: Workloads):
    await workloads.until_stable()
    restarted = Workloads(workloads.cluster)
    restarted.config_maps = workloads.config_maps
    assert await restarted.controller.reconcile(WHOLE) is not None
    assert {method for method, _ in workloads.cluster.writes()} == {"PATCH"}


async def test_each_pool_has_its_own_devices(workloads: Workloads):
    """Lesson 10: a device of another pool, or of none, is in no other pool's list."""
    await workloads.cluster.add_pool(
        "slices", allocation={"mode": "TimeSlice", "slicesPerDevice": 2}
    )
    await workloads.cluster.add_device("n1-2", pool="slices")
    await workloads.cluster.add_device("n1-3", pool=None)
    await workloads.until_stable()
    await workloads.until_stable(PoolName("slices"))
    whole, slices = await workloads.config(), await workloads.config(PoolName("slices"))
    assert [device.uuid for device in whole.nodes["n1"]] == ["GPU-n1-0", "GPU-n1-1"]
    assert [slices.units_of(device) for device in slices.nodes["n1"]] == [
        ("GPU-n1-2::0", "GPU-n1-2::1")
    ]


async def test_the_list_is_of_the_units_that_are_accounted_for(workloads: Workloads):
    """Lessons 5 and 6: what a MIG pool exports are the instances of each device, as in its capacity."""
    allocation = {"mode": "MIG", "migProfile": "1g.10gb"}
    await workloads.cluster.add_pool("parts", allocation=allocation)
    for number, count in enumerate((3, 1)):
        instances = [
            {"profile": "1g.10gb", "uuid": f"MIG-{number}-{item}"} for item in range(count)
        ] + [{"profile": "2g.20gb", "uuid": f"MIG-{number}-other"}]
        await workloads.cluster.add_device(
            f"n1-{number + 2}", pool="parts", mig={"capable": True, "instances": instances}
        )
    await workloads.until_stable(PoolName("parts"))
    config = await workloads.config(PoolName("parts"))
    exported = {unit for device in config.nodes["n1"] for unit in config.units_of(device)}
    index = workloads.cluster.allocation_state.index
    entries = index.devices_on(PoolName("parts"), NodeName("n1"))
    assert exported == {unit for entry in entries for unit in entry.layout.ids}
    assert len(exported) == index.state(PoolName("parts")).capacity().total == 4


async def test_a_device_that_is_still_partitioned_has_no_units_until_its_agent_made_it_whole(
    workloads: Workloads,
):
    """Its former pool was one of instances, and the agent has not come to it yet."""
    cluster = workloads.cluster
    instances = [{"profile": "3g.40gb", "uuid": f"MIG-{number}"} for number in range(2)]
    await cluster.report("n1-0", mig={"capable": True, "mode": "Enabled", "instances": instances})
    for mig, units in (
        ({"mode": "Enabled", "instances": instances}, ["GPU-n1-1"]),
        ({"mode": "Enabled"}, ["GPU-n1-1"]),
        ({"mode": "Disabled"}, ["GPU-n1-0", "GPU-n1-1"]),
    ):
        await cluster.report("n1-0", mig={"capable": True, "instances": None, **mig})
        await workloads.until_stable()
        config = await workloads.config()
        assert [unit for device in config.nodes["n1"] for unit in config.units_of(device)] == units
        state = cluster.allocation_state.index.state(WHOLE)
        assert state.capacity().total == len(units)


async def test_a_config_map_of_an_earlier_version_goes(workloads: Workloads):
    await workloads.until_stable()
    ours = await workloads.cluster.client.get(
        CONFIG_MAPS, dict[str, Any], NAME, namespace=NAMESPACE
    )
    labels = ours["metadata"]["labels"]
    meta = {"name": "gpu-mig-whole", "namespace": NAMESPACE, "labels": labels}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    await workloads.cluster.client.create(CONFIG_MAPS, body, namespace=NAMESPACE)
    await workloads.until_stable()
    assert await workloads.names() == {f"ConfigMap/{NAME}", f"DaemonSet/{NAME}"}


async def test_another_allocation_changes_the_list_once_it_is_in_effect(workloads: Workloads):
    instances = [{"profile": "1g.10gb", "uuid": "MIG-1"}]
    await workloads.cluster.report("n1-0", mig={"capable": True, "instances": instances})
    await workloads.until_stable()
    client = workloads.cluster.client
    change = {"spec": {"allocation": {"mode": "MIG", "migProfile": "1g.10gb"}}}
    now = {"status": {"allocation": {"mode": "Exclusive", "migProfile": "", "slicesPerDevice": 1}}}
    await client.merge_patch(GPU_POOLS, now, name="whole", subresource="status")
    await client.merge_patch(GPU_POOLS, change, name="whole")
    assert await workloads.until_stable() == []
    now["status"]["allocation"] = {"mode": "MIG", "migProfile": "1g.10gb", "slicesPerDevice": 1}
    await client.merge_patch(GPU_POOLS, now, name="whole", subresource="status")
    assert set(await workloads.until_stable()) >= set(BOTH[:1])
    devices = (await workloads.config()).nodes["n1"]
    assert [device.instances for device in devices] == [["MIG-1"], []]
    assert (await workloads.plugin())["metadata"]["generation"] == 1


async def test_one_agent_serves_all_pools_where_that_is_the_mode(workloads: Workloads):
    await workloads.until_stable()
    per_node = Workloads(
        workloads.cluster,
        WorkloadSettings(image="i", namespace=NAMESPACE, mode=PluginMode.PER_NODE),
    )
    await per_node.until_stable(ALL_POOLS)
    await per_node.until_stable()
    assert await per_node.names() == {
        "DaemonSet/gpu-node-agent",
        "DaemonSet/gpu-node-detector",
    }
    assert await per_node.until_stable() == []
    assert await per_node.until_stable(ALL_POOLS) == []
    back = Workloads(workloads.cluster)
    await back.until_stable(ALL_POOLS)
    await back.until_stable()
    assert await back.names() == {
        f"ConfigMap/{NAME}",
        f"DaemonSet/{NAME}",
        "DaemonSet/gpu-node-agent",
        "DaemonSet/gpu-node-detector",
    }


async def test_a_rollout_of_agents_names_the_dead_nodes_that_it_goes_past(workloads: Workloads):
    cluster = workloads.cluster
    for name, is_ready in (("n2", "True"), ("n3", "Unknown")):
        await cluster.add_node(name, **{"gpu.deckhouse.io/present": "true"})
        body = {"status": {"conditions": [{"type": "Ready", "status": is_ready}]}}
        await cluster.client.merge_patch(NODES, body, name=name, subresource="status")
    await workloads.until_stable(ALL_POOLS)
    assert workloads.recorded.take() == []
    status = {"desiredNumberScheduled": 2, "numberAvailable": 1, "updatedNumberScheduled": 0}
    for _ in range(2):
        await cluster.client.merge_patch(
            DAEMON_SETS,
            {"status": status},
            name="gpu-node-agent",
            namespace=NAMESPACE,
            subresource="status",
        )
        await workloads.until_stable(ALL_POOLS)
    ((name, reason, note),) = workloads.recorded.take()
    assert (name, reason) == ("gpu-node-agent", "GPURolloutPassesDeadNodes")
    assert ": n3. Repair them" in note


async def test_nodes_that_join_write_nothing(workloads: Workloads):
    await workloads.until_stable(ALL_POOLS)
    cluster = workloads.cluster
    for number in range(4):
        await cluster.add_node(f"new-{number}", **{"gpu.deckhouse.io/present": "true"})
        for is_ready in ("False", "True"):
            body = {"status": {"conditions": [{"type": "Ready", "status": is_ready}]}}
            await cluster.client.merge_patch(
                NODES, body, name=f"new-{number}", subresource="status"
            )
            assert await workloads.until_stable(ALL_POOLS) == []


async def test_nvidias_plugin_says_which_pool_it_does_not_serve(workloads: Workloads):
    nvidia = Workloads(
        workloads.cluster,
        WorkloadSettings(image="i", namespace=NAMESPACE, plugin=PluginKind.NVIDIA),
    )
    allocation = {"mode": "MIG", "migProfile": "1g.10gb"}
    await workloads.cluster.add_pool("parts", allocation=allocation)
    await workloads.cluster.add_device("n1-2", pool="parts")
    for _ in range(2):
        await nvidia.until_stable(PoolName("parts"))
    ((name, reason, text),) = nvidia.recorded.take()
    assert (name, reason) == ("parts", "Misconfigured")
    assert "serves no pool of MIG instances" in text
    assert await nvidia.names() == set()


async def test_what_is_left_of_a_pool_is_named(workloads: Workloads):
    await workloads.until_stable()
    named = naming_workloads(workloads.config_maps, workloads.daemon_sets)
    assert named(WHOLE) == [f"ConfigMap {NAME}", f"DaemonSet {NAME}"]
    assert named(PoolName("other")) == []
