"""Which extraction may start beside those under way: slots by namespace, and one for what pods wait for."""

from collections.abc import Sequence
from typing import Any

import pytest

from agent.kernelcache.extractions import Extractions, RunningExtraction
from api.image_reference import Digest
from tests.support.kernel_caches import a_cache
from tests.support.loop_clock import LoopClock

WARM, AWAITED = False, True


def an_extraction(namespace: str, *, is_awaited: bool) -> RunningExtraction:
    return RunningExtraction(
        digest=Digest(f"sha256:{namespace}-{is_awaited}"),
        caches=[a_cache(namespace=namespace)],
        max_bytes=None,
        needs_bytes=0,
        is_awaited=is_awaited,
    )


@pytest.mark.parametrize(
    ("running", "next_", "is_started"),
    [
        pytest.param([("a", WARM)], ("b", WARM), True, id="of another namespace"),
        pytest.param([("a", WARM)], ("a", WARM), False, id="of the same namespace"),
        pytest.param([("a", WARM)], ("a", AWAITED), True, id="what its pods wait for"),
        pytest.param([("a", AWAITED)], ("a", AWAITED), False, id="once for its pods"),
        pytest.param([("a", WARM), ("b", WARM)], ("c", WARM), False, id="one is kept for pods"),
        pytest.param([("a", WARM), ("b", WARM)], ("c", AWAITED), True, id="a pod has the kept one"),
        pytest.param(
            [("a", AWAITED), ("b", AWAITED), ("c", AWAITED)], ("d", AWAITED), False, id="all taken"
        ),
    ],
)
def test_slots_are_by_namespace_and_one_is_kept_for_what_pods_wait_for(
    running: Sequence[tuple[str, bool]], next_: tuple[str, bool], *, is_started: bool
) -> None:
    source: Any = None  # nothing is started
    extractions = Extractions(source, LoopClock())
    for namespace, is_awaited in running:
        begun = an_extraction(namespace, is_awaited=is_awaited)
        extractions.running[begun.digest] = begun
    asked = an_extraction(next_[0], is_awaited=next_[1])
    assert extractions.has_capacity_for(asked) is is_started
