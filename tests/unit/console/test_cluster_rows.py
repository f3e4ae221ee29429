"""What rows say of devices, nodes, pools and pods."""

import datetime as dt
import json
from typing import Any

import msgspec
import pytest

from api.kinds.gpupool import Access
from api.names import RESERVATION_ANNOTATION
from console import rows
from console.data.answers.device_details import device_detail
from console.data.answers.pod_details import pod_detail
from console.data.explanations.waits import MAX_REMEDY_NODES
from console.data.read_scope import ReadScope
from console.data.tables.pool_rows import access_text
from console.visibility import Visibility
from tests.support.cache_demands import SHARED, mounting
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
    two_nodes,
    uuid_of,
)
from tests.support.console_feed import NOW, WHOLE, ConsoleFeed
from tests.support.console_worlds import condition
from tests.support.plugin_cluster import CREATED, a_fragmented_cluster, labelled

ONE_NAMESPACE = ReadScope(all_pods=False, namespace="ml-team", nodes=True, inventories=True)


def reserved(name: str, node: str, number: int, *, for_s: float = 60, id_: str = "r1") -> Object:
    pod = labelled(a_pod_object(name, 1), pool="whole")
    note = {
        "id": id_,
        "pool": "whole",
        "node": node,
        "devices": {"main": [uuid_of(node, number)]},
        "expiresAt": (NOW + dt.timedelta(seconds=for_s)).isoformat(),
    }
    pod["metadata"]["annotations"] = {RESERVATION_ANNOTATION: json.dumps(note)}
    return pod


def bound(name: str, node: str, *numbers: int) -> Object:
    return labelled(a_bound_pod_object(name, node, list(numbers)), pool="whole")


def test_a_device_has_its_holders_and_looks_as_they_leave_it():
    feed = ConsoleFeed(two_nodes())
    feed.put(bound("a", "n1", 0))
    feed.put(reserved("b", "n1", 1))
    feed.flush()
    devices = feed.section("devices")
    assert devices["n1-0"] == rows.DeviceRow(
        node="n1",
        address="",
        look="used",
        pool="whole",
        product="NVIDIA-H200",
        units=1,
        used=1,
        holders=("ml-team/a",),
    )
    assert (devices["n1-1"].look, devices["n1-1"].reserved) == ("reserved", 1)
    assert devices["n1-1"].holders == ("ml-team/b",)
    assert (devices["n1-2"].look, devices["n1-2"].holders) == ("free", ())


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"conditions": [condition("Healthy", "False")]}, "faulted"),
        ({"conditions": [condition("Draining", "True")]}, "draining"),
        ({"poolRef": None}, "in no pool"),
    ],
)
def test_what_keeps_pods_away_comes_first(status: dict[str, Any], state: str):
    device = a_device_object("n1", 0, **status)
    device["status"] = {key: item for key, item in device["status"].items() if item is not None}
    feed = ConsoleFeed([a_pool_object(), a_node_object("n1"), device])
    assert feed.section("devices")["n1-0"].look == state


def test_of_two_devices_with_one_uuid_the_younger_is_faulted():
    objects = [a_pool_object(), a_node_object("n1"), a_device_object("n1", 0)]
    twin = a_device_object("n1", 1, uuid=uuid_of("n1", 0))
    twin["metadata"]["creationTimestamp"] = CREATED
    feed = ConsoleFeed([*objects, twin])
    assert [row.look for _, row in sorted(feed.section("devices").items())] == ["free", "faulted"]


def test_a_part_of_a_device_is_used():
    slices = {"mode": "TimeSlice", "slicesPerDevice": 4}
    pod = labelled(a_pod_object("a", 1, nodeName="n1"), pool="whole")
    devices = json.dumps({"main": [f"{uuid_of('n1', 0)}::1"]})
    pod["metadata"]["annotations"] = {"gpu.deckhouse.io/devices": devices}
    pod["status"] = {"phase": "Running"}
    feed = ConsoleFeed(
        [a_pool_object(allocation=slices), a_node_object("n1"), a_device_object("n1", 0), pod]
    )
    row = feed.section("devices")["n1-0"]
    assert (row.look, row.units, row.used) == ("partly used", 4, 1)


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (a_node_object("n1"), rows.NodeRowState.READY),
        (a_node_object("n1", unschedulable=True), rows.NodeRowState.CORDONED),
        (None, rows.NodeRowState.MISSING),
    ],
)
def test_a_node_with_a_device_has_a_row(node: Object | None, state: rows.NodeRowState):
    feed = ConsoleFeed([a_pool_object(), a_device_object("n1", 0), *([node] if node else [])])
    feed.put(a_node_object("n2"))
    feed.flush()
    assert feed.section("nodes") == {
        "n1": rows.NodeRow(state=state, products=("NVIDIA-H200",), pools=("whole",))
    }


