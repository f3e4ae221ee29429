"""Whatever comes and goes leaves nothing behind, in a process that leads and in one that stands by."""

from tests.component.server.pod_lifecycles import BOUNDS, PodLifecycles, sizes

FEW, MANY = 3_000, 40_000
"""A thousand pods take 5.4 s of processor time."""
SLACK = 8
"""What was examined last; hundreds of pods, nodes and devices came and went between the two looks."""


def test_nothing_is_left_of_what_is_gone(is_long: bool) -> None:
    many = MANY if is_long else FEW
    lifecycles = PodLifecycles(seed=1)
    lifecycles.live(many // 3)
    lifecycles.until_stable()
    before = sizes()
    lifecycles.live(many - many // 3)
    lifecycles.until_stable()
    after = sizes()
    grown = {
        name: (before[name], count)
        for name, count in after.items()
        if count > before[name] + SLACK and count > len(lifecycles.replicas) * BOUNDS.get(name, 0)
    }
    assert grown == {}
    assert lifecycles.bound > many // 3
