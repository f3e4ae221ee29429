"""Volumes and rules about other pods become requirements on labels that a node can be asked for with."""

import pytest

from api.foreign.core import NodeSelectorTerm
from api.foreign.storage import TopologyTerm, TopologyValues
from api.meta import SelectorOperator, SelectorRequirement
from api.names import NodeName, PodUid
from autoscaling.node_selections import NodeSelection
from autoscaling.scaling_model import WaitReason
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import PodSelection, UnitlessPod
from pool.peer_rules import PeerKind, PeerRule
from reconciler.scaling.demand.pod_places import (
    Place,
    place_by_peers,
    place_of_class,
    place_of_volume,
    placed,
    with_terms,
)
from tests.support.scaling_plans import (
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    planned,
    some_parameters,
)

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def expression(key: str, *values: str, operator: str = "In") -> SelectorRequirement:
    return SelectorRequirement(key=key, operator=SelectorOperator(operator), values=list(values))


def term(*expressions: SelectorRequirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=list(expressions))


def rule(kind: PeerKind, key: str = ZONE, **changes) -> PeerRule:
    return PeerRule(kind=kind, key=key, selector="app=x", **changes)


@pytest.mark.parametrize(
    "key",
    [
        ZONE,
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
        "failure-domain.beta.kubernetes.io/zone",
    ],
)
def test_the_zone_of_a_volume_is_required_whatever_its_driver_calls_it(key):
    assert place_of_volume("data", [term(expression(key, "b"))]) == Place(
        (term(expression(ZONE, "b")),)
    )


def test_labels_of_a_volume_that_no_autoscaler_knows_are_named_and_keep_no_node_away():
    zone, own = expression(ZONE, "b"), expression("topology.example.com/rack", "r1")
    assert place_of_volume("data", [term(zone, own)]) == Place(
        (term(zone),), "a part of the place of claim data"
    )
    assert place_of_volume("data", [term(zone), term(own)]).terms == ()
    assert place_of_volume("data", []) == Place()


def test_a_volume_that_is_to_be_made_is_where_its_class_allows():
    topologies = [
        TopologyTerm(match_label_expressions=[TopologyValues(key=ZONE, values=["b", "a"])]),
        TopologyTerm(match_label_expressions=[TopologyValues(key=ZONE, values=["c"])]),
    ]
    assert place_of_class("data", topologies).terms == (
        term(expression(ZONE, "a", "b")),
        term(expression(ZONE, "c")),
    )


def test_a_pod_goes_where_the_pods_are_that_it_must_be_near_and_waits_while_there_are_none():
    near = rule(PeerKind.AFFINITY)
    assert place_by_peers(near, {"a": 2}, ()).terms == (term(expression(ZONE, "a")),)
    assert "none is bound" in place_by_peers(near, {}, ()).undecided
    assert place_by_peers(rule(PeerKind.AFFINITY, counts_itself=True), {}, ()) == Place()
    assert place_by_peers(rule(PeerKind.AFFINITY, "example.com/rack"), {"r": 1}, ()).omitted


def test_a_pod_keeps_away_from_the_pods_that_it_must_be_apart_from():
    terms = (term(expression(ZONE, "a", "c", operator="NotIn")),)
    assert place_by_peers(rule(PeerKind.ANTI_AFFINITY), {"c": 1, "a": 1}, ()) == Place(terms)
    assert place_by_peers(rule(PeerKind.ANTI_AFFINITY), {}, ()) == Place()


@pytest.mark.parametrize(
    ("counts", "changes", "full"),
    [
        ({"a": 1}, {"counts_itself": True}, ["a"]),
        ({"a": 1, "b": 1}, {"counts_itself": True}, []),
        ({"a": 3, "b": 1}, {"counts_itself": True, "max_skew": 2}, ["a"]),
        ({"a": 1, "b": 1}, {"counts_itself": True, "min_domains": 3}, ["a", "b"]),
        ({"a": 1}, {}, []),
    ],
)
def test_spreading_leaves_out_the_values_that_have_too_many(counts, changes, full):
    place = place_by_peers(rule(PeerKind.SPREAD, **changes), counts, {"a", "b"})
    assert place.terms == ((term(expression(ZONE, *full, operator="NotIn")),) if full else ())


def test_each_alternative_of_a_pod_has_each_one_of_its_volume():
    own = PodSelection(affinity=(term(expression("x", "1")), term(expression("x", "2"))))
    found = placed(own, [Place((term(expression(ZONE, "a")), term(expression(ZONE, "b"))))])
    assert len(found.affinity) == 4
    nothing = PodSelection(affinity=(NodeSelectorTerm(),))
    assert with_terms(nothing, [term(expression(ZONE, "a"))]) == nothing


def test_alternatives_that_are_too_many_are_named():
    zones = Place(tuple(term(expression(ZONE, str(number))) for number in range(9)))
    found = placed(PodSelection(), [zones, zones])
    assert (len(found.affinity), len(found.omitted)) == (9, 1)


def test_a_new_node_is_none_of_those_that_are_excluded_by_name():
    excluded = expression(HOST, "n1", operator="NotIn")
    zone = expression(ZONE, "a")
    assert NodeSelection(PodSelection(affinity=(term(excluded),))).terms == ()
    assert NodeSelection(PodSelection(affinity=(term(excluded, zone),))).terms == (term(zone),)


def test_pods_that_are_alike_but_for_their_claims_are_of_one_kind():
    pods = [
        a_waiting_pod(f"p{number:03}", selection=PodSelection(omitted=(f"claim {number}",)))
        for number in range(200)
    ]
    plan = planned(some_parameters(), pods)
    assert (len(plan.requests), dict(plan.waits)) == (25, {})


def test_two_pods_that_are_never_on_one_node_get_a_node_each():
    apart = rule(PeerKind.ANTI_AFFINITY, HOST, counts_itself=True)
    selection = placed(PodSelection(peers=(apart,)), [])
    pods = [a_waiting_pod(name, selection=selection) for name in "abc"]
    other = a_waiting_pod("d")
    plan = planned(some_parameters(), [*pods, other])
    assert [len(request.pods) for request in plan.requests] == [2, 1, 1]
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8)
    assert len(planned(some_parameters(), pods, state.index).requests) == 2


def test_a_pod_whose_volume_has_no_place_yet_gets_no_node():
    pod = a_waiting_pod("a", selection=placed(PodSelection(), [Place(undecided="no claim")]))
    plan = planned(some_parameters(), [pod])
    assert not plan.requests
    assert plan.waits[pod.uid].reason is WaitReason.PLACE_UNDECIDED


def test_no_more_pods_are_planned_onto_a_node_than_its_kubelet_runs():
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8, most_pods=4, labels={"karpenter.sh/nodepool": "whole"})
    for name in ("x", "y", "z"):
        other = UnitlessPod(PodUid(name), NodeName("n1"), ComputeResources(0, 0, 1))
        state.observe_unitless(other)
    pods = [a_waiting_pod(f"p{number}") for number in range(7)]
    plan = planned(some_parameters(a_shape()), pods, state.index)
    assert [len(request.pods) for request in plan.requests] == [4, 2]
