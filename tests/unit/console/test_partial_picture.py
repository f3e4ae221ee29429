"""What a picture is without is said in sentences, and moments stay what they are."""

import datetime as dt

import pytest

from console.data.read_scope import ReadScope
from console.data.state.moments import Moments
from console.data.streams.partial_picture import gaps_of
from console.visibility import Visibility
from tests.support.console_feed import EVERYTHING, WHOLE, StillClock


def test_a_whole_picture_lacks_nothing():
    assert gaps_of(WHOLE, EVERYTHING) == ()


@pytest.mark.parametrize(
    ("scope", "beginnings"),
    [
        pytest.param(
            ReadScope(all_pods=False, nodes=False, inventories=False),
            (
                "Pods of all namespaces may not be listed: none is shown",
                "Nodes may not be listed: their states are unknown",
                "GPUNodeInventories may not be listed",
                "The Lease of the control plane may not be read",
            ),
            id="pools and devices alone",
        ),
        pytest.param(
            ReadScope(all_pods=False, namespace="a", nodes=True, inventories=True, leases_in="s"),
            ("Pods of all namespaces may not be listed: those of a are shown",),
            id="pods of one namespace",
        ),
        pytest.param(
            ReadScope(all_pods=True, nodes=False, inventories=True, leases_in="s"),
            ("Nodes may not be listed: every node with a device counts as ready",),
            id="no nodes",
        ),
    ],
)
def test_lists_that_may_not_be_read_are_named(scope: ReadScope, beginnings: tuple[str, ...]):
    found = gaps_of(scope, scope.visibility)
    assert len(found) == len(beginnings)
    assert all(item.startswith(begin) for item, begin in zip(found, beginnings, strict=True))


@pytest.mark.parametrize(
    ("seen", "text"),
    [({"a", "b"}, "Pods of other namespaces than a, b are"), (set(), "Pods of any namespace are")],
)
def test_what_a_viewer_may_not_see_of_what_is_read_is_said(seen: set[str], text: str):
    found = gaps_of(WHOLE, Visibility(namespaces=frozenset(seen), nodes=False))
    assert found[0].startswith(text)
    assert found[1] == "The states of nodes are not shown."


def test_a_moment_has_the_same_text_each_time_until_the_wall_clock_is_set():
    clock = StillClock()
    moments = Moments(clock)
    deadline = clock.monotonic() + 60.4
    assert moments.text(deadline) == "2026-11-23T23:01:00Z"
    clock.passed_s += 17.3
    assert moments.text(deadline) == "2026-11-23T23:01:00Z"
    assert moments.time_of_day(deadline) == "23:01:00 UTC"
    clock.set_back(dt.timedelta(seconds=0.9))
    assert moments.text(deadline) == "2026-11-23T23:01:00Z"
    clock.set_back(dt.timedelta(hours=1))
    assert moments.text(deadline) == "2026-11-23T22:00:59Z"
