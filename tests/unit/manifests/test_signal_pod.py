"""The pod that makes Karpenter add a node: what it demands, and what it can never do."""

from typing import Any

import pytest

from api.foreign.core import NodeSelectorTerm
from api.kinds.autoscaling import ShapeRequirement
from api.meta import SelectorOperator, SelectorRequirement
from api.names import SCALE_REQUEST_LABEL, SIGNAL_SCHEDULER
from autoscaling.scaling_model import RequestId
from manifests.scaling.signal_pod import build_signal, unschedulable_patch
from pool.compute_resources import NOTHING
from tests.support.builders import EPOCH
from tests.support.kubernetes_schemas import check_object
from tests.support.node_requests import (
    TAINT,
    a_node_request,
    a_requirement,
    a_shape,
    some_parameters,
)

Json = dict[str, Any]


def a_signal(parameters: Any = None, **request: Any) -> Json:
    return build_signal(
        a_node_request(**request),
        parameters or some_parameters(taints=(TAINT,)),
        namespace="gpu-control-plane",
        image="registry.example.com/gpu-control-plane:1.0",
    )


def terms_of(pod: Json) -> Any:
    required = pod["spec"]["affinity"]["nodeAffinity"]
    return required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_a_signal_is_a_valid_pod(version: str):
    term = NodeSelectorTerm(match_expressions=[a_requirement("zone", "a")])
    check_object(
        a_signal(affinity=(term,), shape=a_shape(requirements=(a_requirement(),))), version
    )


def test_a_signal_demands_a_node_that_no_other_pod_can_have():
    assert a_signal(node_selector={"disk": "ssd"})["spec"]["nodeSelector"] == {
        "disk": "ssd",
        "karpenter.sh/nodepool": "training",
        SCALE_REQUEST_LABEL: "training-1a2b3c4d",
    }


def test_selectors_of_pods_do_not_replace_the_id_of_the_request():
    selector = a_signal(node_selector={SCALE_REQUEST_LABEL: "other"})["spec"]["nodeSelector"]
    assert selector[SCALE_REQUEST_LABEL] == "training-1a2b3c4d"


def test_each_term_of_the_pods_has_the_requirements_of_the_shape_too():
    """Weak point 5: several instance types are one requirement, so that one without capacity leaves others."""
    types = a_requirement("node.kubernetes.io/instance-type", "g.2", "g.2x")
    terms = tuple(NodeSelectorTerm(match_expressions=[a_requirement("zone", z)]) for z in "ab")
    pod = a_signal(shape=a_shape(requirements=(types,)), affinity=terms)
    want = {"key": types.key, "operator": "In", "values": ["g.2", "g.2x"]}
    assert [term["matchExpressions"][0] for term in terms_of(pod)] == [want, want]
    assert [term["matchExpressions"][1]["values"] for term in terms_of(pod)] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("Gte", "4", {"operator": "Gt", "values": ["3"]}),
        ("Gte", "0", {"operator": "Exists"}),
        ("Lte", "4", {"operator": "Lt", "values": ["5"]}),
    ],
)
def test_what_a_pod_cannot_demand_is_written_as_it_can(operator: str, value: str, expected: Json):
    item = ShapeRequirement("gpus", SelectorOperator(operator), [value], min_values=1)
    (term,) = terms_of(a_signal(shape=a_shape(requirements=(item,))))
    assert term["matchExpressions"] == [{"key": "gpus", **expected}]


def test_fields_of_a_term_stay():
    field = SelectorRequirement(key="metadata.name", operator=SelectorOperator.IN, values=["n"])
    (term,) = terms_of(a_signal(affinity=(NodeSelectorTerm(match_fields=[field]),)))
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


def test_without_requirements_there_is_no_affinity():
    assert "affinity" not in a_signal()["spec"]


def test_no_scheduler_binds_it_and_nothing_is_preempted_for_it():
    """Weak points 1 and 8: it takes no existing node, and its priority is nobody's concern."""
    spec = a_signal()["spec"]
    assert spec["schedulerName"] == SIGNAL_SCHEDULER
    assert not {"nodeName", "priority", "priorityClassName", "preemptionPolicy"} & spec.keys()


def test_it_asks_for_the_memory_of_its_pods_and_not_for_that_of_devices():
    """Weak point 4."""
    assert requests_of(a_signal()) == {"cpu": "1500m", "memory": "2048Mi"}
    assert requests_of(a_signal(requests=NOTHING)) == {"cpu": "10m", "memory": "16Mi"}


def test_it_asks_for_devices_only_where_the_autoscaler_knows_them():
    """Weak point 6: a resource that no plugin of the node serves would never be initialised."""
    container = a_signal(some_parameters(signal_resource="nvidia.com/gpu"))["spec"]["containers"][0]
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "2"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def requests_of(pod: Json) -> Json:
    requests: Json = pod["spec"]["containers"][0]["resources"]["requests"]
    return requests


def test_a_signal_that_is_bound_after_all_ends():
    """Weak point 2: activeDeadlineSeconds begins when a pod is bound; those by phase count without it."""
    assert a_signal()["spec"]["activeDeadlineSeconds"] == 600


def test_it_says_what_it_is_for_without_a_word_of_its_pods():
    metadata = a_signal(some_parameters(product="NVIDIA H100 80GB HBM3"))["metadata"]
    assert {
        key.partition("/")[2]: value
        for key, value in {**metadata["labels"], **metadata["annotations"]}.items()
        if key.startswith("gpu.deckhouse.io/")
    } == {
        "component": "scale-signal",
        "scaling-pool": "training",
        "scale-request": "training-1a2b3c4d",
        "trigger-type": "waiting-pods",
        "gpu-model": "NVIDIA-H100-80GB-HBM3",
        "created-by": "gpu-control-plane/pool.scaling",
        "purpose": "trigger-karpenter-scaling",
        "cleanup-after": "node-ready",
        "shape": "two",
        "scale-devices": "2",
    }
    labels = a_signal(pods=())["metadata"]["labels"]
    assert labels["gpu.deckhouse.io/trigger-type"] == "warm-units"
    assert "gpu.deckhouse.io/gpu-model" not in labels
    assert "uid-p" not in str(a_signal()["metadata"])


def test_it_satisfies_the_restricted_level_of_pod_security():
    spec = a_signal()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = spec["containers"][0]["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not {"volumes", "hostNetwork", "serviceAccountName"} & spec.keys()
    assert spec["automountServiceAccountToken"] is False


def test_its_condition_is_written_for_this_pod_only():
    test, add = unschedulable_patch(RequestId("training-1"), uid="u1", now=EPOCH)
    assert test == {"op": "test", "path": "/metadata/uid", "value": "u1"}
    (condition,) = add["value"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "Unschedulable"
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