def test_a_node_that_is_not_ready_says_so_whether_it_is_cordoned_or_not():
    node = a_node_object("n1", unschedulable=True)
    node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    feed = ConsoleFeed([a_device_object("n1", 0), node])
    assert feed.section("nodes")["n1"].state is rows.NodeRowState.NOT_READY


def test_the_units_of_a_pool_add_up():
    objects = [*two_nodes(), bound("a", "n1", 0, 1), reserved("b", "n2", 0)]
    objects[1] = a_node_object("n1", unschedulable=True)
    objects.append(labelled(a_pod_object("c", 9), pool="whole"))
    row = ConsoleFeed(objects).section("pools")["whole"]
    assert row == rows.PoolRow(
        mode="Exclusive",
        resource="gpu.deckhouse.io/whole",
        strategy="LeastFragmentation",
        phase="Unknown",
        total=8,
        used=2,
        reserved=1,
        free=3,
        withheld=2,
        largest_free=3,
        waiting=1,
        nodes=2,
        fits={1: 3, 2: 1, 4: 0, 8: 0},
    )
    assert row.total == row.used + row.reserved + row.free + row.withheld


def test_a_pool_says_why_it_is_not_ready_and_who_may_use_it():
    pool = a_pool_object(access={"namespaces": ["ml-team"], "groups": ["sre"]})
    pool["status"] = {"phase": "Degraded", "conditions": [condition("Ready", "False", "none")]}
    row = ConsoleFeed([pool]).section("pools")["whole"]
    assert (row.phase, row.why) == ("Degraded", "none")
    assert row.access == "namespaces ml-team; groups sre"


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({}, ""),
        ({"serviceAccounts": ["a/b"]}, "service accounts a/b"),
        ({"namespaceSelector": {}}, "namespaces with labels of any kind"),
        (
            {
                "namespaceSelector": {
                    "matchLabels": {"team": "a"},
                    "matchExpressions": [
                        {"key": "tier", "operator": "In", "values": ["1", "2"]},
                        {"key": "gpu", "operator": "Exists"},
                    ],
                }
            },
            "namespaces with labels gpu Exists, team=a, tier In (1, 2)",
        ),
    ],
)
def test_rules_of_access_are_said_in_words(rules: dict[str, Any], text: str):
    assert access_text(msgspec.convert(rules, Access)) == text


def test_a_reservation_has_a_row_until_it_ends():
    feed = ConsoleFeed(two_nodes())
    feed.put(reserved("b", "n1", 1))
    feed.flush()
    assert feed.section("reservations") == {
        "r1": rows.ReservationRow(
            namespace="ml-team",
            pod="b",
            pool="whole",
            node="n1",
            units=1,
            created=CREATED,
            expires="2026-11-23T23:01:00Z",
        )
    }
    feed.clock.passed_s += 61
    feed.tick()
    assert not feed.section("reservations")
    assert feed.section("ended") == {
        "r1": rows.EndedRow(
            namespace="ml-team",
            pod="b",
            pool="whole",
            node="n1",
            units=1,
            end="expired",
            at="2026-11-23T23:01:01Z",
        )
    }
    assert set(feed.section("waiting")) == {"ml-team/b"}
    feed.clock.passed_s += 3601
    feed.tick()
    assert not feed.section("ended")


def test_a_pod_that_is_bound_ends_its_reservation():
    feed = ConsoleFeed([*two_nodes(), reserved("b", "n1", 1)])
    pod = reserved("b", "n1", 1)
    bound_pod = bound("b", "n1", 1)
    pod["metadata"]["annotations"] |= bound_pod["metadata"]["annotations"]
    pod["spec"]["nodeName"], pod["status"] = "n1", {"phase": "Running"}
    feed.put(pod)
    feed.flush()
    assert feed.section("ended")["r1"].end == "bound"
    assert feed.section("devices")["n1-1"].look == "used"
    assert not feed.section("reservations")


