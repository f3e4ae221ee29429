"""CPU of pods and nodes."""

from typing import Any

import msgspec
import pytest

from api.foreign.core import Node, Pod
from pool.compute_resources import cpu_milli, requested_cpu_milli
from pool.facts import node_facts


def a_container(cpu: str | float | None, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}} if cpu is not None else {}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return a_container(cpu, restartPolicy="Always")


def of(*main: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> int:
    body = {"spec": {"containers": list(main), "initContainers": list(init)}}
    return requested_cpu_milli(msgspec.convert(body, Pod).spec)


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
    assert cpu_milli({"cpu": "-1"}) is None
    assert cpu_milli({"memory": "1Gi"}) is None


def test_a_node_tells_what_it_can_give_to_pods():
    body = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "95500m"}}}
    assert node_facts(msgspec.convert(body, Node)).cpu_milli == 95_500
    assert node_facts(msgspec.convert({"metadata": {"name": "n1"}}, Node)).cpu_milli is None
