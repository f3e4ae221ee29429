"""`driver.upgrade`: a new driver reaches the nodes, as they and their pods experience it."""

import asyncio
from typing import Any

import pytest

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from api.names import ADOPTED_ANNOTATION, DRIVER_OWNER_LABEL, NodeName
from kube.errors import KubeError
from kube.resources import DAEMON_SETS, NODES, PODS
from reconciler.driver_upgrade.reader import UpgradeReader
from tests.component.reconciler.upgrade_run import an_upgrade_run
from tests.component.reconciler.upgraded_nodes import NAMESPACE, STEP_S, TEAM

pytestmark = pytest.mark.looptime


async def test_six_nodes_get_a_new_driver_and_never_more_than_two_are_away():
    async with an_upgrade_run(6, maxUnavailable=2) as run:
        for number in range(6):
            await run.add_pod(f"n{number}")
        await run.roll_out(2)
        await run.until("upgrade-done", steps=5)  # nothing is decided yet
        await run.step()
        await run.until("upgrade-done")
        assert set((await run.driver_revisions()).values()) == {"r2"}
        assert run.observer.most_away == 2
        for number in range(6):
            assert await run.marks(f"n{number}") == set()
        assert await run.pods(TEAM) == []
        assert run.reports.entries() == ()


async def test_devices_are_withheld_first_and_the_agent_leaves_before_the_driver_goes():
    async with an_upgrade_run(1) as run:
        await run.roll_out(2)
        await run.step()
        await run.until("upgrade-done")
        seen = run.observer.order["n0"]
        assert seen.index("withheld") < seen.index("cordon-required") < seen.index("cordoned")
        assert [item for item in seen if item.endswith("required")] == [
            "upgrade-required",
            "cordon-required",
            "wait-for-jobs-required",
            "pod-deletion-required",
            "pod-restart-required",
            "validation-required",
            "uncordon-required",
        ]
        names = sorted(pod["metadata"]["name"].partition("-")[0] for pod in await run.pods())
        await run.tick()
        await run.tick()
        names = sorted(pod["metadata"]["name"].partition("-")[0] for pod in await run.pods())
        assert names == ["agent", "driver", "validator"]
        assert AGENT_DEPLOY_LABEL not in (await run.node("n0"))["metadata"]["labels"]


async def test_nothing_is_written_while_nothing_changes():
    async with an_upgrade_run(3) as run:
        run.writes()
        for _ in range(5):
            await run.run_pass()
        assert run.writes() == 0
        assert run.recorder.taken() == []


async def test_a_wall_clock_that_is_set_back_puts_no_deadline_off():
    async with an_upgrade_run(1, podDeletion={"timeoutSeconds": 60}) as run:
        run.clock.wall_offset_s = 3600
        run.lead()
        await run.run_pass()
        run.clock.wall_offset_s = 0
        await run.add_pod("n0")
        await run.add_budget(allowed=0)
        await run.roll_out(2)
        await run.until("pod-deletion-required")
        await run.until("upgrade-failed", steps=15)


async def test_two_pods_of_one_budget_leave_one_after_the_other():
    """Both may leave, as far as the budget was read: the API server lets one go, and its answer is no failure."""
    async with an_upgrade_run(1, podDeletion={"timeoutSeconds": 0}) as run:
        await run.add_pod("n0")
        await run.add_pod("n0")
        await run.add_budget(allowed=1)
        await run.roll_out(2)
        await run.step()
        await run.until("pod-deletion-required", node="n0")
        await run.run_pass()
        pods = await run.pods(TEAM)
        leaving = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        assert (len(pods), len(leaving)) == (2, 1)
        await run.step()
        assert [entry.reason for entry in run.reports.entries()] == ["EvictionRefused"]
        await run.allow(1)
        await run.until("upgrade-done")


async def test_a_node_that_failed_takes_no_slot_and_recovers():
    async with an_upgrade_run(4, maxParallelUpgrades=1, maxUnavailable="50%") as run:
        run.broken.add("n0")
        await run.roll_out(2)
        await run.step()
        await run.until("upgrade-done", "upgrade-failed")
        states = await run.states()
        assert states == {"n0": "upgrade-failed"} | dict.fromkeys(
            ("n1", "n2", "n3"), "upgrade-done"
        )
        (entry,) = run.reports.entries()
        assert entry.reason == "DriverCrashes"
        assert "no module for this kernel" in entry.message
        warnings = [item for item in run.recorder.taken() if item.type == "Warning"]
        assert [warning.reason for warning in warnings] == ["GPUDriverUpgradeFailed"]
        assert run.observer.most_away == 2
        run.broken.clear()
        await run.until("upgrade-done")
        assert await run.marks("n0") == set()