def test_a_pod_that_is_deleted_releases_its_reservation():
    feed = ConsoleFeed([*two_nodes(), reserved("b", "n1", 1)])
    feed.remove(reserved("b", "n1", 1))
    feed.flush()
    assert feed.section("ended")["r1"].end == "released"
    assert feed.section("devices")["n1-1"].look == "free"


def test_the_last_200_of_the_ended_are_kept():
    feed = ConsoleFeed(two_nodes())
    for number in range(205):
        pod = reserved("b", "n1", 1, id_=f"r{number}")
        feed.put(pod)
        feed.remove(pod)
    feed.flush()
    assert set(feed.section("ended")) == {f"r{number}" for number in range(5, 205)}


def test_namespaces_share_pools():
    other = labelled(a_bound_pod_object("a", "n2", [0, 1]), pool="whole", namespace="other")
    other["metadata"]["uid"] = "other"
    waiting = labelled(a_pod_object("c", 9), pool="whole")
    objects = [*two_nodes(), bound("a", "n1", 0), reserved("b", "n1", 1), waiting, other]
    feed = ConsoleFeed(objects)
    assert feed.section("shares") == {
        "ml-team whole": rows.ShareRow(
            namespace="ml-team", pool="whole", pods=3, used=1, reserved=1, waiting=9
        ),
        "other whole": rows.ShareRow(namespace="other", pool="whole", pods=1, used=2),
    }
    feed.remove(other)
    feed.flush()
    assert set(feed.section("shares")) == {"ml-team whole"}


def test_pods_wait_by_priority_and_then_by_age():
    def pod(name: str, priority: int, minute: int) -> Object:
        waiting = labelled(a_pod_object(name, 9, priority=priority), pool="whole")
        waiting["metadata"]["creationTimestamp"] = f"2026-11-23T22:{minute:02}:00Z"
        return waiting

    feed = ConsoleFeed([*two_nodes(), pod("old", 0, 1), pod("young", 0, 2), pod("first", 9, 3)])
    places = {row.name: row.position for row in feed.section("waiting").values()}
    assert places == {"first": 1, "old": 2, "young": 3}
    feed.remove(pod("first", 9, 3))
    feed.flush()
    places = {row.name: row.position for row in feed.section("waiting").values()}
    assert places == {"old": 1, "young": 2}


def test_of_many_pods_the_first_ones_move_at_once_and_the_others_a_few_at_a_time():
    def pod(number: int) -> Object:
        waiting = labelled(a_pod_object(f"p{number:03}", 9), pool="whole")
        waiting["metadata"]["uid"] = f"uid-{number}"
        return waiting

    feed = ConsoleFeed([*two_nodes(), *map(pod, range(400))])
    feed.remove(pod(0))
    feed.tick()
    places = {row.name: row.position for row in feed.section("waiting").values()}
    assert all(places[f"p{number:03}"] == number for number in range(1, 100))
    assert places["p399"] == 400
    feed.flush()
    places = {row.name: row.position for row in feed.section("waiting").values()}
    assert places == {f"p{number:03}": number for number in range(1, 400)}


def test_a_pod_of_a_name_that_another_one_had_has_its_row():
    first = labelled(a_pod_object("a", 9), pool="whole")
    second = labelled(a_pod_object("a", 8), pool="whole")
    second["metadata"]["uid"] = "second"
    feed = ConsoleFeed([*two_nodes(), first])
    feed.put(second)
    feed.flush()
    feed.remove(first)
    feed.flush()
    assert [row.units for row in feed.section("waiting").values()] == [8]


def test_a_pod_that_no_pool_serves_waits_for_the_pool_of_its_resource():
    feed = ConsoleFeed([labelled(a_pod_object("a", 1, pool="gone"), pool="gone")])
    assert feed.section("waiting")["ml-team/a"].pool == "gone"
    feed.put(a_pool_object("new", resource={"name": "gpu.deckhouse.io/gone"}))
    feed.flush()
    assert feed.section("waiting")["ml-team/a"].pool == "new"
    assert set(feed.section("shares")) == {"ml-team new"}
    assert feed.section("pools")["new"].waiting == 1


