"""Findings, each with its cure."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from console.data.read_scope import ReadScope
from console.data.tables.health_rows import control_plane_health
from console.rows import HealthRow, RowHealth
from console.visibility import Visibility
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pool_object,
    two_nodes,
)
from tests.support.console_feed import NOW, ConsoleFeed
from tests.support.console_worlds import condition
from tests.support.plugin_cluster import labelled

NO_NAMESPACES = Visibility(namespaces=frozenset(), nodes=True)


def a_lease(
    *, holder: str | None = "replica-1", ago_s: float = 1, name: str = "gpu-control-plane"
) -> Object:
    renewed = NOW - dt.timedelta(seconds=ago_s)
    return {
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "gpu-system"},
        "spec": {"holderIdentity": holder, "renewTime": renewed.isoformat()},
    }


def found(feed: ConsoleFeed, subject: str) -> HealthRow | None:
    feed.flush()
    row: HealthRow | None = feed.section("health").get(subject)
    return row


def a_node(ready: str = "True", **spec: Any) -> Object:
    node = a_node_object("n1", **spec)
    node["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    return node


def an_inventory(*conditions: dict[str, Any]) -> Object:
    status = {"conditions": list(conditions)}
    return {"kind": "GPUNodeInventory", "metadata": {"name": "n1"}, "status": status}


def test_a_leader_that_renews_its_lease_is_good():
    feed = ConsoleFeed([a_lease()])
    assert found(feed, "leader") == HealthRow(state=RowHealth.GOOD, text="replica-1 leads")


@pytest.mark.parametrize("lease", [None, a_lease(holder=None)])
def test_nobody_leads(lease: Object | None):
    row = found(ConsoleFeed([lease] if lease else []), "leader")
    assert row == HealthRow(
        state=RowHealth.BAD,
        text="no replica leads",
        cure="kubectl -n gpu-system logs deployment/gpu-control-plane",
    )


def test_a_leader_that_stops_renewing_is_bad_as_time_passes():
    feed = ConsoleFeed([a_lease(), a_lease(name="gpu-scheduler")])
    assert found(feed, "kube-scheduler") is None
    feed.clock.passed_s += 60
    leader, scheduler = found(feed, "leader"), found(feed, "kube-scheduler")
    assert leader is not None
    assert leader.text.startswith("replica-1 has not renewed it since 2026-11-23T22:59:59")
    assert scheduler is not None
    assert scheduler.cure == "kubectl -n gpu-system logs deployment/gpu-scheduler"


def test_a_lease_that_may_not_be_read_says_nothing():
    scope = ReadScope(all_pods=True, nodes=True, inventories=True)
    assert found(ConsoleFeed(scope=scope), "leader") is None


def test_objects_that_cannot_be_decoded_are_told_until_they_can():
    feed = ConsoleFeed([a_lease()])
    feed.rows.step((), {"pods": 2})
    row = found_now(feed, "unreadable pods")
    assert row is not None
    assert row.text == ("2 pods cannot be decoded and are left out, or shown as they were before")
    feed.rows.step()
    assert found_now(feed, "unreadable pods") is None


def test_a_watch_that_is_interrupted_is_told_and_ends():
    feed = ConsoleFeed([a_lease()])
    feed.rows.step(["gpudevices"])
    row = found_now(feed, "watch of gpudevices")
    assert row is not None
    assert row.text == "gpudevices are not watched at the moment: what is shown of them may be old"
    assert dict(control_plane_health(feed.state, [], {})).keys() == {"leader"}
    feed.rows.step()
    assert found_now(feed, "watch of gpudevices") is None


def found_now(feed: ConsoleFeed, subject: str) -> HealthRow | None:
    row: HealthRow | None = feed.section("health").get(subject)
    return row


@pytest.mark.parametrize(
    ("node", "state", "text", "cure"),
    [
        (a_node("False"), "bad", "not ready: no pod gets its 1 device", "kubectl describe node n1"),
        (None, "bad", "there is no such Node: no pod gets its 1 device", "kubectl get node n1"),
        (
            a_node(unschedulable=True),
            "warning",
            "cordoned: no further pod gets its 1 device",
            "kubectl uncordon n1",
        ),
    ],
)
def test_a_node_that_takes_no_pods_is_a_finding(
    node: Object | None, state: str, text: str, cure: str
):
    feed = ConsoleFeed([a_device_object("n1", 0), *([node] if node is not None else [])])
    row = found(feed, "Node n1")
    assert row is not None
    assert (row.state.value, row.text, row.cure) == (state, text, cure)
    feed.put(a_node_object("n1"))
    assert found(feed, "Node n1") is None


def test_a_node_without_a_device_is_none():
    assert found(ConsoleFeed([a_node("False")]), "Node n1") is None


def test_a_pod_on_unknown_devices_closes_its_node_until_it_ends():
    pod = labelled(a_bound_pod_object("a", "n1", [0]), pool="whole")
    del pod["metadata"]["annotations"]
    feed = ConsoleFeed([*two_nodes(), pod])
    row = found(feed, "Node n1")
    assert row is not None
    assert row.text == (
        "a pod runs on unknown devices: the node takes no further pod of pool whole"
    )
    assert row.state is RowHealth.BAD
    feed.remove(pod)
    assert found(feed, "Node n1") is None


def test_a_pool_at_fault_is_a_finding():
    pool = a_pool_object()
    pool["status"] = {"conditions": [condition("Misconfigured", "True", "no such profile")]}
    feed = ConsoleFeed([pool])
    assert found(feed, "GPUPool whole") == HealthRow(
        state=RowHealth.BAD,
        text="Misconfigured is True: Because: no such profile",
        cure="kubectl describe gpupool whole",
    )
    pool["status"] = {"conditions": [condition("Ready", "True")]}
    feed.put(pool)
    assert found(feed, "GPUPool whole") is None
    feed.remove(pool)
    assert found(feed, "GPUPool whole") is None


def test_a_device_at_fault_is_a_finding_until_it_is_well_or_gone():
    device = a_device_object("n1", 0, conditions=[condition("Healthy", "False", "XID 79")])
    feed = ConsoleFeed([a_node_object("n1"), device])
    row = found(feed, "GPUDevice n1-0")
    assert row is not None
    assert row.text == "faulted, no pod gets it: Because: XID 79"
    stale = a_device_object("n1", 0, conditions=[condition("Stale", "True", "silent")])
    feed.put(stale)
    row = found(feed, "GPUDevice n1-0")
    assert row is not None
    assert (row.state, row.text) == (RowHealth.WARNING, "its facts are old: silent")
    stale["status"]["managed"] = False
    feed.put(stale)
    assert found(feed, "GPUDevice n1-0") is None, "its node opts out, and has no node agent"
    feed.put(a_device_object("n1", 0))
    assert found(feed, "GPUDevice n1-0") is None
    feed.put(device)
    feed.remove(device)
    assert found(feed, "GPUDevice n1-0") is None


def test_an_agent_that_works_with_restrictions_is_a_finding():
    inventory = an_inventory(condition("AgentDegraded", "True", "processes of pod x are left"))
    feed = ConsoleFeed([inventory])
    row = found(feed, "GPUNodeInventory n1")
    assert row == HealthRow(
        state=RowHealth.WARNING,
        text="AgentDegraded is True: Because: processes of pod x are left",
        cure="kubectl describe gni n1",
    )
    seen = feed.section("health", NO_NAMESPACES)["GPUNodeInventory n1"]
    assert seen.text == "AgentDegraded is True: Because"
    feed.put(an_inventory(condition("AgentDegraded", "False")))
    assert found(feed, "GPUNodeInventory n1") is None


def test_an_agent_that_has_not_reported_is_a_finding_for_everybody():
    feed = ConsoleFeed([an_inventory()])
    row = found(feed, "GPUNodeInventory n1")
    assert row is not None
    assert row.text == "no node agent has reported it: its devices are not watched"
    assert feed.section("health", NO_NAMESPACES)["GPUNodeInventory n1"] == row
    feed.remove(an_inventory())
    assert found(feed, "GPUNodeInventory n1") is None


def an_inventory_of(candidates: dict[str, list[str]]) -> Object:
    listed = [{"pool": pool, "devices": devices} for pool, devices in candidates.items()]
    status = {"pools": {"candidates": listed}}
    return {"kind": "GPUNodeInventory", "metadata": {"name": "n1"}, "status": status}


def test_a_device_that_waits_for_a_decision_names_the_pools_that_it_may_join():
    text = condition("Assigned", "False", "selected by a and b") | {"reason": "AwaitsDecision"}
    waiting = a_device_object("n1", 0, poolRef=None, conditions=[text])
    feed = ConsoleFeed([a_node(), waiting, a_device_object("n1", 1)])
    row = HealthRow(
        state=RowHealth.WARNING, text="selected by a and b", cure="kubectl gpu approve n1-0"
    )
    assert found(feed, "GPUDevice n1-0") == row
    feed.put(an_inventory_of({"a": ["n1-0", "n1-1"], "b": ["n1-0"]}))
    assert found(feed, "GPUDevice n1-0") == msgspec.structs.replace(row, pools=("a", "b"))
    assert found(feed, "GPUDevice n1-1") is None
    feed.put(an_inventory_of({"b": ["n1-0"]}))
    assert found(feed, "GPUDevice n1-0") == msgspec.structs.replace(row, pools=("b",))
