"""Pods of a pool that spreads: with the constraint that admission injects, they really do."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from admission.webhooks import mutate_pod
from api.foreign.core import NodeTaint, Pod
from api.names import NodeName, PoolName, pool_node_label
from pool.model import NodeFacts
from simulator.scheduler.topology_spread import has_strict_spread, nodes_left
from tests.support.builders import a_node
from tests.support.reviews import AdmissionSetup, a_pod_object

LABEL = pool_node_label(PoolName("whole"))
UNREACHABLE = NodeTaint(key="node.kubernetes.io/unreachable", effect="NoSchedule")
ZONES = {"n1": "a", "n2": "a", "n3": "a", "n4": "b"}


def an_admission_setup(zones: dict[str, str | None]) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(scheduling={"strategy": "Spread", "topologyKey": "zone"})
    for name, zone in zones.items():
        setup.add_node(name, devices=8, labels=_labels(zone))
    return setup


def _labels(zone: str | None) -> dict[str, str]:
    return {LABEL: "", **({"zone": zone} if zone is not None else {})}


def nodes(zones: dict[str, str | None]) -> dict[NodeName, NodeFacts]:
    return {NodeName(name): a_node(name, labels=_labels(zone)) for name, zone in zones.items()}


def admitted(setup: AdmissionSetup, name: str) -> dict[str, Any]:
    asked = a_pod_object(name=name)
    found: dict[str, Any] = setup.ask(mutate_pod, asked).applied_to(asked)
    return found


def placed(zones: dict[str, str | None], count: int) -> Counter[str]:
    """Place pods one by one, each on the first node that is left: nothing but the constraint spreads."""
    setup, nodes_by_name = an_admission_setup(zones), nodes(zones)
    pods: list[Pod] = []
    for number in range(count):
        raw = admitted(setup, f"p{number}")
        pod = msgspec.convert(raw, Pod)
        node = min(nodes_left(pod, nodes_by_name, pods))
        pods.append(msgspec.convert({**raw, "spec": {**raw["spec"], "nodeName": node}}, Pod))
    return Counter(pod.spec.node_name for pod in pods)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_pods_are_in_every_zone_alike(count: int):
    """Lesson 3: the injected selector selects the mutated pod itself."""
    by_node = placed(dict(ZONES), count)
    zones = Counter({"a": 0, "b": 0})
    for node, pods in by_node.items():
        zones[ZONES[node]] += pods
    assert abs(zones["a"] - zones["b"]) <= 1
    assert zones.total() == count


def test_nodes_without_the_key_are_not_shut_out():
    """Lesson 3: while a node lacks the key, the constraint is a preference."""
    zones: dict[str, str | None] = {"n1": "a", "n2": None}
    pod = msgspec.convert(admitted(an_admission_setup(zones), "p"), Pod)
    assert not has_strict_spread(pod)
    assert nodes_left(pod, nodes(zones), []) == {"n1", "n2"}


def test_a_node_without_the_key_is_left_out_of_a_strict_constraint():
    pod = msgspec.convert(admitted(an_admission_setup(dict(ZONES)), "p"), Pod)
    nodes_by_name = nodes({**ZONES, "n5": None})
    assert nodes_left(pod, nodes_by_name, []) == set(ZONES)


def test_zone_that_is_away_holds_no_other_zone_down():
    """Pods that were admitted before it went keep the strict constraint."""
    raw = admitted(an_admission_setup(dict(ZONES)), "p")
    pod = msgspec.convert(raw, Pod)
    assert has_strict_spread(pod)
    away = a_node("n4", labels=_labels("b"), is_ready=False, taints=(UNREACHABLE,))
    nodes_by_name = {**nodes(dict(ZONES)), NodeName("n4"): away}
    others = [
        msgspec.convert({**raw, "spec": {**raw["spec"], "nodeName": node}}, Pod)
        for node in ("n1", "n2", "n3")
    ]

    assert nodes_left(pod, nodes_by_name, others) >= {"n1", "n2", "n3"}

    tolerant = {**raw, "spec": {**raw["spec"], "tolerations": [{"operator": "Exists"}]}}
    assert nodes_left(msgspec.convert(tolerant, Pod), nodes_by_name, others) == {"n4"}


def test_constraint_of_a_user_counts_tainted_nodes_unless_it_says_otherwise():
    own = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    pod = msgspec.convert(
        a_pod_object(metadata={"labels": {"a": "b"}}, spec={"topologySpreadConstraints": [own]}),
        Pod,
    )
    away = a_node("n4", labels=_labels("b"), taints=(UNREACHABLE,))
    nodes_by_name = {**nodes(dict(ZONES)), NodeName("n4"): away}
    other = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))

    assert nodes_left(pod, nodes_by_name, [other]) == {"n4"}


def test_pods_that_end_or_run_elsewhere_do_not_count():
    setup = an_admission_setup(dict(ZONES))
    raw = admitted(setup, "p")
    pod = msgspec.convert(raw, Pod)

    def other(**changes: Any) -> Pod:
        spec = {**raw["spec"], "nodeName": "n1"}
        metadata = {**raw["metadata"], **changes.pop("metadata", {})}
        return msgspec.convert({**raw, "spec": spec, "metadata": metadata, **changes}, Pod)

    assert nodes_left(pod, nodes(dict(ZONES)), [other()]) == {"n4"}
    for gone in (
        other(status={"phase": "Succeeded"}),
        other(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        other(metadata={"namespace": "elsewhere"}),
        other(metadata={"labels": {}}),
    ):
        assert nodes_left(pod, nodes(dict(ZONES)), [gone]) == set(ZONES)
