"""NodePools that cannot serve a pool, each with its cure."""

import dataclasses
from typing import Any

import pytest

from api.foreign.core import NodeTaint, Taint
from api.foreign.karpenter import NodeRequirement
from api.kinds.autoscaling import ScalingBackend, ShapeRequirement
from api.meta import LabelSelector, SelectorOperator, SelectorRequirement
from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from autoscaling.node_pool_checks import node_pool_fault
from autoscaling.scaling_model import ConditionFacts, NodePoolFacts
from tests.support.scaling_plans import a_shape, some_parameters

GOOD = NodePoolFacts(
    name="whole",
    labels={"team": "ml"},
    requirements=(
        NodeRequirement(SCALE_REQUEST_LABEL, "Exists"),
        NodeRequirement("node.kubernetes.io/instance-type", "In", ["p4d", "p5"]),
    ),
    taints=(NodeTaint("gpu", "true", "NoSchedule"),),
    startup_taints=(NodeTaint(AGENT_NOT_READY_TAINT, "", "NoSchedule"),),
    consolidation_policy="WhenEmpty",
    consolidate_after="5m",
)
PARAMETERS: dict[str, Any] = {"taints": (Taint("gpu", "true", "NoSchedule"),)}


def fault_of(facts: NodePoolFacts | None, **parameters: Any) -> tuple[str, str]:
    return node_pool_fault(some_parameters(**{**PARAMETERS, **parameters}), "whole", facts)


def but(**changes: Any) -> NodePoolFacts:
    return dataclasses.replace(GOOD, **changes)


def test_the_documented_node_pool_is_right():
    assert fault_of(GOOD) == ("", "")


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        pytest.param(None, "kubectl get gpupool whole", id="missing"),
        pytest.param(but(requirements=()), SCALE_REQUEST_LABEL, id="no requirement on the label"),
        pytest.param(
            but(requirements=(NodeRequirement(SCALE_REQUEST_LABEL, "In", ["a"]),)),
            "operator Exists",
            id="another operator",
        ),
        pytest.param(but(startup_taints=()), AGENT_NOT_READY_TAINT, id="no startup taint"),
        pytest.param(
            but(startup_taints=(NodeTaint(AGENT_NOT_READY_TAINT, "", "PreferNoSchedule"),)),
            "startupTaints",
            id="startup taint without effect",
        ),
        pytest.param(
            but(taints=(NodeTaint("other", "", "NoExecute"),)),
            "other:NoExecute",
            id="another taint",
        ),
        pytest.param(but(replicas=3), "create it without replicas", id="static"),
        pytest.param(
            but(ready=ConditionFacts("False", "NodeClassNotReady", "no subnet")),
            "NodeClassNotReady: no subnet",
            id="not ready",
        ),
    ],
)
def test_a_node_pool_that_cannot_serve_is_told_with_its_cure(
    facts: NodePoolFacts | None, names: str
):
    fault, _ = fault_of(facts)
    assert names in fault
    assert "NodePool whole" in fault.replace('"', "")


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        pytest.param(
            but(consolidation_policy="WhenEmptyOrUnderutilized"), "WhenEmpty", id="policy"
        ),
        pytest.param(but(consolidate_after="30s"), "idleAfter is 300s", id="time"),
        pytest.param(but(consolidate_after="Never"), "consolidateAfter Never", id="never"),
        pytest.param(
            but(expire_after="720h"), "set spec.template.spec.expireAfter to Never", id="expiry"
        ),
    ],
)
def test_what_is_unwise_is_a_warning(facts: NodePoolFacts, names: str):
    fault, warning = fault_of(facts)
    assert not fault
    assert names in warning


def test_a_taint_that_only_discourages_pods_is_no_fault():
    assert fault_of(but(taints=(NodeTaint("other", "", "PreferNoSchedule"),))) == ("", "")


@pytest.mark.parametrize(
    ("selector", "is_fault", "is_warning"),
    [
        pytest.param({"match_labels": {"team": "ml"}}, False, False, id="set"),
        pytest.param({"match_labels": {"team": "web"}}, True, False, id="another value"),
        pytest.param({"match_labels": {"rack": "1"}}, False, True, id="not known"),
        pytest.param(
            {"match_labels": {"topology.kubernetes.io/zone": "a"}}, False, False, id="well known"
        ),
        pytest.param(
            {"match_labels": {"node.kubernetes.io/instance-type": "p5"}}, False, False, id="one of"
        ),
        pytest.param(
            {"match_labels": {"node.kubernetes.io/instance-type": "g5"}}, True, False, id="none of"
        ),
        pytest.param(
            {
                "match_expressions": [
                    SelectorRequirement("team", SelectorOperator.NOT_IN, ["ml"]),
                ]
            },
            True,
            False,
            id="excluded",
        ),
        pytest.param(
            {
                "match_expressions": [
                    SelectorRequirement("rack", SelectorOperator.DOES_NOT_EXIST),
                ]
            },
            False,
            False,
            id="absent",
        ),
    ],
)
def test_labels_that_the_pools_node_selector_demands(
    selector: dict[str, Any], is_fault: bool, is_warning: bool
):
    fault, warning = fault_of(GOOD, node_selector=LabelSelector(**selector))
    assert (bool(fault), bool(warning)) == (is_fault, is_warning)


@pytest.mark.parametrize("backend", [ScalingBackend.BALLOON, ScalingBackend.NONE])
def test_other_backends_have_no_node_pools(backend: ScalingBackend):
    assert fault_of(None, backend=backend) == ("", "")


TYPE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize(
    ("least", "types", "fault"),
    [
        pytest.param(2, ["p4d"], "leaves 1", id="too few"),
        pytest.param(2, ["p4d", "p6"], "leaves 1", id="too few that the NodePool has"),
        pytest.param(2, ["p4d", "p5"], "", id="enough"),
        pytest.param(None, ["p4d"], "", id="none demanded"),
    ],
)
def test_a_shape_leaves_the_values_that_the_node_pool_demands(
    least: int | None, types: list[str], fault: str
):
    label, listed = GOOD.requirements
    demanding = NodeRequirement(listed.key, listed.operator, listed.values, min_values=least)
    shape = a_shape(requirements=(ShapeRequirement(TYPE, SelectorOperator.IN, types),))
    assert fault in fault_of(but(requirements=(label, demanding)), shapes=(shape,))[0]
    assert fault_of(but(requirements=(label, demanding)))[0] == ""


def test_min_values_that_only_a_shape_has_are_no_demand():
    item = ShapeRequirement(TYPE, SelectorOperator.IN, ["p4d", "p5"], min_values=2)
    _, warning = fault_of(GOOD, shapes=(a_shape(requirements=(item,)),))
    assert "minValues 2 of node.kubernetes.io/instance-type in shape eight" in warning
