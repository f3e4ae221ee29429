"""Which pods are operands, and what is known of them by node."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import POOL_LABEL, NodeName
from inventory.readiness.software import Operand, OperandFacts
from reconciler.sinks.operand_pod import (
    DEFAULT_APPS,
    OperandParameters,
    OperandPod,
    OperandPodObject,
    projection,
)
from reconciler.sinks.operand_pod_sink import OperandPodSink
from tests.support.operands import an_operand_pod

PARAMETERS = OperandParameters()


def project(body: dict[str, Any], parameters: OperandParameters = PARAMETERS) -> OperandPod | None:
    pod = msgspec.convert(body, OperandPodObject)
    return projection(parameters)(pod)


def recorded(**changes: Any) -> OperandPod:
    pod = project(an_operand_pod(**changes))
    assert pod is not None
    return pod


@pytest.mark.parametrize(
    ("app", "operand"), [(app, item) for item, apps in DEFAULT_APPS.items() for app in apps]
)
def test_an_operand_is_known_by_its_app_label(app: str, operand: Operand):
    assert recorded(app=app).operand is operand


def test_every_operand_has_a_name_of_ours_and_names_tell_operands_apart():
    assert set(DEFAULT_APPS) == set(Operand)
    names = list(itertools.chain(*DEFAULT_APPS.values()))
    assert len(names) == len(set(names))
    assert all(apps[0].startswith("gpu-control-plane-") for apps in DEFAULT_APPS.values())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"app": "nginx"}, id="another app"),
        pytest.param({"labels": {POOL_LABEL: "a100"}}, id="of a pool"),
        pytest.param({"namespace": "team-a"}, id="of a namespace that nobody trusts"),
    ],
)
def test_other_pods_are_no_operands(changes: dict[str, Any]):
    """Lesson 20: a pool's own workloads are not taken for those of the node."""
    assert project(an_operand_pod(**changes)) is None


def test_every_namespace_is_believed_where_none_is_named():
    pod = an_operand_pod(namespace="team-a")
    assert project(pod, OperandParameters(namespaces=None)) is not None


def test_the_selector_asks_for_operands_and_leaves_those_of_pools_out():
    """Lesson 20."""
    parameters = OperandParameters(apps={Operand.GFD: ("b", "a"), Operand.DCGM: ("c",)})
    assert parameters.label_selector == "app in (a,b,c),!gpu.deckhouse.io/pool"


def test_a_pod_that_is_being_deleted_is_not_ready():
    assert recorded().is_ready
    assert not recorded(deletionTimestamp="2026-01-01T00:00:00Z").is_ready


def test_what_holds_a_pod_up_is_named():
    pod = recorded(
        ready=False, inits={"driver-validation": 0, "toolkit-validation": 1, "cuda": None}
    )
    assert pod.passed == {"driver-validation"}
    assert (
        pod.message
        == "pod gpu-operator/gfd-n1: init container toolkit-validation has not succeeded"
    )
    assert recorded(ready=False).message == "pod gpu-operator/gfd-n1 is not ready"
    assert recorded().message == ""


def test_the_termination_message_of_what_holds_a_pod_up_is_its_cause():
    """It stays the same while kubelet starts the container again and again."""
    messages = {"driver-validation": "driver:\n no card", "main": "plugin: no units"}
    failed = recorded(ready=False, inits={"driver-validation": None}, messages=messages)
    assert failed.message == (
        "pod gpu-operator/gfd-n1: init container driver-validation has not succeeded: driver: no card"
    )
    assert recorded(ready=False, inits={"driver-validation": 1}, messages=messages) == failed
    late = recorded(ready=False, inits={"driver-validation": 0}, messages=messages)
    assert late.message == "pod gpu-operator/gfd-n1 is not ready: plugin: no units"
    assert recorded(messages=messages) == recorded()
    assert len(recorded(ready=False, messages={"main": "x" * 4096}).cause) == 256


def test_a_step_that_fails_after_its_init_container_has_succeeded_has_not_passed():
    inits = {"driver-validation": 0, "toolkit-validation": 0}
    messages = {"main": "toolkit: nvidia-container-runtime is not on the node"}
    assert recorded(ready=False, inits=inits, messages=messages).passed == {"driver-validation"}
    assert recorded(inits=inits, messages=messages).passed == inits.keys()


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ([{"name": "metrics", "containerPort": 9401}], 9401),
        ([{"name": "web", "containerPort": 80}, {"name": "metrics", "containerPort": 9402}], 9402),
        ([{"name": "web", "containerPort": 80}], 9400),
        ([{"name": "metrics", "containerPort": 0}], 9400),
        (None, 9400),
    ],
)
def test_an_exporter_is_asked_at_its_metrics_port(ports: list[dict[str, Any]] | None, port: int):
    pod = recorded(app="nvidia-dcgm-exporter", name="x", ports=ports)
    assert (pod.ip, pod.port) == ("10.0.0.7", port)


