"""Terms of a pool, also of stored objects that newer rules refuse."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.kinds.autoscaling import Autoscaling, Budget, NodeShape
from api.kinds.gpupool import GPUPool, GPUPoolSpec
from autoscaling.parameters import scaling_parameters, terms_faults
from autoscaling.scaling_model import DEVICES_WITHIN, MICRO, ScalingParameters
from pool.facts import pool_facts


def a_pool(autoscaling: dict[str, Any] | None, **spec: Any) -> GPUPool:
    content = {
        "metadata": {"name": "train", "uid": "u", "generation": 3},
        "spec": {**spec, **({"autoscaling": autoscaling} if autoscaling is not None else {})},
    }
    return msgspec.convert(content, GPUPool)


def parameters_of(pool: GPUPool) -> ScalingParameters:
    found = scaling_parameters(pool, pool_facts(pool))
    assert found is not None
    return found


def test_a_pool_without_autoscaling_has_no_terms():
    pool = a_pool(None)
    assert scaling_parameters(pool, pool_facts(pool)) is None
    assert terms_faults(pool) == ()


def test_amounts_may_be_numbers():
    shape = {"name": "s", "devices": 1, "cpu": 96, "memory": 1 << 40, "pricePerHour": 12}
    pool = a_pool({"shapes": [shape], "budget": {"perHour": 100, "perDay": 7}})
    parameters = parameters_of(pool)
    (found,) = parameters.shapes
    assert terms_faults(pool) == ()
    assert (found.cpu_milli, found.memory_mib, found.price_micro) == (96_000, 1 << 20, 12 * MICRO)
    assert (parameters.per_hour_micro, parameters.per_day_micro) == (100 * MICRO, 7 * MICRO)


def test_amounts_labels_and_defaults():
    pool = a_pool(
        {
            "shapes": [
                {
                    "name": "eight",
                    "devices": 8,
                    "requirements": [
                        {"key": "type", "operator": "In", "values": ["p5"]},
                        {"key": "zone", "operator": "In", "values": ["a", "b"]},
                    ],
                    "cpu": "96",
                    "memory": "1Ti",
                    "pricePerHour": "12.3456",
                },
                {"name": "one", "devices": 1, "nodePool": "other"},
            ],
            "budget": {"perHour": "100", "perDay": "0.5"},
            "maxUnits": 64,
            "driverMinutes": 20,
        },
        nodeSelector={"matchLabels": {"a": "b"}},
        scheduling={"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    )
    parameters = parameters_of(pool)
    eight, one = parameters.shapes
    assert terms_faults(pool) == ()
    assert (eight.node_pool, one.node_pool) == ("train", "other")
    assert eight.labels == {"type": "p5"}
    assert (eight.cpu_milli, eight.memory_mib, eight.price_micro) == (96_000, 1 << 20, 12_345_600)
    assert (one.cpu_milli, one.memory_mib, one.price_micro) == (None, None, None)
    assert (parameters.per_hour_micro, parameters.per_day_micro) == (100 * MICRO, MICRO // 2)
    assert (parameters.generation, parameters.max_units, parameters.idle_after_s) == (3, 64, 300)
    assert parameters.devices_within == DEVICES_WITHIN + dt.timedelta(minutes=20)
    assert [taint.key for taint in parameters.taints] == ["gpu"]
    assert parameters.node_selector == pool.spec.node_selector
    assert parameters.shape("one") is one
    assert parameters.shape("two") is None


@pytest.mark.parametrize(
    ("allocation", "shape", "units"),
    [
        pytest.param({"mode": "Exclusive"}, {}, 2, id="whole devices"),
        pytest.param({"mode": "TimeSlice", "slicesPerDevice": 4}, {}, 8, id="slices"),
        pytest.param({"mode": "MIG", "migProfile": "1g.10gb"}, {}, 14, id="instances"),
        pytest.param({"mode": "MIG", "migProfile": "3g.40gb"}, {}, 4, id="larger instances"),
        pytest.param(
            {"mode": "MIG", "migProfile": "1g.10gb"}, {"unitsPerDevice": 4}, 8, id="as told"
        ),
    ],
)
def test_units_of_a_shape(allocation: dict[str, Any], shape: dict[str, Any], units: int):
    pool = a_pool({"shapes": [{"name": "two", "devices": 2, **shape}]}, allocation=allocation)
    assert parameters_of(pool).shapes[0].units == units


@pytest.mark.parametrize(
    ("autoscaling", "names"),
    [
        pytest.param({}, "shapes is empty", id="no shapes"),
        pytest.param(
            {"shapes": [{"pricePerHour": "cheap"}]}, "pricePerHour of shape s", id="price"
        ),
        pytest.param({"shapes": [{"pricePerHour": "-1"}]}, "-1", id="negative price"),
        pytest.param({"shapes": [{"pricePerHour": "NaN"}]}, "NaN", id="no number"),
        pytest.param({"shapes": [{"cpu": "many"}]}, "cpu of shape s", id="cpu"),
        pytest.param({"shapes": [{"memory": "-1"}]}, "memory of shape s", id="memory"),
        pytest.param({"shapes": [{}], "budget": {"perHour": "1e9"}}, "perHour", id="budget"),
        pytest.param({"shapes": [{}], "idleAfter": "soon"}, "5m is used", id="idle"),
        pytest.param({"shapes": [{}], "minUnits": 9, "maxUnits": 8}, "minUnits 9", id="min above"),
        pytest.param({"shapes": [{}, {}]}, "more than once", id="two of a name"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_told(autoscaling: dict[str, Any], names: str):
    shapes = [{"name": "s", "devices": 1, **item} for item in autoscaling.get("shapes", ())]
    pool = unchecked({**autoscaling, "shapes": shapes})
    parameters = parameters_of(pool)
    (fault,) = terms_faults(pool)
    assert names in fault
    assert all(shape.price_micro is None for shape in parameters.shapes)
    assert parameters.idle_after_s == 300
    assert parameters.per_hour_micro is None


def unchecked(autoscaling: dict[str, Any]) -> GPUPool:
    """Return a pool whose values break the bounds that decoding checks."""
    shapes = [
        NodeShape(
            name=shape["name"],
            devices=shape["devices"],
            cpu=shape.get("cpu"),
            memory=shape.get("memory"),
            price_per_hour=shape.get("pricePerHour"),
        )
        for shape in autoscaling["shapes"]
    ]
    spec = Autoscaling(
        shapes=shapes,
        min_units=autoscaling.get("minUnits", 0),
        max_units=autoscaling.get("maxUnits"),
        budget=Budget(per_hour=autoscaling.get("budget", {}).get("perHour")),
        idle_after=autoscaling.get("idleAfter", "5m"),
    )
    pool = a_pool(None)
    return GPUPool(metadata=pool.metadata, spec=GPUPoolSpec(autoscaling=spec))
