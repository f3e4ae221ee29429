"""Lists that come again are read once, and answered as if each time were the first."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from api.kinds.gpupool import Strategy
from api.names import NodeName, PodUid
from pool.placement.planner import Placed
from scheduler.codec import MalformedArgs, decode_candidates
from scheduler.extender import filter_nodes, prioritize
from scheduler.node_lists import MAX_LIST_BYTES, MAX_LISTS, CandidatesReader
from tests.support.builders import a_demand, a_node, a_pool
from tests.support.naive_extender import naive_filter, naive_prioritize
from tests.support.scheduling import ExtenderSetup, a_wire_pod, extender_args

NODES = ("n0", "n1", "n2", "n3")
LISTS: tuple[list[str], ...] = (
    ["n0", "n1", "n2"],
    ["n2", "n3", "gone"],
    ["n2", "n1", "n0"],
    ["n1"],
    ["n1", "n1", "n0"],
    [],
)


def read_by_both(reader: CandidatesReader, body: bytes) -> tuple[Any, Any]:
    """Return what the reader says and what the plain decoder says, in the same form."""
    question, request = reader.read(body), decode_candidates(body)
    if isinstance(question, MalformedArgs) or isinstance(request, MalformedArgs):
        return question, request
    assert json.loads(question.candidates.raw) == question.candidates.names
    return (question.pod, question.candidates.names), (request.pod, request.names)


def asking(names: str, before: str = '{"Pod":{"metadata":{"name":"p"}},"Nodes":null') -> bytes:
    return f'{before},"NodeNames":{names}}}'.encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(asking('["a","b"]'), id="as kube-scheduler sends it"),
        pytest.param(asking("[]"), id="empty"),
        pytest.param(asking("null"), id="null"),
        pytest.param(asking('["a","a"]'), id="twice the same"),
        pytest.param(asking(' [ "a" ,\n"b" ] '), id="whitespace"),
        pytest.param(asking('["a"]') + b"\n", id="whitespace at the end"),
        pytest.param(asking('["a"]') + b"x", id="garbage at the end"),
        pytest.param(asking(r'["\u0061","\"","\\","]}"]'), id="escapes"),
        pytest.param(asking('["größe","名","😀"]'), id="unicode"),
        pytest.param(asking('["a"]').replace(b"a", b"\xff"), id="not UTF-8"),
        pytest.param(asking('["\n"]'), id="a control character"),
        pytest.param(asking('["a",1]'), id="a number for a name"),
        pytest.param(asking('["a"'), id="unfinished"),
        pytest.param(asking('["a"]]'), id="closed twice"),
        pytest.param(asking('["a"],"Nodes":{}'), id="nodes behind"),
        pytest.param(asking('["a"],"NodeNames":["b"]'), id="names twice"),
        pytest.param(asking('["a"]', '{"Pod":{},"Nodes":{"items":[]}'), id="nodes before"),
        pytest.param(asking('["a"]', '{"Pod":{"x":{}'), id="inside the pod"),
        pytest.param(asking('["a"]}', '{"Pod":{"x":{}'), id="inside the pod, which is closed"),
        pytest.param(asking('["a"]', '{"Pod":{},"x":"'), id="inside a text"),
        pytest.param(asking('["a"]', r'{"Pod":{},"x":"\"'), id="behind an escaped quote"),
        pytest.param(asking('["a"]', r'{"Pod":{},"x\",\"NodeNames\":[":1'), id="a key like ours"),
        pytest.param(asking('["a"]', '{"Pod":{},"NodeNames":["c"]'), id="names before, too"),
        pytest.param(asking('["a"]', "{"), id="nothing before"),
        pytest.param(asking('["a"]', '{"Nodes":null'), id="no pod"),
        pytest.param(asking('["a"]', '{"pod":{"metadata":{"name":"q"}}'), id="odd casing"),
        pytest.param(asking('["a"]', '{"Pod":null'), id="null pod"),
        pytest.param(asking('["a"]', '{"Pod":{"metadata":{"name":1}}'), id="a broken pod"),
        pytest.param(asking('["a"]', '{"Pod":{} "x":1'), id="no comma"),
        pytest.param(asking('["a"]', '{"Pod":{},'), id="a comma too many"),
        pytest.param(asking('["a"]', '[{"Pod":{}'), id="an array"),
        pytest.param(asking('["a"]', '{"x": ' + "[" * 10**5), id="nesting"),
        pytest.param(b'{"NodeNames":["a"],"Pod":{}}', id="names first"),
        pytest.param(b'{"Pod":{},"NodeNamez":["a"]}', id="a key as long as ours"),
        pytest.param(b'{"Pod":{},"NodeNames": ["a"]}', id="a blank before the names"),
    ],
)
def test_every_body_is_read_as_the_plain_decoder_reads_it(body):
    reader = CandidatesReader()
    for names in ('["a"]', '["a","b"]', "[]"):
        reader.read(asking(names))  # lists whose ends are known
    for _ in range(2):
        ours, plain = read_by_both(reader, body)
        assert ours == plain


names = st.lists(st.text(max_size=4) | st.sampled_from(["]}", '","', ',"NodeNames":[', "\\"]))
pods = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.text(max_size=3)})},
    optional={"NodeNames": names, "x": st.text(max_size=3) | st.just(',"NodeNames":["a"]}')},
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Requests, some of them bent: cut, with bytes exchanged, in another order or spelling."""
    keys: dict[str, Any] = {"Pod": draw(pods), "Nodes": None, "NodeNames": draw(names)}
    order = draw(st.permutations(list(keys)) | st.just(list(keys)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    text = json.dumps(
        {key: keys[key] for key in order},
        separators=separators,
        ensure_ascii=draw(st.booleans()),
    )
    body = text.encode("utf-8", "surrogatepass")
    match draw(st.sampled_from(["whole", "whole", "cut", "bent", "doubled"])):
        case "cut":
            return body[: draw(st.integers(0, len(body)))]
        case "bent":
            at = draw(st.integers(0, len(body) - 1))
            return (
                body[:at]
                + draw(st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b","]))
                + body[at + 1 :]
            )
        case "doubled":
            return body[:-1] + b"," + body[1:]
        case _:
            return body