def test_until_it_is_explained_a_pod_has_the_words_of_the_leader():
    pod = labelled(a_pod_object("a", 9), pool="whole")
    said = condition("gpu.deckhouse.io/UnitsAvailable", "False", "none is free")
    pod["status"] = {"conditions": [said]}
    row = ConsoleFeed([*two_nodes(), pod]).section("waiting")["ml-team/a"]
    assert (row.reason, row.message) == ("Because", "none is free")


def test_a_wait_says_that_the_kernel_caches_of_the_pod_are_not_known():
    pod = mounting(labelled(a_pod_object("a", 9), pool="whole"), SHARED)
    feed = ConsoleFeed([*two_nodes(), pod])
    feed.open()
    feed.flush()
    row = feed.section("waiting")["ml-team/a"]
    assert row.message.endswith("; whether the pod's kernel caches fit devices is unknown")


def test_where_not_all_pods_may_be_listed_figures_are_those_of_the_leader():
    objects = a_fragmented_cluster()
    other = labelled(a_bound_pod_object("x", "gpu-0", [1], pool="training"), namespace="other-team")
    feed = ConsoleFeed([*objects, other], scope=ONE_NAMESPACE)
    row = feed.section("pools")["training"]
    assert (row.total, row.used, row.free, row.largest_free, row.fits) == (8, 3, 5, 3, None)
    devices = feed.section("devices")
    assert (devices["gpu-0-0"].look, devices["gpu-0-0"].holders) == ("used", ("ml-team/train-a",))
    assert (devices["gpu-0-1"].look, devices["gpu-0-1"].holders) == ("free", ())
    waiting = feed.section("waiting")["ml-team/big"]
    assert (waiting.position, waiting.reason, waiting.remedies) == (0, "", ())
    assert waiting.scheduler.startswith("0/3 nodes")
    feed.open(ONE_NAMESPACE.visibility)
    feed.tick()
    assert feed.section("waiting")["ml-team/big"].reason == ""
    detail = pod_detail(feed.state, feed.rows, "ml-team/big", viewer=feed.viewer())
    assert detail is not None
    assert detail.nodes == ()


def test_a_device_has_a_detail():
    instances = {"mode": "MIG", "migProfile": "1g.10gb"}
    mig = {
        "capable": True,
        "mode": "Enabled",
        "instances": [
            {"profile": "1g.10gb", "uuid": "MIG-1"},
            {"profile": "1g.10gb", "uuid": "MIG-2"},
        ],
    }
    links = [
        {"peer": "n1-1", "type": "NVLink", "count": 4},
        {"peer": "n1-0000:99:00.0", "type": "PHB"},
    ]
    device = a_device_object(
        "n1",
        0,
        mig=mig,
        links=links,
        numaNode=1,
        computeCapability="9.0",
        lastXid={"code": 31, "time": CREATED},
        conditions=[condition("Healthy", "True", "all is well")],
    )
    pod = reserved("b", "n1", 0)
    pod["metadata"]["annotations"][RESERVATION_ANNOTATION] = pod["metadata"]["annotations"][
        RESERVATION_ANNOTATION
    ].replace(uuid_of("n1", 0), "MIG-1")
    feed = ConsoleFeed(
        [
            a_pool_object(allocation=instances),
            a_node_object("n1"),
            device,
            a_device_object("n1", 1),
            pod,
        ]
    )
    detail = device_detail(feed.state, "n1-0", feed.viewer())
    assert detail is not None
    assert (detail.uuid, detail.memory_mib, detail.numa_node) == ("GPU-n1-0", 143771, 1)
    assert (detail.compute_capability, detail.mig) == ("9.0", "Enabled, 2 of 1g.10gb")
    assert (detail.last_xid, detail.last_xid_at) == (31, CREATED)
    assert detail.links == (
        rows.LinkEntry(peer="n1-1", kind="NVLink x4"),
        rows.LinkEntry(peer="n1-0000:99:00.0", kind="PHB"),
    )
    assert [(item.type, item.message, item.since) for item in detail.conditions] == [
        ("Healthy", "all is well", CREATED)
    ]
    assert detail.holders == (
        rows.HolderEntry(
            pod="ml-team/b",
            units=1,
            is_reserved=True,
            expires="2026-11-23T23:01:00Z",
            created=CREATED,
        ),
    )
    assert detail.row.look == "reserved"
    assert device_detail(feed.state, "n9-9", feed.viewer()) is None


