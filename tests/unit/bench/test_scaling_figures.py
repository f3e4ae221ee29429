"""What the watches of a scale-up on the real Karpenter saw becomes rows of docs/performance.md."""

from tests.bench import page
from tests.bench.other_programs import CpuReading, OtherPrograms
from tests.bench.report import at_most
from tests.cluster.autoscaling.timeline import Timeline


def a_timeline(*, pods: int, last_s: float) -> Timeline:
    """Pods of one node, which told of itself at 10 s; bound 1 s after, the last one later."""
    names = [f"p{number}" for number in range(pods)]
    return Timeline(
        pods={name: 1.0 + number / 100 for number, name in enumerate(names)},
        node_of=dict.fromkeys(names, "n1"),
        claims={"c2": 5.0, "c1": 3.5},
        recorded={"n1": 10.0},
        steps={"pod bound": {**dict.fromkeys(names, 11.0), names[-1]: 10.0 + last_s}},
    )


def test_figures_are_the_first_node_claim_and_how_long_pods_wait_for_their_node_s_devices():
    line = a_timeline(pods=50, last_s=1.75)
    first, bound = line.results("karpenter_50_pods", at_most("p99_ms", 2_000))
    assert (first.samples, first.p50_ms) == (1, 2_500.0)
    assert (bound.samples, bound.p50_ms, bound.p99_ms, bound.node_claims) == (50, 1e3, 1_750.0, 2)
    assert [page.outcome_of(item) for item in (first, bound)] == ["met", "met"]


def test_figures_beyond_their_aims_say_so():
    line = a_timeline(pods=50, last_s=4.0)
    line.claims["c1"] = 4.75
    found = line.results("karpenter_50_pods", at_most("p99_ms", 2_000), at_most("node_claims", 1))
    assert [page.outcome_of(item) for item in found] == [
        "not met: p50 ms by 25%",
        "not met: p99 ms by 100%; NodeClaims by 100%",
    ]


def test_cores_of_other_programs_are_those_of_the_machine_without_our_own():
    readings = iter(
        [
            CpuReading(at=100.0, machine=5_000.0, own=10.0),
            CpuReading(at=110.0, machine=5_018.0, own=13.0),
        ]
    )
    assert OtherPrograms(lambda: next(readings)).cores() == 1.5