@pytest.mark.parametrize(
    "state",
    [
        "upgrade-required",
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
        "upgrade-failed",
    ],
)
async def test_a_node_that_is_deleted_in_the_middle_holds_no_other_up(state: str):
    async with an_upgrade_run(2, maxParallelUpgrades=1, maxUnavailable="100%") as run:
        if state == "upgrade-failed":
            run.broken.add("n0")
        await run.roll_out(2)
        await run.step()
        await run.until(state, node="n0")
        await run.client.delete(NODES, "n0")
        await run.until("upgrade-done")
        assert await run.driver_revisions() == {"n1": "r2"}
        assert run.reports.entries() == ()


async def test_a_node_that_is_cordoned_again_while_it_is_upgraded_stays_cordoned():
    async with an_upgrade_run(1) as run:
        await run.roll_out(2)
        await run.step()
        await run.until("pod-restart-required", node="n0")
        await run.cordon("n0", is_cordoned=False)
        await run.cordon("n0")
        await run.until("upgrade-done")
        assert await run.marks("n0") == {"cordoned"}


@pytest.mark.parametrize("state", ["cordon-required", "pod-restart-required", "uncordon-required"])
async def test_without_auto_upgrade_nodes_are_given_back_and_labels_go(state: str):
    async with an_upgrade_run(2, maxUnavailable="100%") as run:
        await run.roll_out(2)
        await run.step()
        await run.until(state, node="n0")
        run.policy(autoUpgrade=False)
        for _ in range(8):
            await run.step()
        assert await run.states() == {"n0": "", "n1": ""}
        assert await run.marks("n0") == await run.marks("n1") == set()
        annotations = (await run.node("n0"))["metadata"].get("annotations") or {}
        assert [key for key in annotations if "upgrade" in key or "withheld" in key] == []
        run.writes()
        await run.run_pass()
        assert run.writes() == 0


async def test_an_upgrade_that_is_requested_replaces_a_driver_that_is_up_to_date():
    async with an_upgrade_run(1) as run:
        before = [pod["metadata"]["uid"] for pod in await run.pods(NAMESPACE)]
        patch = {"metadata": {"annotations": {UPGRADE_REQUESTED_ANNOTATION: "true"}}}
        await run.client.merge_patch(NODES, patch, name="n0")
        await run.step()
        await run.until("upgrade-done")
        await run.tick()
        after = [pod["metadata"]["uid"] for pod in await run.pods(NAMESPACE)]
        assert not set(before) & set(after)


async def test_where_only_the_driver_pod_changes_it_restarts_and_pods_stay():
    """The validator has passed with the driver pod before, so it checks again."""
    async with an_upgrade_run(1) as run:
        pod = await run.add_pod("n0")
        before = {item["metadata"]["name"] for item in await run.pods(NAMESPACE)}
        await run.roll_out(2, digest="d1")
        await run.step()
        await run.until("upgrade-done")
        assert await run.driver_revisions() == {"n0": "r2"}
        assert [item["metadata"]["name"] for item in await run.pods(TEAM)] == [pod]
        stayed = before & {item["metadata"]["name"] for item in await run.pods(NAMESPACE)}
        assert [item.partition("-")[0] for item in stayed] == ["agent"]
        assert await run.marks("n0") == set()


async def test_nodes_without_users_of_the_driver_go_first():
    async with an_upgrade_run(3, maxParallelUpgrades=1, maxUnavailable=1) as run:
        await run.add_pod("n0")
        await run.add_pod("n1")
        await run.roll_out(2)
        await run.step()
        await run.until("upgrade-done", node="n2")
        assert sorted((await run.driver_revisions()).items()) == [
            ("n0", "r1"),
            ("n1", "r1"),
            ("n2", "r2"),
        ]
        await run.until("upgrade-done")
        assert run.observer.most_away == 1


async def test_a_pod_with_a_claim_of_a_device_leaves_too():
    async with an_upgrade_run(1) as run:
        await run.serve_claims()
        pod = await run.add_claiming_pod("n0", driver="gpu.nvidia.com")
        other = await run.add_claiming_pod("n0", driver="nic.example.com")
        await run.roll_out(2, digest="d1")
        patch = {"metadata": {"annotations": {UPGRADE_REQUESTED_ANNOTATION: "true"}}}
        await run.client.merge_patch(NODES, patch, name="n0")
        await run.step()
        await run.until("upgrade-done")
        left = [item["metadata"]["name"] for item in await run.pods(TEAM)]
        assert (pod in left, left) == (False, [other])


async def test_pods_of_named_pools_end_by_themselves():
    annotations = {"gpu.deckhouse.io/wait-for-pools": "whole"}
    async with an_upgrade_run(1, annotations=annotations) as run:
        pod = await run.add_pod("n0")
        await run.roll_out(2)
        await run.step()
        await run.until("wait-for-jobs-required", node="n0")
        for _ in range(100):
            await run.step()
        (entry,) = run.reports.entries()
        assert (entry.state, entry.reason) == ("wait-for-jobs-required", "WaitingForPodsToEnd")
        await run.client.delete(PODS, pod, namespace=TEAM)
        await run.until("upgrade-done")


