"""What filter remembers for bind."""

from api.names import PodUid
from scheduler.context import RecentPods
from scheduler.extender import filter_nodes
from tests.support.builders import a_demand
from tests.support.scheduling import ExtenderSetup, a_wire_pod, extender_args


def test_a_pod_of_no_pool_is_told_from_one_never_seen():
    recent = RecentPods()
    recent.record_demand(PodUid("plain"), None)
    assert recent.has_demand(PodUid("plain"))
    assert recent.demand(PodUid("plain")) is None
    assert not recent.has_demand(PodUid("never"))


def test_the_pods_seen_longest_ago_are_forgotten_first():
    recent = RecentPods(limit=2)
    for name in ("a", "b", "a", "c"):
        recent.record_demand(PodUid(name), a_demand(1))
    assert [recent.has_demand(PodUid(name)) for name in "abc"] == [True, False, True]


def test_filter_remembers_stored_pods_that_may_be_bound_next():
    setup = ExtenderSetup().pool(n1=1)
    simulated = a_wire_pod("simulated")
    del simulated["metadata"]["uid"]
    for pod in (
        a_wire_pod("plain"),
        a_wire_pod("gpu", whole=1),
        a_wire_pod("lost", nowhere=1),
        simulated,
    ):
        filter_nodes(extender_args(pod, "n1"), setup.context)
    is_recent = {
        uid: setup.context.recent.has_demand(PodUid(uid)) for uid in ("uid-plain", "uid-gpu")
    }
    assert is_recent == {"uid-plain": True, "uid-gpu": True}
    assert setup.context.recent.demand(PodUid("uid-gpu")) == a_demand(1)
    assert not setup.context.recent.has_demand(PodUid("uid-lost"))
    assert not setup.context.recent.has_demand(PodUid(""))
