"""Whatever a pod looks like: its own output comes out unchanged, and nothing foreign is touched."""

import copy
from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from admission.webhooks import mutate_pod
from api.foreign.core import Pod
from api.text import pointer_token
from pool.demand import demand_of
from pool.model import Demand
from tests.support.builders import at
from tests.support.reviews import AdmissionSetup, a_pod_object
from tests.support.strategies import CAPACITY, pod_objects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TAINTS = [
    {"key": "gpu", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "effect": "NoExecute"},
]


def an_admission_setup() -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(
        "whole", scheduling={"strategy": "Spread", "topologyKey": "zone", "taints": TAINTS}
    )
    setup.add_pool("slices", autoscaling={"shapes": [{"name": "large", "devices": 8}]})
    setup.add_node("n1", devices=2, labels={"zone": "a"})
    setup.add_node("n2", devices=2, pool="slices")
    return setup


@given(pod=pod_objects(), dry_run=st.booleans())
def test_mutating_its_own_output_gives_an_empty_patch(pod, dry_run):
    setup = an_admission_setup()
    reply = setup.ask(mutate_pod, pod, dryRun=dry_run)
    if not reply.allowed:
        return
    once = reply.applied_to(pod)
    setup.now = at(1)

    again = setup.ask(mutate_pod, once, dryRun=dry_run, uid="another-call")

    assert again.patch == []
    assert len(setup.allocation_state.ledger) <= 1


def without_ours(pod: dict[str, Any]) -> dict[str, Any]:
    """Take out what admission adds; equal results mean that the rest is as it was."""
    pod = copy.deepcopy(pod)
    for field in ("labels", "annotations"):
        found = pod["metadata"].get(field) or {}
        ours = ("pool", "reservation", "devices", "woken")
        kept = {k: v for k, v in found.items() if k.removeprefix("gpu.deckhouse.io/") not in ours}
        pod["metadata"].pop(field, None)
        if kept:
            pod["metadata"][field] = kept
    spec = pod["spec"]
    for toleration in spec.get("tolerations") or []:
        toleration["ours"] = False
    spec["tolerations"] = [
        item
        for item in spec.get("tolerations") or []
        if {k: v for k, v in item.items() if k != "ours"}
        not in (
            {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {"key": "team", "operator": "Exists", "effect": "NoExecute"},
        )
    ]
    spec["topologySpreadConstraints"] = [
        item for item in spec.get("topologySpreadConstraints") or [] if "labelSelector" not in item
    ]
    if spec.get("schedulerName") in {"gpu-scheduler", "default-scheduler"}:
        spec["schedulerName"] = ""
    gates = [item for item in spec.pop("schedulingGates", None) or [] if item != CAPACITY]
    if gates:
        spec["schedulingGates"] = gates
    spec["affinity"] = without_our_affinity(spec.get("affinity") or {})
    return pod


def without_our_affinity(affinity: dict[str, Any]) -> dict[str, Any]:
    node = affinity.get("nodeAffinity") or {}
    required = node.get(REQUIRED) or {}
    terms = [
        {
            **term,
            "matchExpressions": [
                item
                for item in term.get("matchExpressions") or []
                if not (item["key"].startswith("pool.gpu") and set(item) == {"key", "operator"})
            ],
        }
        for term in required.get("nodeSelectorTerms") or []
    ]
    if terms == [{"matchExpressions": []}]:
        terms = []
    required = {**required, "nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": {**node, REQUIRED: required}}


@given(pod=pod_objects())
def test_nothing_else_in_the_pod_is_changed_dropped_or_reordered(pod):
    reply = an_admission_setup().ask(mutate_pod, pod)
    if not reply.allowed:
        return

    assert without_ours(reply.applied_to(pod)) == without_ours(pod)


@given(pod=pod_objects())
def test_an_admitted_pool_pod_carries_all_that_its_pool_needs(pod):
    reply = an_admission_setup().ask(mutate_pod, pod)
    demand = demand_of(msgspec.convert(pod, Pod).spec)
    if not reply.allowed or not isinstance(demand, Demand):
        return
    after = msgspec.convert(reply.applied_to(pod), Pod)

    pool = demand.resource.removeprefix("gpu.deckhouse.io/")
    assert after.metadata.label("gpu.deckhouse.io/pool") == pool
    assert after.metadata.annotation("gpu.deckhouse.io/reservation")
    affinity = after.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.required is not None
    for term in affinity.node_affinity.required.node_selector_terms or ():
        keys = [expression.key for expression in term.match_expressions or ()]
        assert f"pool.gpu.deckhouse.io/{pool}" in keys or not (keys or term.match_fields)


@given(key=st.text(max_size=10))
def test_any_key_survives_its_journey_through_a_json_pointer(key):
    document = {"a": {key: 1, "other": 2}}

    jsonpatch.JsonPatch([{"op": "remove", "path": f"/a/{pointer_token(key)}"}]).apply(
        document, in_place=True
    )

    assert key not in document["a"]


def test_operations_never_test_and_never_replace():
    reply = an_admission_setup().ask(mutate_pod, a_pod_object())

    assert {item["op"] for item in reply.patch} <= {"add", "remove"}
