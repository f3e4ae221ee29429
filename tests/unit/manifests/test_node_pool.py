"""The NodePool of a GPUPool has what its signals need, and no more than its shapes have together."""

from typing import Any

import msgspec
import pytest

from api.foreign.karpenter import NodePool
from api.kinds.gpupool import GPUPool
from autoscaling.node_pool_checks import node_pool_fault
from autoscaling.parameters import scaling_parameters
from manifests.scaling.node_pool import NodeClassRef, build_node_pools
from pool.facts import pool_facts
from reconciler.sinks.karpenter import observe_node_pool
from tests.support.examples import load_example

CLASS = NodeClassRef("karpenter.k8s.aws", "EC2NodeClass", "default")
TYPE = "node.kubernetes.io/instance-type"


def a_pool(**spec: Any) -> GPUPool:
    (pool,) = load_example("pool-autoscaling")
    scaling = pool["spec"]["autoscaling"] | spec.pop("autoscaling", {})
    return msgspec.convert(
        {**pool, "spec": pool["spec"] | spec | {"autoscaling": scaling}}, GPUPool
    )


def a_shape(name: str, *requirements: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "devices": 1, "requirements": list(requirements), **fields}


def is_in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def template_of(pool: GPUPool) -> dict[str, Any]:
    (node_pool,) = build_node_pools(pool, CLASS)
    template: dict[str, Any] = node_pool["spec"]["template"]
    return template


def requirements_of(pool: GPUPool) -> dict[str, Any]:
    requirements = template_of(pool)["spec"]["requirements"]
    return {
        requirement["key"]: requirement.get("values", requirement["operator"])
        for requirement in requirements
    }


def test_weak_point_5_types_of_all_shapes_are_allowed():
    """weak point 5: no request is tied to one instance type, which one lack of capacity would end."""
    assert requirements_of(a_pool())[TYPE] == ["g6.xlarge", "g6.2xlarge", "g6.12xlarge"]


def test_a_signal_can_name_its_request():
    assert requirements_of(a_pool())["gpu.deckhouse.io/scale-request"] == "Exists"


def test_nodes_keep_pods_away_until_their_devices_are_known():
    spec = template_of(a_pool())["spec"]
    assert spec["startupTaints"] == [
        {"key": "gpu.deckhouse.io/agent-not-ready", "effect": "NoSchedule"}
    ]
    assert spec["taints"] == [{"key": "pool.gpu.deckhouse.io/elastic", "effect": "NoSchedule"}]


def test_a_pool_without_taints_has_none():
    assert "taints" not in template_of(a_pool(scheduling={}))["spec"]


def test_empty_nodes_go_after_idle_after_and_all_at_once():
    (node_pool,) = build_node_pools(a_pool(autoscaling={"idleAfter": "90s"}), CLASS)
    assert node_pool["spec"]["disruption"] == {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "90s",
        "budgets": [
            {"nodes": "100%", "reasons": ["Empty"]},
            {"nodes": "10%", "reasons": ["Drifted", "Underutilized"]},
        ],
    }


@pytest.mark.parametrize(
    ("max_units", "allocation", "nodes"),
    [
        pytest.param(32, {}, "32", id="of the smallest shape"),
        pytest.param(30, {"mode": "TimeSlice", "slicesPerDevice": 4}, "8", id="rounded up"),
        pytest.param(7, {"mode": "MIG", "migProfile": "1g.10gb"}, "1", id="MIG"),
    ],
)
def test_max_units_bound_the_nodes(max_units: int, allocation: dict[str, Any], nodes: str):
    pool = a_pool(autoscaling={"maxUnits": max_units}, allocation=allocation)
    (node_pool,) = build_node_pools(pool, CLASS)
    assert node_pool["spec"]["limits"] == {"nodes": nodes}


def test_without_max_units_there_is_no_limit():
    (node_pool,) = build_node_pools(a_pool(autoscaling={"maxUnits": None}), CLASS)
    assert "limits" not in node_pool["spec"]


