"""When waiting pods are planned: together, soon, and without an end to the patience of the first."""

from api.names import PodUid
from reconciler.scaling.demand.batch import DemandBatch


def uids(*names: str) -> frozenset[PodUid]:
    return frozenset(PodUid(name) for name in names)


def a_batch() -> DemandBatch:
    return DemandBatch()


def test_a_pod_is_planned_after_a_second_without_another_one():
    """Weak point 10: pods that come together are one batch."""
    batch = a_batch()
    assert batch.wait_s(uids("a"), 0.0) == 1.0
    assert batch.wait_s(uids("a", "b"), 0.6) == 1.0
    assert batch.wait_s(uids("a", "b"), 1.6) == 0.0
    assert batch.wait_s(uids("a", "b"), 1.7) == 0.0


def test_the_first_pod_of_a_steady_stream_waits_ten_seconds_at_most():
    batch = a_batch()
    names: list[str] = []
    for tenth in range(100):
        names.append(f"p{tenth}")
        assert batch.wait_s(uids(*names), tenth / 10) > 0
    assert batch.wait_s(uids(*names, "last"), 10.0) == 0.0


def test_pods_that_stop_waiting_open_no_batch():
    batch = a_batch()
    batch.wait_s(uids("a", "b"), 0.0)
    assert batch.wait_s(uids("a", "b"), 1.0) == 0.0
    assert batch.wait_s(uids("b"), 2.0) == 0.0


def test_a_pod_that_comes_later_opens_the_next_batch():
    batch = a_batch()
    batch.wait_s(uids("a"), 0.0)
    batch.wait_s(uids("a"), 1.0)
    assert batch.wait_s(uids("a", "b"), 5.0) == 1.0
    assert batch.wait_s(uids("a", "b"), 6.0) == 0.0


def test_nobody_waiting_is_planned_at_once():
    assert a_batch().wait_s(uids(), 0.0) == 0.0
