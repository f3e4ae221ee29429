"""Rules by which pods keep others away are found by the namespaces of these."""

from hypothesis import given
from hypothesis import strategies as st

from api.names import NodeName, PodUid
from api.well_known_labels import HOSTNAME_LABEL
from pool.index.peers import Peers, selects
from pool.peer_rules import Peer, PeerKind, PeerRule

NAMESPACES = ("a", "b", "c")

rules = st.builds(
    PeerRule,
    kind=st.just(PeerKind.ANTI_AFFINITY),
    key=st.just(HOSTNAME_LABEL),
    selector=st.sampled_from([None, "", "app=x", "app=y"]),
    namespaces=st.lists(st.sampled_from(NAMESPACES), max_size=3).map(tuple),
    namespace_selector=st.sampled_from([None, None, "", "team=t"]),
)
peers = st.builds(
    Peer,
    namespace=st.sampled_from(NAMESPACES),
    labels=st.sampled_from([(), (("app", "x"),), (("app", "y"),)]),
    anti_affinity=st.lists(rules, max_size=3).map(tuple),
)
places = st.none() | peers


@given(st.lists(st.tuples(st.integers(0, 4), places), max_size=20), peers)
def test_the_rules_that_keep_a_pod_away_are_those_of_all_pods_that_select_it(changes, asking):
    index, expected = Peers(), {}
    for number, peer in changes:
        index.replace(PodUid(f"p{number}"), NodeName("n") if peer else None, peer)
        expected[number] = peer
    found = list(index.keeping_away(asking))
    assert len(found) == len(set(found))
    assert set(found) == {
        (rule, other)
        for other in expected.values()
        if other is not None
        for rule in other.anti_affinity
        if selects(rule, asking)
    }


def test_only_pods_that_are_there_keep_others_away():
    index, asking = Peers(), Peer("a", (("app", "x"),))
    rule = PeerRule(PeerKind.ANTI_AFFINITY, HOSTNAME_LABEL, "app=x", ("a",))
    other = Peer("b", (), (rule,))
    for pod in ("p0", "p1"):
        index.replace(PodUid(pod), NodeName("n"), other)
    index.replace(PodUid("p0"), None, None)
    assert list(index.keeping_away(asking)) == [(rule, other)]
    assert (index.may_keep_away("a"), index.may_keep_away("b")) == (True, False)
    index.replace(PodUid("p1"), None, None)
    assert list(index.keeping_away(asking)) == []
    assert not index.may_keep_away("a")


def test_a_rule_without_a_selector_selects_no_pod():
    rule = PeerRule(PeerKind.ANTI_AFFINITY, HOSTNAME_LABEL, None, ("a",))
    assert not selects(rule, Peer("a"))