def test_units_of_a_shape_are_those_that_it_says():
    shapes = [a_shape("h100", unitsPerDevice=4, devices=2)]
    pool = a_pool(
        allocation={"mode": "MIG", "migProfile": "1g.10gb"},
        autoscaling={"shapes": shapes, "maxUnits": 9},
    )
    (node_pool,) = build_node_pools(pool, CLASS)
    assert node_pool["spec"]["limits"] == {"nodes": "2"}


def test_what_only_some_shapes_require_is_left_to_the_signal():
    zone, key = is_in("topology.kubernetes.io/zone", "a"), "example.com/nvlink"
    shapes = [
        a_shape("one", is_in(TYPE, "a"), zone, {"key": key, "operator": "Exists"}),
        a_shape("two", is_in(TYPE, "b"), {"key": key, "operator": "Exists"}),
    ]
    required = requirements_of(a_pool(autoscaling={"shapes": shapes}))
    assert required == {
        "gpu.deckhouse.io/scale-request": "Exists",
        TYPE: ["a", "b"],
        key: "Exists",
        "kubernetes.io/os": ["linux"],
    }


def test_newer_requirements_of_karpenter_are_kept_and_the_lowest_min_values_of_united_values():
    count = {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Gte", "values": ["4"]}
    shapes = [
        a_shape("one", {**is_in(TYPE, "a", "b", "c"), "minValues": 3}, count),
        a_shape("two", {**is_in(TYPE, "d", "e"), "minValues": 2}, count),
    ]
    requirements = template_of(a_pool(autoscaling={"shapes": shapes}))["spec"]["requirements"]
    assert requirements[1:3] == [{**is_in(TYPE, *"abcde"), "minValues": 2}, count]


def test_each_name_has_a_node_pool():
    shapes = [
        a_shape("one", is_in(TYPE, "a"), nodePool="cheap"),
        a_shape("two", is_in(TYPE, "b")),
        a_shape("three", is_in(TYPE, "c"), nodePool="cheap"),
    ]
    found = build_node_pools(a_pool(autoscaling={"shapes": shapes}), CLASS)
    assert [item["metadata"]["name"] for item in found] == ["cheap", "elastic"]
    requirements = found[0]["spec"]["template"]["spec"]["requirements"]
    assert is_in(TYPE, "a", "c") in requirements


def test_nodes_are_those_that_the_pool_selects():
    """Labels that Karpenter or its provider sets are required; others are set."""
    selector = {
        "matchLabels": {"team": "ml", "kubernetes.io/arch": "arm64"},
        "matchExpressions": [
            is_in("example.com/rack", "r1", "r2"),
            is_in("karpenter.k8s.aws/instance-family", "g6"),
            {"key": "example.com/gpus", "operator": "Exists"},
            {"key": "example.com/old", "operator": "DoesNotExist"},
        ],
    }
    pool = a_pool(nodeSelector=selector)
    assert template_of(pool)["metadata"]["labels"] == {
        "gpu.deckhouse.io/present": "true",
        "team": "ml",
        "example.com/rack": "r1",
        "example.com/gpus": "true",
    }
    required = requirements_of(pool)
    assert required["kubernetes.io/arch"] == ["arm64"]
    assert required["karpenter.k8s.aws/instance-family"] == ["g6"]


def test_the_control_plane_finds_nothing_wrong_with_it():
    selector = {"matchLabels": {"team": "ml", "kubernetes.io/arch": "arm64"}}
    pool = a_pool(autoscaling={"idleAfter": "1h30m"}, nodeSelector=selector)
    (node_pool,) = build_node_pools(pool, CLASS)
    facts = observe_node_pool(msgspec.convert(node_pool, NodePool))
    parameters = scaling_parameters(pool, pool_facts(pool))
    assert parameters is not None
    assert node_pool_fault(parameters, facts.name, facts) == ("", "")


def test_a_pool_that_does_not_scale_has_none():
    assert build_node_pools(GPUPool(), CLASS) == []
