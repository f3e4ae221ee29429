"""CPU and memory of pods and nodes."""

from typing import Any

import msgspec
import pytest

from api.foreign.core import Node, Pod
from pool.compute_resources import ComputeResources, allocatable, requested, resources_of
from pool.facts import node_facts


def a_container(cpu: str | float | None, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}} if cpu is not None else {}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return a_container(cpu, restartPolicy="Always")


def of(*main: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> int:
    return all_of(containers=list(main), initContainers=list(init)).cpu_milli


def all_of(**spec: Any) -> ComputeResources:
    return requested(msgspec.convert({"spec": spec}, Pod))


def test_containers_add_up():
    assert of(a_container("1500m"), a_container(2), a_container(0.5), a_container(None)) == 4000


def test_a_limit_without_a_request_is_the_request():
    assert of({"resources": {"limits": {"cpu": "3"}}}) == 3000
    assert of({"resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}}) == 1000
    assert of({}) == 0


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        pytest.param((a_container("1"),), 2000, id="less than the containers"),
        pytest.param((a_container("3"), a_container("5")), 5000, id="the largest"),
        pytest.param((sidecar("1"),), 3000, id="a sidecar stays"),
        pytest.param((sidecar("1"), a_container("4")), 5000, id="beside a sidecar"),
        pytest.param((a_container("4"), sidecar("1")), 4000, id="before a sidecar"),
        pytest.param((sidecar("1"), sidecar("2"), a_container("1")), 5000, id="two sidecars"),
    ],
)
def test_init_containers_count_as_they_run(init, expected):
    assert of(a_container("2"), init=init) == expected


def test_an_unreadable_quantity_counts_as_none():
    assert of(a_container("many"), a_container("1")) == 1000
    assert allocatable({"cpu": "-1", "memory": "x"}) == (None, None)
    assert allocatable({"memory": "1Gi"}) == (None, 1024)
    assert allocatable(None) == (None, None)


def test_memory_is_counted_like_cpu():
    small = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    large = {"resources": {"limits": {"memory": "2.5Gi"}}}
    starting = {"resources": {"requests": {"memory": "4000000000"}}}
    assert all_of(containers=[small, large]) == ComputeResources(1000, 3584, pods=1)
    assert all_of(containers=[small], initContainers=[starting]).memory_mib == 3815, "rounded up"
    assert all_of(containers=[{}]) == ComputeResources(pods=1)


def test_requests_of_the_whole_pod_count_in_place_of_its_containers():
    container = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    pod = {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}
    assert all_of(containers=[container] * 2, resources=pod) == ComputeResources(3000, 2048, pods=1)


@pytest.mark.parametrize(("of_container", "want"), [({"cpu": "1"}, 1000), ({}, 8000)])
def test_a_limit_of_the_whole_pod_is_its_request_where_no_container_requests_any(
    of_container: dict[str, str], want: int
):
    container = {"resources": {"requests": of_container}}
    pod = {"limits": {"cpu": "8"}}
    assert all_of(containers=[container], resources=pod).cpu_milli == want


def test_the_overhead_of_a_runtime_class_counts():
    container = {"resources": {"requests": {"cpu": "1"}}}
    overhead = {"cpu": "250m", "memory": "120Mi"}
    assert all_of(containers=[container], overhead=overhead) == ComputeResources(1250, 120, pods=1)


@pytest.mark.parametrize(
    ("asked", "accepted", "actual", "reason", "want"),
    [
        pytest.param("2", "2", "2", "", 3000, id="at rest"),
        pytest.param("8", "2", "2", "Deferred", 9000, id="asked for"),
        pytest.param("2", "8", "4", "", 9000, id="accepted"),
        pytest.param(
            "2", "2", "8", "", 9000, id="a smaller one that the container has not got yet"
        ),
        pytest.param("8", "2", "4", "Infeasible", 5000, id="never to be had on this node"),
        pytest.param("8", None, None, "Infeasible", 9000, id="nothing is reported"),
        pytest.param("2", None, "4", "", 5000, id="only what it has is reported"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_of_a_resize_the_most_counts_as_kube_scheduler_counts_it(
    kind: str, asked: str, accepted: str | None, actual: str | None, reason: str, want: int
):
    resized = {"name": "a", "resources": {"requests": {"cpu": asked}}, "restartPolicy": "Always"}
    status: dict[str, Any] = {"name": "a"}
    if accepted is not None:
        status["allocatedResources"] = {"cpu": accepted}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual}, "limits": {"cpu": "16"}}
    containers = {"containers": [{"name": "b", **a_container("1")}], kind: [resized]}
    if kind == "containers":
        containers[kind] += [{"name": "b", **a_container("1")}]
    pod = {
        "spec": containers,
        "status": {
            "initContainerStatuses" if kind == "initContainers" else "containerStatuses": [status],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        },
    }
    assert requested(msgspec.convert(pod, Pod)).cpu_milli == want


@pytest.mark.parametrize(
    ("asked", "status", "want"),
    [
        ("8", {}, 8000),
        ("8", {"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "2"}}}, 8000),
        ("2", {"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "9"}}}, 9000),
        (
            "8",
            {
                "allocatedResources": {"cpu": "4"},
                "resources": {"requests": {"cpu": "2"}},
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
            },
            4000,
        ),
    ],
)
def test_of_a_resize_of_the_whole_pod_the_most_counts_too(asked: str, status: Any, want: int):
    """kube-scheduler of 1.36 counts so (component-helpers, resource.PodRequests)."""
    containers = [{"name": "a", **a_container("1")}]
    spec = {"containers": containers, "resources": {"requests": {"cpu": asked}}}
    pod = {"spec": spec, "status": status}
    assert requested(msgspec.convert(pod, Pod)).cpu_milli == want


def test_amounts_may_be_given_as_quantities():
    assert resources_of("500m", "1Gi") == ComputeResources(500, 1024)
    with pytest.raises(ValueError, match="many"):
        resources_of("many", "0")


def test_a_node_tells_what_it_can_give_to_pods():
    body = {
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "95500m", "memory": "1023Ki"}},
    }
    facts = node_facts(msgspec.convert(body, Node))
    assert (facts.cpu_milli, facts.memory_mib) == (95_500, 0), "rounded down"
    unknown = node_facts(msgspec.convert({"metadata": {"name": "n1"}}, Node))
    assert (unknown.cpu_milli, unknown.memory_mib) == (None, None)
