"""Each digest on each node has one state, and the cache has the gravest of those that matter."""

import datetime as dt
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.image_reference import Digest
from api.kinds.gkmcache import CacheConditionType
from api.kinds.gkmcachenode import CachedDigest, CachePod
from api.meta import Condition
from api.names import NodeName
from kernelcache.cache_conditions import (
    CacheState,
    DigestOnNode,
    DigestUse,
    cache_condition,
    reported_state,
    reported_use,
    state_of_cache,
    state_on_node,
)

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
NEW, OLD = Digest("sha256:" + "1" * 64), Digest("sha256:" + "0" * 64)
A, B, C = NodeName("a"), NodeName("b"), NodeName("c")
Type = CacheConditionType
ORDER = (
    Type.ERROR,
    Type.UNLOAD_ERROR,
    Type.OUTDATED,
    Type.RUNNING,
    Type.EXTRACTED,
    Type.PENDING,
)


def a_use(type_: Type, detail: str = "", pods: int = 0) -> DigestUse:
    return DigestUse(state=CacheState(type_, detail), pods=pods)


@pytest.mark.parametrize(
    ("digest", "is_current", "want"),
    [
        (DigestOnNode(is_extracted=False), True, Type.PENDING),
        (DigestOnNode(is_extracted=True), True, Type.EXTRACTED),
        (DigestOnNode(is_extracted=True, pods=1), True, Type.RUNNING),
        pytest.param(
            DigestOnNode(is_extracted=True, pods=1), False, Type.OUTDATED, id="G3: Outdated"
        ),
        pytest.param(DigestOnNode(is_extracted=True), False, Type.EXTRACTED, id="until removed"),
        (DigestOnNode(is_extracted=False, pull_fault="cut"), True, Type.ERROR),
        (DigestOnNode(is_extracted=True, pods=2, pull_fault="no fit"), True, Type.ERROR),
        (DigestOnNode(is_extracted=True, removal_fault="busy"), False, Type.UNLOAD_ERROR),
        (DigestOnNode(is_extracted=True, removal_fault="busy", pods=1), False, Type.OUTDATED),
    ],
)
def test_digest_on_a_node_has_one_state(digest, is_current, want):
    """G3: GKM sets Extracted where it should set Outdated, so that Outdated never appears."""
    assert state_on_node(digest, is_current=is_current).type is want


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (Type.PENDING, "Not yet complete"),
        (Type.EXTRACTED, "The Kernel Cache has been extracted onto the host"),
        (
            Type.RUNNING,
            "The Kernel Cache has been extracted and is in use by one or more pods",
        ),
        (
            Type.OUTDATED,
            "The Kernel Cache is in use by one or more pods but newer version exists",
        ),
        (Type.ERROR, "An error occurred trying to extract the Kernel Cache"),
        (Type.UNLOAD_ERROR, "An error occurred trying to remove the extracted Kernel Cache"),
    ],
)
def test_messages_are_those_of_the_design_and_details_follow(type_, message):
    """Section 1.3."""
    assert CacheState(type_).message == message
    assert CacheState(type_, "the layer is no gzip").message == f"{message}: the layer is no gzip"


def test_condition_is_the_only_one_and_its_reason_is_its_type():
    """Section 1.3: GKM's reason "Unload Error" has a blank, which the schema of conditions rejects."""
    current = [
        Condition(type="Running", status="True", last_transition_time="2026-01-01T00:00:00Z")
    ]
    [found] = cache_condition(CacheState(Type.UNLOAD_ERROR), current, generation=3, now=NOW)
    assert (found.type, found.reason, found.status) == ("UnloadError", "UnloadError", "True")
    assert found.last_transition_time == "2026-11-23T00:00:00Z"
    assert found.observed_generation == 3


def test_condition_that_stays_keeps_its_time():
    current = cache_condition(CacheState(Type.RUNNING), None, generation=1, now=NOW)
    later = NOW + dt.timedelta(hours=1)
    assert cache_condition(CacheState(Type.RUNNING), current, generation=1, now=later) == current


@pytest.mark.parametrize("type_", Type)
@pytest.mark.parametrize("detail", ["", "the layer is no gzip: 1"])
def test_shown_condition_is_read_back(type_, detail):
    state = CacheState(type_, detail)
    conditions = cache_condition(state, None, generation=1, now=NOW)
    assert reported_state(conditions) == state
    pods = [CachePod(pod_name="p"), CachePod(pod_name="q")]
    found = reported_use(CachedDigest(conditions=conditions, pods=pods))
    assert found == DigestUse(state=state, pods=2)


