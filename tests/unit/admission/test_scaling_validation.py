"""`spec.autoscaling` of a pool: everything that is wrong in one message, each fault with its field and a cure."""

from typing import Any

import pytest

from tests.unit.admission.test_pool_validation import ask, faults

JOINING = {"requireAnnotation": False}
ONE = {"name": "one", "devices": 1, "pricePerHour": "1.25"}
EIGHT = {"name": "eight", "devices": 8}


def a_spec(*shapes: dict[str, Any], **autoscaling: Any) -> dict[str, Any]:
    given = [*shapes] or [ONE]
    return {"assignment": JOINING, "autoscaling": {"shapes": given, **autoscaling}}


def requiring(*requirements: dict[str, Any]) -> dict[str, Any]:
    return a_spec({**ONE, "requirements": [*requirements]})


FULL = {
    "assignment": JOINING,
    "allocation": {"mode": "MIG", "migProfile": "1g.10gb"},
    "autoscaling": {
        "backend": "karpenter-native",
        "shapes": [
            {
                **EIGHT,
                "unitsPerDevice": 7,
                "nodePool": "gpu.large",
                "requirements": [
                    {"key": "karpenter.k8s.aws/instance-gpu-name", "operator": "In", "values": ["a100"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "Exists"},
                    {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Gte", "values": ["8"], "minValues": 1},
                ],
                "computeCapability": "8.0",
                "cpu": "96",
                "memory": "1100Gi",
                "pricePerHour": "32.7726",
            }
        ],
        "minUnits": 8,
        "warmUnits": 4,
        "maxUnits": 64,
        "maxInFlight": 100,
        "budget": {"perHour": "100", "perDay": "1500.50"},
        "idleAfter": "10m",
        "signalResource": "nvidia.com/gpu",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(FULL, id="every field"),
        pytest.param(a_spec(), id="one shape"),
        pytest.param({"autoscaling": {"backend": "none"}}, id="no backend"),
        pytest.param(a_spec(ONE, EIGHT, minUnits=8, warmUnits=8, maxUnits=8), id="bounds"),
        pytest.param(a_spec(idleAfter="24h"), id="longest idle time"),
        pytest.param(a_spec(idleAfter="30s"), id="shortest idle time"),
    ],
)
def test_what_can_be_done_is_admitted_without_a_warning(spec: dict[str, Any]) -> None:
    reply = ask(spec)
    assert reply.allowed, reply.message
    assert reply.warnings == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"assignment": JOINING, "autoscaling": {}},
            "spec.autoscaling.shapes: is required: name at least one kind of node, or set backend to none",
        ),
        (
            a_spec(ONE, EIGHT, ONE),
            'spec.autoscaling.shapes[2].name: "one" is the name of an earlier shape: choose another one',
        ),
        (
            a_spec({**ONE, "unitsPerDevice": 7}),
            "spec.autoscaling.shapes[0].unitsPerDevice: has a meaning in mode MIG only, the mode is Exclusive: remove it",
        ),
        (
            a_spec(minUnits=9, maxUnits=8),
            "spec.autoscaling.minUnits: 9 is more than maxUnits, 8: raise maxUnits, or lower it",
        ),
        (
            a_spec(warmUnits=9, maxUnits=8),
            "spec.autoscaling.warmUnits: 9 is more than maxUnits, 8: raise maxUnits, or lower it",
        ),
        (a_spec(maxInFlight=101), "spec.autoscaling.maxInFlight: 101 is more than 100"),
        (a_spec(maxInFlight=0), "spec.autoscaling.maxInFlight: 0 is less than 1"),
        (
            a_spec(ONE, EIGHT, budget={"perDay": "10"}),
            "spec.autoscaling.budget: cannot be kept without the price of each shape: set pricePerHour of eight",
        ),
        (
            a_spec(budget={}),
            "spec.autoscaling.budget: is empty: set perHour or perDay, or remove it",
        ),
        (
            a_spec(budget={"perDay": "10 EUR"}),
            'spec.autoscaling.budget.perDay: "10 EUR" is not an amount of money such as 12.50, without a currency',
        ),
        (
            a_spec({**ONE, "pricePerHour": "cheap"}),
            'spec.autoscaling.shapes[0].pricePerHour: "cheap" is not an amount of money such as 12.50, without a'
            " currency",
        ),
        (
            a_spec({**ONE, "cpu": "many"}),
            'spec.autoscaling.shapes[0].cpu: "many" is not a quantity such as 96, 3500m or 1500Gi',
        ),
        (
            a_spec({**ONE, "name": "NVIDIA A100-SXM4-80GB"}),
            'spec.autoscaling.shapes[0].name: "NVIDIA A100-SXM4-80GB" is not a name of lower-case letters, digits and'
            " dashes, such as a100-8",
        ),
        (a_spec(idleAfter="29s"), "spec.autoscaling.idleAfter: 29s is not between 30s and 24h"),
        (a_spec(idleAfter="25h"), "spec.autoscaling.idleAfter: 25h is not between 30s and 24h"),
        (
            {
                **a_spec(),
                "allocation": {
                    "mode": "MIG",
                    "mig": [{"profile": "3g.40gb", "count": 1}, {"profile": "1g.10gb"}],
                },
            },
            "spec.allocation.mig: several profiles contradict spec.autoscaling: make a pool for each, or remove"
            " autoscaling",
        ),
        (
            {**a_spec(), "reservation": {"whenExhausted": "Reject"}},
            "spec.reservation.whenExhausted: Reject contradicts spec.autoscaling, which adds nodes for pods that wait:"
            " set it to Pend, or remove autoscaling",
        ),
        (
            {**a_spec(), "assignment": {}},
            "spec.assignment.requireAnnotation: true (the default) keeps the devices of new nodes out of a pool with"
            " spec.autoscaling: set it to false, and select them by autoApproveSelector, deviceSelector or nodeSelector",
        ),
        *(
            (
                requiring({"key": "gpus", "operator": operator, "values": values}),
                f"spec.autoscaling.shapes[0].requirements[0].values: operator {operator} needs one value, a whole number"
                " such as 4",
            )
            for operator, values in (("Gte", ["4", "8"]), ("Lte", ["many"]), ("Gt", []))
        ),
        (
            requiring({"key": "type", "operator": "In", "values": ["a"], "minValues": 2}),
            "spec.autoscaling.shapes[0].requirements[0].minValues: 2 is more than the 1 values: name more values, or"
            " lower it",
        ),
        (
            requiring({"key": "gpu.deckhouse.io/present", "operator": "Exists"}),
            "spec.autoscaling.shapes[0].requirements[0].key: gpu.deckhouse.io/present is a label of this control plane,"
            " which nodes do not have before they join: remove it",
        ),
        (
            requiring({"key": "pool.gpu.deckhouse.io/whole", "operator": "Exists"}),
            "spec.autoscaling.shapes[0].requirements[0].key: pool.gpu.deckhouse.io/whole is a label of this control"
            " plane, which nodes do not have before they join: remove it",
        ),
        (
            requiring({"key": "zone", "operator": "In"}),
            "spec.autoscaling.shapes[0].requirements[0].values: operator In needs at least one value",
        ),
        (
            a_spec(signalResource="gpu.deckhouse.io/whole"),
            'spec.autoscaling.signalResource: "gpu.deckhouse.io/whole" is no resource of another device plugin, such as'
            " nvidia.com/gpu: name the one that the autoscaler knows, or remove it",
        ),
        (
            a_spec(signalResource="cpu"),
            'spec.autoscaling.signalResource: "cpu" is no resource of another device plugin, such as nvidia.com/gpu:'
            " name the one that the autoscaler knows, or remove it",
        ),
    ],
)
def test_each_fault_is_named_with_its_cure(spec: dict[str, Any], expected: str) -> None:
    assert faults(spec) == [expected]


def test_all_faults_are_told_at_once() -> None:
    spec = a_spec(EIGHT, EIGHT, minUnits=9, maxUnits=8, idleAfter="1s", budget={"perDay": "1"})
    assert len(faults({**spec, "assignment": {}})) == 5


def test_units_that_nothing_adds_are_warned_of() -> None:
    reply = ask({"autoscaling": {"backend": "none", "minUnits": 1, "warmUnits": 2}})
    assert reply.warnings == [
        "spec.autoscaling.minUnits: 1 has no effect: with backend none no node is added",
        "spec.autoscaling.warmUnits: 2 has no effect: with backend none no node is added",
    ]


def test_quantities_and_amounts_may_be_numbers():
    shape = {**EIGHT, "cpu": 8, "memory": 64_000_000_000, "pricePerHour": 4}
    spec = a_spec(shape, budget={"perHour": 10, "perDay": 200})
    assert ask(spec).allowed
    bad = a_spec({**shape, "cpu": -1, "memory": True})
    assert len(faults(bad)) == 2
