"""What the models derive from their fields, by Kubernetes' rules."""

from typing import Any

import msgspec
import pytest

from api.annotations import ReservationNote, decode_devices, decode_reservation, encode_devices
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import Access, GPUPool, Strategy
from api.meta import LabelSelector, Model
from api.names import UnitId


def a_pool(**spec: Any) -> GPUPool:
    return msgspec.convert({"metadata": {"name": "train"}, "spec": spec}, GPUPool)


@pytest.mark.parametrize(
    ("expression", "labels", "expected"),
    [
        ({"operator": "In", "values": ["x"]}, {"a": "x"}, True),
        ({"operator": "In", "values": ["x"]}, {}, False),
        ({"operator": "NotIn", "values": ["x"]}, {"a": "x"}, False),
        ({"operator": "NotIn", "values": ["x"]}, {}, True),
        ({"operator": "Exists"}, {"a": ""}, True),
        ({"operator": "Exists"}, {}, False),
        ({"operator": "DoesNotExist"}, {}, True),
        ({"operator": "DoesNotExist"}, {"a": ""}, False),
        ({"operator": "Gt", "values": ["5"]}, {"a": "6"}, True),
        ({"operator": "Gt", "values": ["5"]}, {"a": "many"}, False),
        ({"operator": "Lt", "values": ["5"]}, {"a": "4"}, True),
        ({"operator": "Gte", "values": ["5"]}, {"a": "5"}, True),
        ({"operator": "Gte", "values": ["5"]}, {"a": "4"}, False),
        ({"operator": "Lte", "values": ["5"]}, {"a": "5"}, True),
        ({"operator": "Lte", "values": ["5"]}, {"a": "6"}, False),
        ({"operator": "Lt", "values": ["5"]}, {}, False),
        ({"operator": "Gt", "values": ["-1"]}, {"a": "+0007"}, True),
        ({"operator": "Lt", "values": ["9223372036854775807"]}, {"a": "9223372036854775806"}, True),
        ({"operator": "Lt", "values": ["9223372036854775808"]}, {"a": "1"}, False),
        ({"operator": "Lt", "values": ["9" * 4_000]}, {"a": "1"}, False),
        ({"operator": "Lt", "values": ["0" * 2_000_000 + "x"]}, {"a": "1"}, False),
        ({"operator": "Lt", "values": ["0" * 2_000_000 + "2"]}, {"a": "1"}, True),
        ({"operator": "Gt", "values": ["-9223372036854775809"]}, {"a": "1"}, False),
        ({"operator": "Gt", "values": ["-9223372036854775808"]}, {"a": "1"}, True),
        ({"operator": "Gt", "values": ["-"]}, {"a": "1"}, False),
        ({"operator": "Gt", "values": ["+-1"]}, {"a": "1"}, False),
        ({"operator": "Gt", "values": ["5"]}, {"a": "1_000"}, False),
        ({"operator": "Gt", "values": ["5"]}, {"a": " 6"}, False),
        ({"operator": "Gt", "values": ["5"]}, {"a": "\u0666"}, False),
        ({"operator": "Gt", "values": ["5", "6"]}, {"a": "7"}, False),
        ({"operator": "Gt"}, {"a": "7"}, False),
    ],
)
def test_expression_matches(expression, labels, expected):
    selector = msgspec.convert({"matchExpressions": [{"key": "a", **expression}]}, LabelSelector)
    assert selector.matches(labels) is expected


def test_selector_wants_all_of_its_parts():
    selector = msgspec.convert(
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
        LabelSelector,
    )
    assert selector.matches({"a": "1", "b": ""})
    assert not selector.matches({"a": "1"})
    assert not selector.matches({"b": ""})


def test_empty_selector_matches_everything():
    assert LabelSelector().matches({})


def test_resource_name_follows_the_pool_unless_it_is_given():
    assert a_pool().resource_name == "gpu.deckhouse.io/train"
    named = a_pool(resource={"name": "gpu.deckhouse.io/a100"})
    assert named.resource_name == "gpu.deckhouse.io/a100"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, Strategy.LEAST_FRAGMENTATION, id="whole devices"),
        pytest.param({"allocation": {"mode": "TimeSlice"}}, Strategy.BIN_PACK, id="time slices"),
        pytest.param({"scheduling": {"strategy": "Spread"}}, Strategy.SPREAD, id="given"),
    ],
)
def test_strategy_depends_on_the_mode_unless_it_is_given(spec, expected):
    assert a_pool(**spec).strategy is expected


def test_hold_lasts_two_minutes_unless_it_is_said():
    assert a_pool().ttl_s == 120
    assert a_pool(reservation={"ttl": "1m30s"}).ttl_s == 90


def test_access_is_open_without_any_rule():
    assert Access().is_open
    assert not Access(groups=["ml"]).is_open


@pytest.mark.parametrize(
    ("label", "expected"), [("true", True), ("True", True), ("false", False), (None, False)]
)
def test_device_is_ignored_by_its_label(label, expected):
    labels = {"gpu.deckhouse.io/ignore": label} if label else {}
    device = msgspec.convert({"metadata": {"labels": labels}}, GPUDevice)
    assert device.is_ignored is expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        '{"id":1,"pool":"a"}',
        '{"id":"1"}',
        pytest.param(
            '{"id":"1","pool":"a","expiresAt":"2026-01-01T00:00:00"}', id="time without a zone"
        ),
    ],
)
def test_reservation_that_cannot_be_read_is_none(text):
    assert decode_reservation(text) is None


def test_reservation_survives_the_wire():
    note = ReservationNote(id="1", pool="a", node="n", devices={"main": (UnitId("GPU-1"),)})
    assert decode_reservation(note.encode()) == note


def test_devices_survive_the_wire_in_their_order():
    devices = {"b": (UnitId("2"), UnitId("1")), "a": ()}
    decoded = decode_devices(encode_devices(devices))
    assert decoded == devices
    assert list(decoded or ()) == ["b", "a"]


@pytest.mark.parametrize("text", [None, "", "1", '{"a":"b"}'])
def test_devices_that_cannot_be_read_are_none(text):
    assert decode_devices(text) is None


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        pytest.param(
            GPUPool, {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 101}}, id="slices"
        ),
        pytest.param(
            GPUPool, {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 0}}, id="no slice"
        ),
        pytest.param(
            GPUDevice,
            {"mig": {"instances": [{"profile": "1g.10gb", "uuid": f"MIG-{n}"} for n in range(65)]}},
            id="MIG instances",
        ),
        pytest.param(GPUDevice, {"numaNode": 1025}, id="NUMA node"),
        pytest.param(GPUDevice, {"numaNode": -1}, id="no NUMA node"),
    ],
)
def test_figures_that_lay_out_units_have_bounds(kind: type[Model], status: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"metadata": {"name": "x"}, "spec": {}, "status": status}, kind)