async def test_a_policy_that_names_a_pool_that_is_not_there_starts_no_node():
    async with an_upgrade_run(1, annotations={"gpu.deckhouse.io/wait-for-pools": "hole"}) as run:
        await run.roll_out(2)
        for _ in range(5):
            await run.step()
        (entry,) = run.reports.entries()
        assert entry.reason == "UpgradePolicyRefused"
        assert "there is no GPUPool hole: create it, or take its name out" in entry.message


async def test_each_driver_has_its_own_numbers_and_entries():
    async with an_upgrade_run(0) as run:
        run.policy()
        policy: Any = run.objects.policies["policy"]
        run.objects.policy_store.discard(policy)
        spec = {"driver": {"useNvidiaDriverCRD": True}}
        run.put_policy(spec)
        run.driver("a", maxUnavailable=1)
        run.driver("b", autoUpgrade=False)
        for name, owner in (("n0", "a"), ("n1", "a"), ("n2", "b")):
            await run.add_node(name, **{DRIVER_OWNER_LABEL: owner})
        for _ in range(3):
            await run.step()
        await run.roll_out(2)
        for _ in range(3):
            await run.step()
        assert {entry.node for entry in run.reports.entries("a")} == {"n0", "n1"}
        assert run.reports.entries("b") == run.reports.entries() == ()
        assert (run.reports.counts["a"].managed, run.reports.counts["a"].in_progress) == (2, 1)
        await run.until("upgrade-done", "")
        assert await run.states() == {"n0": "upgrade-done", "n1": "upgrade-done", "n2": ""}
        assert (await run.driver_revisions())["n2"] == "r1"


@pytest.mark.parametrize("path", ["daemonsets", "controllerrevisions", "pods", "nodes"])
async def test_a_read_that_fails_ends_the_pass_and_nothing_is_written(path: str):
    async with an_upgrade_run(2) as run:
        await run.roll_out(2)
        run.api.faults.fail("GET", f"{path}$", 500)
        run.writes()
        with pytest.raises(KubeError):
            await run.run_pass()
        assert run.writes() == 0
        run.api.faults.clear()
        await run.step()
        await run.until("upgrade-done")


async def test_passes_rest_in_proportion_to_what_they_read_and_not_to_what_they_write():
    async with an_upgrade_run(2) as run:
        await run.roll_out(2)
        run.api.faults.delay("GET", "controllerrevisions$", 0.5)
        run.api.faults.delay("PATCH", "nodes/n0$", 1.5)
        await run.run_pass()
        run.api.requests.clear()
        assert await run.run_pass() == pytest.approx(0.5)
        assert not list(run.api.requests)
        await asyncio.sleep(0.5)
        assert await run.run_pass() == STEP_S
        assert list(run.api.requests)


async def test_a_node_that_cannot_be_written_holds_no_other_up():
    async with an_upgrade_run(3, maxUnavailable="100%") as run:
        run.api.faults.fail("PATCH", "nodes/n0$", 403, times=10**6)
        await run.roll_out(2)
        await run.step()
        await run.until("upgrade-done", node="n2")
        await run.until("upgrade-done", node="n1")
        assert (await run.driver_revisions())["n0"] == "r1"
        for _ in range(60):
            await run.step()
        tried = [write for write in run.api.requests.writes() if write.path.endswith("nodes/n0")]
        assert len(tried) < 20
        run.api.faults.clear()
        await run.until("upgrade-required", node="n0")
        await run.until("upgrade-done")
        assert set((await run.driver_revisions()).values()) == {"r2"}


async def test_a_state_that_was_written_by_hand_is_taken_as_it_is():
    async with an_upgrade_run(1) as run:
        for state in ("pod-restart-required", "upgrade-failed", "nonsense"):
            patch = {"metadata": {"labels": {UPGRADE_STATE_LABEL: state}}}
            await run.client.merge_patch(NODES, patch, name="n0")
            await run.step()
            await run.until("upgrade-done")
            assert await run.marks("n0") == set()


async def test_pods_of_a_daemon_set_that_was_taken_over_are_known():
    """They go with the driver where no deploy label sends them away."""
    labels = {"app": "nvidia-node-status-exporter"}
    pod = {"containers": [{"name": "c", "image": "status"}]}
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "nvidia-node-status-exporter",
            "namespace": NAMESPACE,
            "annotations": {ADOPTED_ANNOTATION: "digest"},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    async with an_upgrade_run(1) as run:
        written = await run.client.create(DAEMON_SETS, body)
        uid = written.decode(dict[str, Any])["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": uid}
        meta = {
            "name": "status",
            "namespace": NAMESPACE,
            "ownerReferences": [owner | {"controller": True}],
        }
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": pod | {"nodeName": "n0"},
        }
        await run.client.create(PODS, made)
        reader = UpgradeReader(run.client, NAMESPACE, pool_taints=lambda _node: ())
        await reader.cluster()
        found = await reader.pods([NodeName("n0")], lambda _uid: None)
        assert {pod.name for pod in found[NodeName("n0")] if pod.is_held} == {"status"}