def test_a_waiting_pod_has_a_detail_with_the_figures_of_its_nodes():
    feed = ConsoleFeed(a_fragmented_cluster())
    detail = pod_detail(feed.state, feed.rows, "ml-team/big", viewer=feed.viewer())
    assert detail is not None
    assert detail.row.reason == "UnitsFragmented"
    assert [(item.node, item.free, item.because) for item in detail.nodes] == [
        ("gpu-0", 3, "4 requested, 3 free (1 used of 4)"),
        ("gpu-1", 2, "4 requested, 2 free (2 used of 4)"),
    ]
    assert [holder.pod for holder in detail.nodes[1].holders] == ["ml-team/train-b"]
    assert detail.nodes_total == 2
    for name in ("ml-team/train-a", "ml-team/none"):
        assert pod_detail(feed.state, feed.rows, name, viewer=feed.viewer()) is None


@pytest.mark.parametrize(
    ("sees_nodes", "because"),
    [
        (True, "insufficient cpu: 2000m requested, 1000m free"),
        (False, "kube-scheduler does not consider it"),
    ],
)
def test_what_nodes_lack_is_said_to_viewers_of_nodes(sees_nodes: bool, because: str):
    pod = labelled(a_pod_object("a", cpu="2"), pool="whole")
    node = a_node_object("n0", cpu="1")
    feed = ConsoleFeed([a_pool_object(), node, a_device_object("n0", 0), pod])
    viewer = feed.viewer(Visibility(namespaces=None, nodes=sees_nodes))
    detail = pod_detail(feed.state, feed.rows, "ml-team/a", viewer=viewer)
    assert detail is not None
    assert (detail.row.reason, [item.because for item in detail.nodes]) == (
        "NodesExcluded",
        [because],
    )


def test_in_a_large_pool_a_detail_has_the_remedies_that_are_known():
    objects = [a_pool_object(), labelled(a_pod_object("a", 2), pool="whole")]
    for number in range(MAX_REMEDY_NODES + 1):
        objects += [a_node_object(f"n{number}"), a_device_object(f"n{number}", 0)]
    feed = ConsoleFeed(objects)
    viewer = feed.viewer()
    detail = pod_detail(feed.state, feed.rows, "ml-team/a", viewer=viewer)
    assert detail is not None
    assert (detail.row.reason, detail.row.remedies) == ("PodTooLarge", ())
    assert (len(detail.nodes), detail.nodes_total) == (16, MAX_REMEDY_NODES + 1)
    feed.open()
    feed.tick()
    detail = pod_detail(feed.state, feed.rows, "ml-team/a", viewer=viewer)
    assert detail is not None
    assert detail.row.remedies == ("ask for 1 unit: node n0 would take the pod now",)


def test_figures_are_kept_for_an_hour():
    feed = ConsoleFeed([*two_nodes(), bound("a", "n1", 0)])
    assert feed.rows.histories.rows()["whole"].used == (1,)
    for _ in range(370):
        feed.clock.passed_s += 10
        feed.tick()
    history = feed.rows.histories.rows()["whole"]
    assert len(history.at) == 360
    assert history.at[-1] - history.at[0] == 3590
    assert set(history.free) == {7}
    feed.remove(a_pool_object())
    feed.clock.passed_s += 10
    feed.flush()
    feed.clock.passed_s += 10
    feed.tick()
    assert feed.rows.histories.rows() == {}


def test_nodes_that_may_not_be_read_count_as_ready_while_they_have_a_device():
    scope = ReadScope(all_pods=True, nodes=False, inventories=False)
    feed = ConsoleFeed(two_nodes(), scope=scope)
    assert feed.section("pools")["whole"].free == 8
    assert feed.section("nodes")["n1"].state is rows.NodeRowState.UNKNOWN
    for number in range(4):
        feed.remove(a_device_object("n1", number))
    feed.flush()
    assert set(feed.section("nodes")) == {"n2"}
    assert set(feed.state.index.nodes) == {"n2"}


def test_the_scope_of_a_cluster_reads_everything():
    assert WHOLE.visibility.namespaces is None
    assert WHOLE.visibility.nodes
    assert ONE_NAMESPACE.visibility.namespaces == frozenset({"ml-team"})
