"""filter, preempt and bind where a pod may not have just any free devices of a node."""

import json
from typing import Any

from api.kinds.gpupool import DeviceTopology, SlicePlacement
from scheduler.extender import filter_nodes, preempt
from tests.support.builders import a_device, a_node, a_pool, a_slice_pool
from tests.support.scheduling import ExtenderSetup, a_wire_pod, preemption_args

REQUIRED = DeviceTopology.REQUIRED


def two_sockets(pool: Any = None, **nodes: int) -> ExtenderSetup:
    """Nodes with so many devices on each of two NUMA nodes."""
    pool = pool or a_pool(device_topology=REQUIRED)
    setup = ExtenderSetup()
    index = setup.allocation_state.index
    index.replace_pool(pool)
    for node, count in nodes.items():
        index.replace_node(a_node(node))
        for number in range(2 * count):
            index.replace_device(a_device(node, number, pool.name, numa_node=number // count))
    return setup


def filtered(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> Any:
    body = json.dumps({"Pod": pod, "NodeNames": names}).encode()
    return json.loads(filter_nodes(body, setup.context).body)


def kept(setup: ExtenderSetup, pod: dict[str, Any], **victims: list[str]) -> Any:
    answer = preempt(preemption_args(pod, **victims), setup.context)
    return json.loads(answer.body)["NodeNameToMetaVictims"]


def test_a_node_with_enough_but_unaligned_devices_is_passed_over_with_the_reason() -> None:
    setup = two_sockets(n1=2, n2=2, n3=1)
    setup.bound("a", "n1", "GPU-n1-0")
    setup.bound("b", "n1", "GPU-n1-2")
    reply = filtered(setup, a_wire_pod(whole=2), "n1", "n2", "n3")
    assert reply["NodeNames"] == ["n2"]
    assert reply["FailedNodes"] == {
        "n1": "GPU pool whole: 2 requested and 2 free, but of these at most 1 are on one NUMA node or connected by"
        " NVLink, which the pool requires"
    }
    assert list(reply["FailedAndUnresolvableNodes"]) == ["n3"]


def test_slices_that_are_on_no_single_device_are_no_room() -> None:
    setup = ExtenderSetup().pool(
        a_slice_pool("whole", slices=10, slice_placement=SlicePlacement.SAME_DEVICE), n1=2
    )
    for device in (0, 1):
        units = [f"GPU-n1-{device}::{number}" for number in range(6)]
        setup.bound(f"b{device}", "n1", *units)
    reply = filtered(setup, a_wire_pod(whole=5), "n1")
    assert reply["FailedNodes"] == {
        "n1": "GPU pool whole: 5 requested and 8 free, but at most 4 of one device; in this pool a container gets its"
        " slices on one device, or whole devices"
    }


def a_full_node(*, priority: int = 10) -> ExtenderSetup:
    """Four pods of one device each, and a pod of two devices with a higher priority than theirs."""
    setup = two_sockets(n1=2)
    for number in range(4):
        setup.bound(f"v{number}", "n1", f"GPU-n1-{number}", priority=number)
    setup.pending("p", 2, priority=priority)
    return setup


def test_victims_that_free_an_aligned_set_are_kept() -> None:
    reply = kept(a_full_node(), a_wire_pod("p", whole=2), n1=["uid-v2", "uid-v3"])
    assert reply == {"n1": {"Pods": [{"UID": "uid-v2"}, {"UID": "uid-v3"}], "NumPDBViolations": 0}}


def test_a_victim_is_added_where_those_proposed_free_no_aligned_set() -> None:
    reply = kept(a_full_node(), a_wire_pod("p", whole=2), n1=["uid-v1", "uid-v2"])
    assert reply == {
        "n1": {
            "Pods": [{"UID": "uid-v1"}, {"UID": "uid-v2"}, {"UID": "uid-v0"}],
            "NumPDBViolations": 1,
        }
    }


def test_no_pod_of_the_same_priority_is_added() -> None:
    setup = a_full_node(priority=3)
    reply = kept(setup, a_wire_pod("p", whole=2), n1=["uid-v0", "uid-v2"])
    assert [pod["UID"] for pod in reply["n1"]["Pods"]] == ["uid-v0", "uid-v2", "uid-v1"]
    assert kept(a_full_node(priority=0), a_wire_pod("p", whole=2), n1=["uid-v0", "uid-v2"]) == {}


def test_no_victim_is_added_in_a_pool_without_constraints() -> None:
    setup = ExtenderSetup().pool(n1=3)
    for number in range(3):
        setup.bound(f"v{number}", "n1", f"GPU-n1-{number}")
    setup.pending("p", 2, priority=10)
    assert kept(setup, a_wire_pod("p", whole=2), n1=["uid-v0"]) == {}
