"""What kube-scheduler, and others, put on the wire, and what they get back."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.codec import (
    BindRequest,
    CandidatesRequest,
    MalformedArgs,
    PreemptionRequest,
    decode_bind,
    decode_candidates,
    decode_preemption,
)
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from tests.support.scheduling import (
    ExtenderSetup,
    a_wire_pod,
    binding_args,
    extender_args,
    preemption_args,
)


def with_keys(body: bytes, change: Any) -> bytes:
    return json.dumps({change(key): value for key, value in json.loads(body).items()}).encode()


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase], ids=lambda f: f.__name__)
def test_keys_in_any_casing_mean_the_same(change):
    """As Go reads them; api/v1 up to Kubernetes 1.16 sent lower case."""
    candidates = extender_args(a_wire_pod(whole=1), "n1", "n2")
    binding = binding_args()
    assert decode_candidates(with_keys(candidates, change)) == decode_candidates(candidates)
    assert decode_bind(with_keys(binding, change)) == decode_bind(binding)


def test_keys_of_victims_are_read_in_any_casing():
    body = preemption_args(a_wire_pod(whole=1), n1=["u1"])
    odd = {
        "pod": a_wire_pod(whole=1),
        "nodenametometavictims": {"n1": {"pods": [{"uid": "u1"}], "numpdbviolations": 0}},
    }
    assert decode_preemption(json.dumps(odd).encode()) == decode_preemption(body)


@pytest.mark.parametrize("victims", [5, {"pods": 5}, {"pods": [5]}], ids=str)
def test_victims_of_the_wrong_type_are_refused_in_any_casing(victims):
    odd = {"pod": a_wire_pod(whole=1), "nodenametometavictims": {"n1": victims}}
    request = decode_preemption(json.dumps(odd).encode())
    assert isinstance(request, MalformedArgs)
    assert "$.NodeNameToMetaVictims[...]" in request.error


def test_the_pod_inside_keeps_its_own_casing():
    odd = {"pod": {"metadata": {"name": "p"}, "SPEC": {"containers": []}}, "nodenames": []}
    request = decode_candidates(json.dumps(odd).encode())
    assert isinstance(request, CandidatesRequest)
    assert (request.pod.metadata.name, request.pod.spec.containers) == ("p", None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b'{"Pod":', "truncated", id="truncated"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="array"),
        pytest.param(b"null", "Expected `object`, got `null`", id="null"),
        pytest.param(b"<html>", "malformed", id="html"),
        pytest.param(b'{"Pod": {}, "NodeNames": []} {}', "trailing characters", id="two values"),
        pytest.param(b'{"Pod": {}, "NodeNames": [1]}', "$.NodeNames[0]", id="a number for a name"),
        pytest.param(b'{"Pod": {}, "nodenames": [1]}', "$.NodeNames[0]", id="odd casing, too"),
        pytest.param(
            b'{"Pod": {"metadata": {"name": 1}}, "NodeNames": []}', "$.Pod.metadata.name", id="type"
        ),
        pytest.param(b'{"Pod": {"metadata": {"name": "\xff"}}}', "utf-8", id="not UTF-8"),
        pytest.param(b'{"x": ' + b"[" * 10**5, "nested too deeply", id="nesting"),
        pytest.param(b'{"NodeNames": ["n1"]}', "Pod is missing", id="no pod"),
        pytest.param(b'{"Pod": null, "NodeNames": ["n1"]}', "Pod is missing", id="null pod"),
        pytest.param(
            b'{"Pod": {}, "NodeNames": null, "Nodes": null}',
            "both NodeNames and Nodes are missing",
            id="no nodes",
        ),
    ],
)
def test_broken_candidates_are_refused_in_words(body, words):
    request = decode_candidates(body)
    assert isinstance(request, MalformedArgs)
    assert words in request.error


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_bind_names_what_it_lacks(missing):
    request = decode_bind(binding_args(**{missing: ""}))
    assert request == MalformedArgs(f"ExtenderBindingArgs: {missing} missing or empty")


def test_a_victim_without_uid_is_refused():
    request = decode_preemption(preemption_args(a_wire_pod(whole=1), n1=[""]))
    assert request == MalformedArgs("ExtenderPreemptionArgs: a victim on node n1 has no UID")


async def test_full_nodes_are_refused_by_every_verb_that_gets_them():
    """Lesson 24: nodeCacheCapable: false sends whole nodes both ways and spoils in-tree scores."""
    setup = ExtenderSetup().pool(n1=1)
    pod = a_wire_pod(whole=1)
    body = json.dumps({"Pod": pod, "Nodes": {"items": [{"metadata": {"name": "n1"}}]}}).encode()
    answer = filter_nodes(body, setup.context)
    assert "nodeCacheCapable: true" in json.loads(answer.body)["Error"]
    assert answer.outcome == "malformed"
    assert prioritize(body, setup.context).body == b"[]"
    victims = {"n1": {"Pods": [{"metadata": {"uid": "u"}}], "NumPDBViolations": 0}}
    body = json.dumps({"Pod": pod, "NodeNameToVictims": victims}).encode()
    answer = preempt(body, setup.context)
    assert json.loads(answer.body) == {"NodeNameToMetaVictims": {}}
    assert "nodeCacheCapable: true" in str(answer.facts["error"])


async def test_a_body_that_cannot_be_read_is_answered_in_the_form_of_the_verb():
    context = ExtenderSetup().context
    assert "truncated" in json.loads(filter_nodes(b"", context).body)["Error"]
    assert json.loads(prioritize(b"", context).body) == []
    assert json.loads(preempt(b"", context).body) == {"NodeNameToMetaVictims": {}}
    assert "truncated" in json.loads((await bind(b"", context)).body)["Error"]


def test_node_names_is_a_list_in_every_reply():
    """Lesson 25: null reads as "no node fits"."""
    setup = ExtenderSetup().pool(n1=1)
    setup.is_ready = False
    for body in (
        b"",
        extender_args(a_wire_pod(whole=1), "n1"),
        extender_args(a_wire_pod(whole=9), "n1"),
        extender_args(a_wire_pod()),
    ):
        setup.is_ready = not setup.is_ready
        assert isinstance(json.loads(filter_nodes(body, setup.context).body)["NodeNames"], list)


def test_replies_have_the_keys_of_the_go_structs():
    setup = ExtenderSetup().pool(n1=1)
    body = extender_args(a_wire_pod(whole=1), "n1")
    assert json.loads(filter_nodes(body, setup.context).body) == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert json.loads(prioritize(body, setup.context).body) == [{"Host": "n1", "Score": 9}]


def test_five_thousand_names_are_read():
    """Lesson 34: what comes in one body is bounded by the server, not here."""
    names = [f"node-{number:05d}.eu-central-1.compute.internal" for number in range(5000)]
    request = decode_candidates(extender_args(a_wire_pod(whole=1), *names))
    assert isinstance(request, CandidatesRequest)
    assert request.names == names


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_no_bytes_raise(body):
    for decode in (decode_candidates, decode_preemption, decode_bind):
        decode(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Pod", "pod", "NodeNames", "Nodes", "NodeNameToMetaVictims", "Pods", "uid", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_json_raises(value):
    body = msgspec.json.encode(value)
    assert isinstance(decode_candidates(body), MalformedArgs | CandidatesRequest)
    assert isinstance(decode_preemption(body), MalformedArgs | PreemptionRequest)
    assert isinstance(decode_bind(body), MalformedArgs | BindRequest)