@pytest.mark.parametrize(
    "conditions",
    [
        None,
        [],
        [Condition(type="Downloading", status="True")],
        [Condition(type="Error", status="False")],
    ],
)
def test_status_without_a_known_condition_is_pending(conditions):
    """Issue 54 of GKM: a node object may have no status yet."""
    assert reported_state(conditions) == CacheState(Type.PENDING)
    assert reported_use(CachedDigest(conditions=conditions)).pods == 0


@pytest.mark.parametrize(("graver", "other"), [*itertools.combinations(ORDER, 2)])
def test_the_gravest_state_is_the_caches(graver, other):
    """Section 1.3: Error > Outdated > Running > Extracted > Pending."""
    nodes = {A: {NEW: a_use(other)}, B: {NEW: a_use(graver)}}
    assert state_of_cache(NEW, nodes).type is graver


def test_a_new_digest_leaves_the_state_of_the_old_one():
    """G4: with GKM a new digest wipes the status map of the old one."""
    nodes = {A: {OLD: a_use(Type.OUTDATED, pods=1), NEW: a_use(Type.EXTRACTED)}}
    assert state_of_cache(NEW, nodes) == CacheState(Type.OUTDATED, "node a")
    nodes = {A: {NEW: a_use(Type.EXTRACTED)}}
    assert state_of_cache(NEW, nodes) == CacheState(Type.EXTRACTED)


def test_an_error_of_a_former_digest_is_over():
    nodes = {A: {OLD: a_use(Type.ERROR, "cut"), NEW: a_use(Type.RUNNING, pods=1)}}
    assert state_of_cache(NEW, nodes) == CacheState(Type.RUNNING)


def test_a_former_digest_that_cannot_be_removed_is_shown():
    """G7."""
    nodes = {A: {OLD: a_use(Type.UNLOAD_ERROR, "busy"), NEW: a_use(Type.RUNNING, pods=1)}}
    assert state_of_cache(NEW, nodes) == CacheState(Type.UNLOAD_ERROR, "node a: busy")


def test_cache_that_no_node_has_is_pending_and_says_for_what():
    """G6: a missing digest is a ToDo in GKM."""
    found = state_of_cache(None, {A: {}}, progress="the image is not resolved")
    assert found == CacheState(Type.PENDING, "the image is not resolved")


def test_errors_are_told_by_node_and_equal_ones_together():
    gzip, cut = a_use(Type.ERROR, "the layer is no gzip"), a_use(Type.ERROR, "cut")
    nodes = {C: {NEW: gzip}, A: {NEW: gzip}, B: {NEW: cut}}
    found = state_of_cache(NEW, nodes)
    assert found.detail == "node a, c: the layer is no gzip; node b: cut"


def test_many_errors_are_cut():
    nodes = {NodeName(f"n{n}"): {NEW: a_use(Type.ERROR, "cut")} for n in range(9)}
    assert state_of_cache(NEW, nodes).detail == "node n0, n1, n2, n3, n4 and 4 more: cut"
    nodes = {NodeName(f"n{n}"): {NEW: a_use(Type.ERROR, f"{n} cut")} for n in range(7)}
    assert state_of_cache(NEW, nodes).detail.endswith("; node n4: 4 cut; 2 other errors")


USES = st.builds(a_use, st.sampled_from(Type), st.sampled_from(["", "cut"]), st.integers(0, 2))
NODES = st.dictionaries(
    st.sampled_from([A, B, C]), st.dictionaries(st.sampled_from([OLD, NEW]), USES), max_size=3
)


@given(NODES, st.randoms(use_true_random=False))
def test_order_of_nodes_and_digests_does_not_matter(nodes, random):
    shuffled = {
        node: dict(random.sample(list(digests.items()), len(digests)))
        for node, digests in random.sample(list(nodes.items()), len(nodes))
    }
    found = state_of_cache(NEW, nodes)
    assert state_of_cache(NEW, shuffled) == found
    current = {use.state.type for digests in nodes.values() for use in digests.values()}
    assert found.type in current | {Type.PENDING}