@given(st.lists(bodies(), min_size=1, max_size=6))
def test_no_request_is_misread_for_what_was_read_before(requests):
    reader = CandidatesReader()
    for body in [*requests, *requests]:
        ours, plain = read_by_both(reader, body)
        assert ours == plain


def test_a_list_that_comes_again_keeps_its_names():
    reader = CandidatesReader()
    first = reader.read(extender_args(a_wire_pod("p", whole=1), "n1", "n2"))
    second = reader.read(extender_args(a_wire_pod("q", whole=1), "n1", "n2"))
    assert not isinstance(first, MalformedArgs)
    assert not isinstance(second, MalformedArgs)
    assert second.candidates is first.candidates
    assert (first.pod.metadata.name, second.pod.metadata.name) == ("p", "q")


def test_what_filter_answers_is_known_when_prioritize_brings_it():
    setup = ExtenderSetup().pool(n1=1, n2=4)
    pod = a_wire_pod(whole=2)
    reply = json.loads(filter_nodes(extender_args(pod, "n1", "n2"), setup.context).body)
    assert reply["NodeNames"] == ["n2"]
    kept = setup.context.candidates._lists[0]
    assert kept.names == ["n2"]
    prioritize(extender_args(pod, "n2"), setup.context)
    assert setup.context.candidates._lists[0] is kept


