"""Steps are a function of the seed; shrinking finds the few that matter."""

import pytest

from tests.fault.breaking import Call, target_of
from tests.fault.shrinking import shrink
from tests.fault.steps import INJECTIONS, KINDS, NEXT_VERSIONED, Kind, make_steps, named_like


def test_steps_are_a_function_of_the_seed_and_longer_lists_begin_alike():
    assert make_steps(3, 300) == make_steps(3, 300)
    assert make_steps(3, 300)[:100] == make_steps(3, 100)
    assert make_steps(3, 300) != make_steps(4, 300)


@pytest.mark.parametrize("seed", range(5))
def test_every_injection_is_dealt_before_one_repeats(seed):
    kinds = [step.kind for step in make_steps(seed, 400) if step.kind in INJECTIONS]
    assert set(kinds[: len(INJECTIONS)]) == set(INJECTIONS)


@pytest.mark.parametrize("seed", range(5))
def test_etcd_is_backed_up_before_it_is_restored(seed):
    kinds = [step.kind for step in make_steps(seed, 1000)]
    etcd = [kind for kind in kinds if kind in {Kind.BACKED_UP, Kind.RESTORED}]
    assert len(etcd) >= 4
    assert etcd[:4] == [Kind.BACKED_UP, Kind.RESTORED] * 2


@pytest.mark.parametrize(
    ("kind", "resources"), [(Kind.NOT_SERVED, KINDS), (Kind.NEXT_VERSION, NEXT_VERSIONED)]
)
def test_every_resource_has_its_turn(kind, resources):
    steps = [step for step in make_steps(3, 3000) if step.kind is kind]
    assert {step.arguments[0] for step in steps[: len(resources)]} == set(resources)


def test_a_list_may_hold_injections_of_some_kinds_only_and_as_many_as_are_wanted():
    broken = named_like(["watch"])
    assert {kind.value for kind in broken} == {
        "watch cut",
        "watch slow",
        "410 to a watch",
        "410 inside a watch",
        "watch event duplicated",
        "watch events replayed",
        "watch events swapped",
    }
    kinds = [step.kind for step in make_steps(3, 1000, broken, workload_share=0.8)]
    injected = [kind for kind in kinds if kind in INJECTIONS]
    assert set(injected) == set(broken)
    assert len(injected) == pytest.approx(200, abs=50)


def test_without_a_text_every_injection_is_meant():
    assert named_like([]) == list(INJECTIONS)
    assert named_like(["no such thing"]) == []


def test_a_step_reads_as_what_happens():
    step = next(step for step in make_steps(1, 400) if step.kind is Kind.CLOCK)
    assert str(step).startswith("wall clock set ")


class Culprits:
    """Violates when all culprits are in the list."""

    def __init__(self, *culprits: int) -> None:
        self._culprits = set(culprits)
        self.tried = 0

    async def violates(self, tried: list[int]) -> bool:
        self.tried += 1
        return self._culprits <= set(tried)


@pytest.mark.parametrize("culprits", [(7,), (3, 90), (0, 1, 99)])
async def test_shrinking_leaves_the_culprits(culprits):
    judge = Culprits(*culprits)
    assert await shrink(range(100), judge.violates, reruns=200) == list(culprits)


async def test_shrinking_keeps_to_its_bound_and_returns_a_list_that_violates():
    judge = Culprits(3, 90)
    found = await shrink(range(100), judge.violates, reruns=6)
    assert judge.tried <= 6
    assert found is not None
    assert {3, 90} <= set(found)
    assert len(found) < 100


async def test_violation_that_does_not_come_again_is_not_searched_for():
    judge = Culprits(100)
    assert await shrink(range(100), judge.violates, reruns=50) is None
    assert judge.tried == 3


@pytest.mark.parametrize(
    ("method", "path", "target"),
    [
        ("POST", "/api/v1/namespaces/a/pods/p/binding", "binding"),
        ("GET", "/api/v1/namespaces/a/pods/p", "pod read"),
        ("PATCH", "/api/v1/namespaces/a/pods/p", "pod write"),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", "eviction"),
        ("DELETE", "/api/v1/namespaces/a/pods/p", "pod deletion"),
        ("PATCH", "/apis/gpu.deckhouse.io/v1alpha1/gpudevices/d/status", "status"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "lease"),
        ("GET", "/api/v1/namespaces/a/secrets/s", "secret"),
        ("GET", "/api/v1/nodes", "list"),
        ("PATCH", "/api/v1/nodes/n", "node write"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", "event"),
        ("POST", "/mutate/pods", "mutate"),
        ("POST", "/scheduler/bind", "bind"),
        ("GET", "/version", "other"),
    ],
)
def test_requests_are_told_apart(method, path, target):
    assert target_of(Call(method=method, path=path)) == target


def test_a_watch_is_told_from_a_list():
    watch = Call(method="GET", path="/api/v1/pods", query="resourceVersion=1&watch=1")
    assert target_of(watch) == "watch pods"


async def test_nothing_is_never_tried():
    tried: list[int] = []

    async def violates(steps: list[int]) -> bool:
        tried.append(len(steps))
        return True

    assert len(await shrink(range(10), violates, reruns=50) or []) == 1
    assert 0 not in tried
