"""Explanations of one moment: alike pods share one, which names none of them and none of other namespaces."""

import pytest

from api.names import NodeName, PodUid
from api.well_known_labels import HOSTNAME_LABEL
from pool.compute_resources import ComputeResources
from pool.model import PodPhase, PodSelection
from pool.peer_rules import Peer, PeerKind, PeerRule
from pool.pods.observed import ObservedPods
from reconciler.pod.shared_explanations import SharedExplanations
from tests.support.allocation_state import some_allocation_state, some_devices
from tests.support.builders import a_node, a_pod_facts, at


@pytest.fixture
def state():
    return some_allocation_state(devices=some_devices(8))


def test_pods_of_equal_demand_and_selection_share_an_explanation(state):
    explanations = SharedExplanations(state.reader, state.index, lambda: at(0))
    selection = PodSelection(node_selector=(("zone", "a"),))
    alike = [a_pod_facts(f"p{number}", units=9, selection=selection) for number in range(5)]
    texts = [explanations.explain(pod) for pod in alike]
    assert all(text is texts[0] for text in texts)
    larger = explanations.explain(a_pod_facts("larger", units=10, selection=selection))
    anywhere = explanations.explain(a_pod_facts("anywhere", units=9))
    assert len({id(text) for text in (texts[0], larger, anywhere)}) == 3


def test_a_pod_with_our_gate_does_not_share_the_explanation_of_one_without(state):
    explanations = SharedExplanations(state.reader, state.index, lambda: at(0))
    free, gated = a_pod_facts("free"), a_pod_facts("gated", awaits_capacity=True)
    assert explanations.explain(free).is_available
    assert not explanations.has_explained(gated)
    assert not explanations.explain(gated).is_available


def test_a_pod_that_requests_more_cpu_than_nodes_have_shares_with_none_that_does_not(state):
    state.index.replace_node(a_node("n1", cpu_milli=1_000))
    explanations = SharedExplanations(state.reader, state.index, lambda: at(0))
    assert explanations.explain(a_pod_facts("small")).is_available
    large = explanations.explain(a_pod_facts("large", requests=ComputeResources(2_000)))
    assert large.reason.value == "NodesExcluded"
    assert "short of CPU" in large.message


def test_pods_of_one_spec_that_others_keep_away_share_with_none_that_they_do_not(state):
    """As the pods of a StatefulSet, which differ by their labels alone."""
    state.index.replace_node(a_node("n1", labels={HOSTNAME_LABEL: "n1"}))
    rule = PeerRule(PeerKind.ANTI_AFFINITY, HOSTNAME_LABEL, "app=web", ("default",))
    state.index.peers.replace(PodUid("other"), NodeName("n1"), Peer("default", (), (rule,)))
    explanations = SharedExplanations(state.reader, state.index, lambda: at(0))
    selection = PodSelection()
    for app, reason in (("web", "NodesExcluded"), ("db", "UnitsAvailable")):
        pod = a_pod_facts(app, selection=selection, peer=Peer("default", (("app", app),)))
        assert explanations.explain(pod).reason.value == reason


def test_a_pod_is_compared_with_the_rules_of_others_only_where_it_is_explained(state):
    """There may be thousands of rules, and the time of explanations is limited."""
    explanations = SharedExplanations(state.reader, state.index, lambda: at(0))
    web, db, queue = (
        a_pod_facts(app, selection=None, peer=Peer("default", (("app", app),)))
        for app in ("web", "db", "queue")
    )
    text = explanations.explain(web)
    assert (explanations.has_explained(web), explanations.has_explained(db)) == (True, True)
    rule = PeerRule(PeerKind.ANTI_AFFINITY, HOSTNAME_LABEL, "app=x", ("default",))
    state.index.peers.replace(PodUid("x"), NodeName("n1"), Peer("other", (), (rule,)))
    assert (explanations.has_explained(web), explanations.has_explained(queue)) == (True, False)
    assert explanations.explain(queue) is text


def test_where_a_node_has_units_what_is_not_weighed_is_named(state):
    selection = PodSelection(unweighed=("spec.hostNetwork", "spec.resourceClaims"))
    explanations = SharedExplanations(state.reader, state.index, lambda: at(0))
    named = "; not checked, Kubernetes decides: spec.hostNetwork, spec.resourceClaims"
    for units, is_named in ((8, True), (9, False)):
        text = explanations.explain(a_pod_facts(units=units, selection=selection))
        assert text.message.endswith(named) is is_named


def test_later_explanations_see_what_has_changed(state):
    pod = a_pod_facts(units=8)
    text = SharedExplanations(state.reader, state.index, lambda: at(0)).explain(pod)
    assert text.is_available
    holder = a_pod_facts("b", phase=PodPhase.BOUND, node="n1", devices={"c0": ("GPU-n1-0",)})
    state.observe_pod(holder, at(0))
    text = SharedExplanations(state.reader, state.index, lambda: at(0)).explain(pod)
    assert (text.is_available, text.reason.value) == (False, "UnitsExhausted")


def test_a_text_names_no_pod(state):
    for number in range(8):
        holder = a_pod_facts(
            f"secret-holder-{number}",
            namespace="secret-team",
            phase=PodPhase.BOUND,
            node="n1",
            devices={"c0": (f"GPU-n1-{number}",)},
        )
        state.observe_pod(holder, at(0))
    for units in (1, 8, 9):
        pod = a_pod_facts("waiting", units=units)
        text = SharedExplanations(state.reader, state.index, lambda: at(0)).explain(pod)
        assert "secret" not in text.message
        assert "waiting" not in text.message


def test_waiting_pods_of_all_resources_are_found():
    pods = ObservedPods()
    some = [a_pod_facts("a"), a_pod_facts("b", pool="gone"), a_pod_facts("c", is_gated=True)]
    for pod in some:
        pods.update(pod)
        pods.await_units(pod.uid)
    assert sorted(pod.name for pod in pods.all_waiting()) == ["a", "b"]