def test_few_lists_are_kept_and_no_long_ones():
    reader = CandidatesReader()
    for number in range(3 * MAX_LISTS):
        reader.read(extender_args(a_wire_pod(), f"n{number}"))
    reader.read(extender_args(a_wire_pod(), "x" * MAX_LIST_BYTES))
    assert [item.names for item in reader._lists] == [
        [f"n{number}"] for number in range(3 * MAX_LISTS - 1, 2 * MAX_LISTS - 1, -1)
    ]


class AnswersAsIfForTheFirstTime(RuleBasedStateMachine):
    """One context through a changing world, beside answers made node by node from nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = ExtenderSetup().pool(n0=1, n1=2, n2=4)
        self.setup.allocation_state.index.replace_node(a_node("n3"))

    @rule(name=st.sampled_from("pq"), units=st.integers(1, 4), node=st.sampled_from(NODES[:3]))
    def reserve(self, name: str, units: int, node: str) -> None:
        uid = PodUid(f"uid-{name}")
        if (
            self.setup.unreserved(node) >= units
            and self.setup.allocation_state.ledger.of_pod(uid) is None
        ):
            self.setup.reserve(name, units, node)

    @rule(name=st.sampled_from("pq"))
    def release(self, name: str) -> None:
        self.setup.allocation_state.release(PodUid(f"uid-{name}"))

    @rule(name=st.sampled_from(["p", "other"]), node=st.sampled_from(NODES[:3]))
    def bind(self, name: str, node: str) -> None:
        pool = self.setup.allocation_state.index.pool_of("gpu.deckhouse.io/whole")
        assert pool is not None
        uid = PodUid(f"uid-{name}")
        placed = self.setup.allocation_state.reader.plan_bind(
            NodeName(node), pool, a_demand(1), uid=uid
        )
        if isinstance(placed, Placed):
            self.setup.bound(name, node, *placed.devices["c0"])

    @rule(name=st.sampled_from(["p", "other"]))
    def end(self, name: str) -> None:
        self.setup.allocation_state.discard_pod(PodUid(f"uid-{name}"))

    @rule(number=st.integers(0, 6), is_faulted=st.booleans())
    def fault(self, number: int, is_faulted: bool) -> None:
        entry = sorted(
            self.setup.allocation_state.index.devices.all(), key=lambda device: device.facts.name
        )[number]
        self.setup.allocation_state.index.replace_device(
            replace(entry.facts, is_faulted=is_faulted)
        )

    @rule(strategy=st.sampled_from(Strategy))
    def change_pool(self, strategy: Strategy) -> None:
        self.setup.allocation_state.index.replace_pool(a_pool(strategy=strategy))

    @rule(is_there=st.booleans())
    def node_of_no_pool(self, is_there: bool) -> None:
        if is_there:
            self.setup.allocation_state.index.replace_node(a_node("n3"))
        else:
            self.setup.allocation_state.index.discard_node(NodeName("n3"))

    @rule(
        name=st.sampled_from("pqr"),
        limits=st.sampled_from([{"whole": 1}, {"whole": 2}, {"whole": 9}, {}, {"none": 1}]),
        names=st.sampled_from(LISTS),
    )
    def ask(self, name: str, limits: dict[str, int], names: list[str]) -> None:
        body = extender_args(a_wire_pod(name, **limits), *names)
        allocation_state, context = self.setup.allocation_state, self.setup.context
        answer = filter_nodes(body, context)
        expected = naive_filter(body, allocation_state)
        assert json.loads(answer.body) == expected
        assert answer.facts["fit"] == len(expected["NodeNames"])
        assert json.loads(prioritize(body, context).body) == naive_prioritize(
            body, allocation_state
        )

    @invariant()
    def what_was_found_out_holds_still(self) -> None:
        for names in LISTS[:2]:
            self.ask("new", {"whole": 1}, names)


TestAnswersAsIfForTheFirstTime = AnswersAsIfForTheFirstTime.TestCase
PROFILE = settings()
TestAnswersAsIfForTheFirstTime.settings = settings(
    max_examples=max(40, PROFILE.max_examples), stateful_step_count=30
)
