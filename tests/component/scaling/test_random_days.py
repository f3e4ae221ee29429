"""A few of the random days of demand that `make bench` lives through."""

from pathlib import Path

import pytest

from tests.support.scaling_days import DayFigures, live_days

pytestmark = pytest.mark.looptime(noop_cycles=10)

SEEDS = (12, 21)
"""Two shapes, pods of 1 to 8 units, a time without capacity, and pods that are deleted while they wait."""
MOST_EXCESS_PCT = 2


async def test_random_days_get_no_more_nodes_than_they_need(tmp_path: Path):
    total = DayFigures()
    for figures in await live_days(tmp_path, SEEDS, at_once=len(SEEDS)):
        total.add(figures)
    assert total.claims >= 5 * len(SEEDS)
    assert 100 * total.too_many <= MOST_EXCESS_PCT * total.claims, total
