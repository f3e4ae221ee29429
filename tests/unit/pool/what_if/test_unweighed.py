"""What is not weighed is named: preferences of a pod without a reservation, labels of namespaces, and not what admission adds."""

from typing import Any

import msgspec
import pytest

from admission.webhooks import mutate_pod
from api.annotations import decode_reservation
from api.foreign.core import Pod
from api.names import POOL_LABEL, RESERVATION_ANNOTATION
from pool.facts import pod_facts
from pool.what_if.explain import explain
from pool.what_if.question import WaitQuestion
from tests.support.reviews import AdmissionSetup, a_pod_object, stored

Object = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GATED = {"schedulingGates": [{"name": "example.com/quota"}]}
SPREAD, NEAR, APART = (
    "spec.topologySpreadConstraints",
    "spec.affinity.podAffinity",
    "spec.affinity.podAntiAffinity",
)


def a_setup(strategy: str = "LeastFragmentation") -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(scheduling={"strategy": strategy})
    for name in ("n0", "n1"):
        setup.add_node(name, 4, labels={HOST: name})
    return setup


def admitted(setup: AdmissionSetup, **spec: Any) -> Object:
    pod = a_pod_object(spec=spec)
    return stored(setup.ask(mutate_pod, pod).applied_to(pod), uid="asked")


def has_units(pod: Object) -> bool:
    note = decode_reservation(pod["metadata"]["annotations"][RESERVATION_ANNOTATION])
    return note is not None and bool(note.node)


def named(setup: AdmissionSetup, pod: Object) -> list[str]:
    """What the explanation of a stored pod names, but for its gates."""
    facts = pod_facts(msgspec.convert({"status": {}, **pod}, Pod))
    assert facts is not None
    state = setup.allocation_state
    state.observe_pod(facts, setup.now)
    found = explain(state.reader, state.index, WaitQuestion(pod=facts, now=setup.now.monotonic))
    return [field for field in found.unweighed if field != "spec.schedulingGates"]


def a_term(key: str = HOST, **more: Any) -> Object:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}, **more}


def soft(key: str, **more: Any) -> Object:
    return {**a_term(key), "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **more}


def preferring(term: Object) -> Object:
    return {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}


OURS = {"labelSelector": {"matchLabels": {POOL_LABEL: "whole"}}, "nodeTaintsPolicy": "Honor"}


@pytest.mark.parametrize(
    ("given", "number", "fields"),
    [
        pytest.param([], 1, [], id="nothing but ours"),
        pytest.param([soft(HOST)], 2, [SPREAD], id="the pod's, and ours"),
        pytest.param([soft(ZONE)], 1, [SPREAD], id="the pod's in place of ours"),
        pytest.param([soft(HOST, **OURS)], 2, [SPREAD], id="as ours, by another label"),
        pytest.param([soft(ZONE, **{**OURS, "maxSkew": 2})], 1, [SPREAD], id="another skew"),
    ],
)
def test_the_soft_constraint_on_spreading_that_admission_adds_is_not_named(
    given: list[Object], number: int, fields: list[str]
):
    setup = a_setup("Spread")
    pod = admitted(setup, **GATED, **({"topologySpreadConstraints": given} if given else {}))
    assert len(pod["spec"]["topologySpreadConstraints"]) == number
    assert named(setup, pod) == fields


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"affinity": {"podAffinity": {}, "podAntiAffinity": {}}}, []),
        ({"affinity": {"podAffinity": preferring(a_term())}}, [NEAR]),
        ({"affinity": {"podAntiAffinity": preferring(a_term())}}, [APART]),
        ({"topologySpreadConstraints": [soft(HOST)]}, [SPREAD]),
        (
            {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}},
            [f"spec.affinity.nodeAffinity.{PREFERRED}"],
        ),
    ],
)
def test_preferences_are_named_where_no_reservation_has_weighed_them(
    spec: Object, fields: list[str]
):
    assert named(a_setup(), admitted(a_setup(), **GATED, **spec)) == fields
    setup = a_setup()
    reserved = admitted(setup, **spec)
    assert has_units(reserved)
    assert named(setup, reserved) == []


OTHERS: Object = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


@pytest.mark.parametrize(
    ("affinity", "has_reservation", "field"),
    [
        ({"podAffinity": preferring(a_term(**OTHERS))}, True, NEAR),
        ({"podAntiAffinity": preferring(a_term(**OTHERS))}, True, APART),
        ({"podAntiAffinity": preferring(a_term(**OTHERS))}, False, APART),
        ({"podAntiAffinity": {REQUIRED: [a_term(**OTHERS)]}}, False, APART),
        # It is reserved where no pod of any namespace is, and nowhere beside them.
        ({"podAntiAffinity": {REQUIRED: [a_term(**OTHERS)]}}, True, None),
        ({"podAffinity": preferring(a_term(namespaceSelector={}))}, True, None),
    ],
)
def test_a_selector_of_namespaces_by_labels_that_did_not_count_is_named(
    affinity: Object, has_reservation: bool, field: str | None
):
    setup = a_setup()
    pod = admitted(setup, **({} if has_reservation else GATED), affinity=affinity)
    assert has_units(pod) is has_reservation
    assert named(setup, pod) == ([f"{field}[].namespaceSelector"] if field else [])
