"""What a device looks like, what is free on a node, and who has what."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.foreign.core import Pod
from api.kinds.gpudevice import GPUDevice, LastXid
from inventory.display_state import DisplayState, display_state_of
from kubectl_gpu.verbs.nodes import DeviceGlyph, listed_device, listed_node
from kubectl_gpu.verbs.who import share_of, shares_of
from tests.support.cluster_objects import a_bound_pod_object, a_pod_object
from tests.support.listed_objects import NOW
from tests.support.plugin_cluster import a_device, labelled


def a_gpu_device(**status: Any) -> GPUDevice:
    content = a_device("training", "n1", 0)
    content["status"] |= status
    content["status"] = {key: item for key, item in content["status"].items() if item is not None}
    return msgspec.convert(content, GPUDevice)


def units(capacity: int, *, allocated: int = 0, reserved: int = 0) -> dict[str, int]:
    return {"capacity": capacity, "allocated": allocated, "reserved": reserved}


def a_condition(type_: str, status: str) -> list[dict[str, Any]]:
    times = {"lastTransitionTime": "2026-11-23T22:00:00Z", "observedGeneration": 1}
    return [{"type": type_, "status": status, "reason": "R", "message": "", **times}]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, DisplayState.FREE),
        ({"units": units(4, reserved=1)}, DisplayState.RESERVED),
        ({"units": units(4, allocated=1)}, DisplayState.PARTLY_USED),
        ({"units": units(4, allocated=1, reserved=3)}, DisplayState.USED),
        ({"units": units(1, allocated=1)}, DisplayState.USED),
        ({"poolRef": None}, DisplayState.NOT_IN_A_POOL),
        ({"state": "Draining", "units": units(1, allocated=1)}, DisplayState.DRAINING),
        ({"conditions": a_condition("Draining", "True")}, DisplayState.DRAINING),
        ({"state": "Faulted", "units": units(1, allocated=1)}, DisplayState.FAULTED),
        ({"conditions": a_condition("Healthy", "False"), "poolRef": None}, DisplayState.FAULTED),
    ],
)
def test_a_device_looks_as_its_state(status: dict[str, Any], state: DisplayState):
    assert display_state_of(a_gpu_device(**status)) is state


def test_every_look_has_a_glyph_of_its_own_in_both_alphabets():
    assert set(DeviceGlyph.__members__) == set(DisplayState.__members__)
    for place in (0, 1):
        assert len({glyph.value[place] for glyph in DeviceGlyph}) == len(DisplayState)


@pytest.mark.parametrize(
    ("state", "free"),
    [("Ready", 3), ("Unknown", 3), ("NotReady", 0), ("Cordoned", 0), ("Missing", 0)],
)
def test_only_a_node_that_takes_pods_has_free_units(state: str, free: int):
    devices = [
        listed_device(a_gpu_device(units=units(4, allocated=1))),
        listed_device(a_gpu_device(units=units(4), state="Faulted")),
        listed_device(a_gpu_device(units=units(4), state="Draining")),
        listed_device(a_gpu_device(units=units(0), poolRef=None)),
    ]
    node = listed_node("n1", devices, state=state)
    assert (node.total, node.used, node.free, node.pools) == (12, 1, free, ("training",))


def test_a_device_of_a_node_has_its_last_xid():
    xid = {"code": 79, "time": "2026-11-29T10:00:00Z"}
    assert listed_device(a_gpu_device(lastXid=xid)).last_xid == msgspec.convert(xid, LastXid)
    assert listed_device(a_gpu_device()).last_xid is None


def a_pod(content: dict[str, Any]) -> Pod:
    return msgspec.convert(content, Pod)


def reserved(minutes: int) -> dict[str, Any]:
    pod = labelled(a_pod_object("r", 2, pool="training"))
    expires = (NOW + dt.timedelta(minutes=minutes)).isoformat()
    note = f'{{"id":"r","pool":"training","node":"n1","expiresAt":"{expires}"}}'
    pod["metadata"]["annotations"] = {"gpu.deckhouse.io/reservation": note}
    return pod


def test_a_pod_uses_has_reserved_or_waits():
    bound = share_of(a_pod(labelled(a_bound_pod_object("b", "n1", [0, 1], pool="training"))), NOW)
    assert bound is not None
    assert (bound.used, bound.reserved, bound.waiting, bound.node) == (2, 0, 0, "n1")
    soon, late = (share_of(a_pod(reserved(minutes)), NOW) for minutes in (1, -1))
    assert soon is not None
    assert late is not None
    assert (soon.used, soon.reserved, soon.waiting, soon.node) == (0, 2, 0, "n1")
    assert (late.used, late.reserved, late.waiting, late.node) == (0, 0, 2, "")


def test_pods_that_ended_or_ask_for_nothing_are_left_out():
    ended = labelled(a_bound_pod_object("e", "n1", [0], pool="training"))
    ended["status"] = {"phase": "Failed"}
    assert share_of(a_pod(ended), NOW) is None
    assert share_of(a_pod(labelled(a_pod_object("z", 0, pool="training"))), NOW) is None


def test_shares_are_sums_by_namespace_and_pool():
    contents = [
        labelled(a_bound_pod_object("a", "n1", [0], pool="p"), pool="p", namespace="x"),
        labelled(a_bound_pod_object("b", "n1", [1, 2], pool="p"), pool="p", namespace="x"),
        labelled(a_pod_object("c", 4, pool="q"), pool="q", namespace="x"),
        labelled(a_pod_object("d", 8, pool="p"), pool="p", namespace="w"),
    ]
    pods = [share for content in contents if (share := share_of(a_pod(content), NOW)) is not None]
    found = [
        (item.namespace, item.pool, item.used, item.waiting, [pod.name for pod in item.pods])
        for item in shares_of(pods)
    ]
    assert found == [
        ("w", "p", 0, 8, ["d"]),
        ("x", "p", 3, 0, ["b", "a"]),
        ("x", "q", 0, 4, ["c"]),
    ]
