"""The rules of `spec.autoscaling` as they are rendered into the definition of GPUPools."""

from typing import Any

import pytest

from tests.component.conformance.test_own_kinds import Json, a_pool
from tests.support.api_servers import Api
from tests.unit.admission.test_scaling_validation import EIGHT, FULL, ONE, a_spec, requiring


def a_pool_with(spec: Json) -> Json:
    return a_pool(**spec)


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(a_pool_with(FULL), id="every field"),
        pytest.param(a_pool_with(a_spec()), id="one shape"),
        pytest.param(a_pool(autoscaling={"backend": "none"}), id="no backend"),
        pytest.param(
            a_pool_with(a_spec(*({**ONE, "name": f"shape-{n}"} for n in range(16)))), id="16 shapes"
        ),
        pytest.param(a_pool_with(a_spec(idleAfter="24h")), id="longest idle time"),
    ],
)
async def test_pool_that_scales_is_accepted(pool: Json, api: Api, pools: str) -> None:
    await api.created(pools, pool)


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        pytest.param(
            {"assignment": {"requireAnnotation": False}, "autoscaling": {}},
            "spec.autoscaling.shapes",
            "shapes is required: name at least one kind of node, or set backend to none",
            id="no shape",
        ),
        pytest.param(
            a_spec(ONE, EIGHT, ONE),
            "spec.autoscaling.shapes",
            "two shapes have one name: choose another name",
            id="one name twice",
        ),
        pytest.param(
            a_spec({**ONE, "unitsPerDevice": 7}),
            "spec.autoscaling.shapes",
            "unitsPerDevice of a shape has a meaning in mode MIG only: remove it, or set allocation.mode to MIG",
            id="instances of whole devices",
        ),
        pytest.param(
            a_spec(minUnits=9, maxUnits=8),
            "spec.autoscaling.minUnits",
            "minUnits is more than maxUnits: raise maxUnits, or lower minUnits",
            id="minimum",
        ),
        pytest.param(
            a_spec(warmUnits=9, maxUnits=8),
            "spec.autoscaling.warmUnits",
            "warmUnits is more than maxUnits: raise maxUnits, or lower warmUnits",
            id="warm units",
        ),
        pytest.param(
            a_spec(ONE, EIGHT, budget={"perDay": "10"}),
            "spec.autoscaling.budget",
            "a budget cannot be kept without the price of each shape: set pricePerHour of every shape",
            id="budget without a price",
        ),
        pytest.param(
            a_spec(budget={"perDay": "ten"}), "spec.autoscaling.budget.perDay", "", id="no amount"
        ),
        *(
            pytest.param(
                a_spec(idleAfter=idle),
                "spec.autoscaling.idleAfter",
                "idleAfter must be a duration from 30s to 24h, such as 5m or 1h",
                id=f"idle for {idle}",
            )
            for idle in ("29s", "25h", "99999999999h")
        ),
        pytest.param(
            {**a_spec(), "reservation": {"whenExhausted": "Reject"}},
            "spec.reservation.whenExhausted",
            "whenExhausted Reject contradicts autoscaling, which adds nodes for pods that wait: set it to Pend, or"
            " remove autoscaling",
            id="no pod waits",
        ),
        pytest.param(
            {**a_spec(), "assignment": {}},
            "spec.assignment.requireAnnotation",
            "requireAnnotation: true (the default) keeps the devices of new nodes out of a pool with autoscaling: set"
            " it to false, and select them by autoApproveSelector, deviceSelector or nodeSelector",
            id="no device joins",
        ),
        *(
            pytest.param(
                requiring({"key": key, "operator": "Exists"}),
                "spec.autoscaling.shapes[0].requirements",
                "requirements name a label of this control plane, which nodes do not have before they join: remove it",
                id=key,
            )
            for key in ("gpu.deckhouse.io/present", "pool.gpu.deckhouse.io/train")
        ),
        *(
            pytest.param(
                requiring({"key": "gpus", "operator": operator, "values": values}),
                "spec.autoscaling.shapes[0].requirements[0].values",
                "operators Gt, Gte, Lt and Lte need one value, a whole number such as 4",
                id=f"{operator} {len(values)}",
            )
            for operator, values in (("Gte", ["4", "8"]), ("Lte", ["many"]), ("Gt", []))
        ),
        pytest.param(
            requiring({"key": "type", "operator": "In", "values": ["a"], "minValues": 2}),
            "spec.autoscaling.shapes[0].requirements[0].minValues",
            "minValues is more than there are values: name more values, or lower it",
            id="too few values",
        ),
        *(
            pytest.param(
                a_spec(signalResource=name),
                "spec.autoscaling.signalResource",
                "signalResource is no resource of another device plugin, such as nvidia.com/gpu: name the one that the"
                " autoscaler knows, or remove it",
                id=f"signal {name}",
            )
            for name in ("cpu", "gpu.deckhouse.io/train")
        ),
    ],
)
async def test_bad_autoscaling_is_refused_with_what_to_do(
    spec: Json, field: str, text: str, api: Api, pools: str
) -> None:
    answer: Any = await api.call("POST", pools, a_pool_with(spec))
    assert answer.status == 422
    causes = answer.body["details"]["causes"]
    assert any(cause["field"] == field and text in cause["message"] for cause in causes), causes