# --- what is known of them -----------------------------------------------------------------------


class Heard:
    """Who was told of what."""

    def __init__(self, sink: OperandPodSink) -> None:
        self.nodes: list[str] = []
        self.presence: list[str] = []
        sink.changes.subscribe(self.nodes.append)
        sink.presence.subscribe(lambda operand: self.presence.append(operand.value))

    def taken(self) -> tuple[list[str], list[str]]:
        reported = (self.nodes[:], self.presence[:])
        self.nodes.clear()
        self.presence.clear()
        return reported


def test_an_operand_is_seen_on_its_node_and_known_to_be_elsewhere():
    sink = OperandPodSink()
    sink.replace_all([recorded(node="n1")])
    assert sink.facts(NodeName("n1"))[Operand.GFD] == OperandFacts(
        is_anywhere=True, is_on_node=True, is_ready=True
    )
    assert sink.facts(NodeName("n2"))[Operand.GFD] == OperandFacts(is_anywhere=True)
    assert sink.facts(NodeName("n1"))[Operand.DCGM] == OperandFacts()


def test_whoever_listens_is_told_the_node_and_the_operand_that_came_or_went():
    sink = OperandPodSink()
    heard = Heard(sink)
    first, second = recorded(node="n1", name="a"), recorded(node="n2", name="b")
    sink.upsert(first)
    assert heard.taken() == (["n1"], ["gfd"])
    sink.upsert(second)
    assert heard.taken() == (["n2"], [])
    sink.upsert(second)
    assert heard.taken() == ([], [])
    sink.discard(first)
    assert heard.taken() == (["n1"], [])
    sink.discard(second)
    assert heard.taken() == (["n2"], ["gfd"])
    sink.discard(second)
    assert heard.taken() == ([], [])


def test_a_pod_without_a_node_shows_that_its_operand_exists_and_nothing_else():
    sink = OperandPodSink()
    heard = Heard(sink)
    sink.upsert(recorded(node=""))
    assert heard.taken() == ([], ["gfd"])
    assert sink.facts(NodeName("n1"))[Operand.GFD] == OperandFacts(is_anywhere=True)


def test_of_two_pods_in_a_rollout_the_ready_one_counts():
    sink = OperandPodSink()
    sink.replace_all(
        [recorded(name="a", ready=False), recorded(name="b"), recorded(name="c", ready=False)]
    )
    assert sink.facts(NodeName("n1"))[Operand.GFD].is_ready


@pytest.mark.parametrize(
    ("changes", "is_there"),
    [({}, True), ({"ready": False}, False), ({"ip": ""}, False), ({"app": "nvidia-dcgm"}, False)],
)
def test_only_a_ready_exporter_with_an_address_is_asked(changes: dict[str, Any], is_there: bool):
    sink = OperandPodSink()
    sink.upsert(recorded(**{"app": "nvidia-dcgm-exporter", "name": "x", **changes}))
    assert (sink.exporter(NodeName("n1")) is not None) is is_there


PODS = st.builds(
    recorded,
    name=st.sampled_from("abcd"),
    node=st.sampled_from(["", "n1", "n2"]),
    app=st.sampled_from(["nvidia-dcgm", "gpu-feature-discovery"]),
    ready=st.booleans(),
)


@given(st.lists(st.tuples(st.booleans(), PODS), max_size=30), st.lists(PODS, max_size=4))
def test_any_order_of_changes_ends_in_what_a_list_says(
    changes: list[tuple[bool, OperandPod]], final: list[OperandPod]
):
    changed, listed = OperandPodSink(), OperandPodSink()
    for is_there, pod in changes:
        changed.upsert(pod) if is_there else changed.discard(pod)
    last = {pod.ref: pod for pod in final}
    changed.replace_all(list(last.values()))
    listed.replace_all(list(last.values()))
    for node in ("n1", "n2", "n3"):
        assert changed.facts(NodeName(node)) == listed.facts(NodeName(node))
    assert changed._store._by_group == listed._store._by_group
    assert +changed._count == +listed._count
