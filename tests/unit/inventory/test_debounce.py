"""A state changes after enough samples in a row, and after nothing less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.debounce import NO_SAMPLES, DebounceCounter, DebouncedState, DebounceLimits

DEFAULT_DEBOUNCE = DebounceLimits(good_samples=3, bad_samples=3, period_s=10)


def after(
    readings: list[tuple[float, bool]], debounce: DebounceLimits = DEFAULT_DEBOUNCE
) -> DebounceCounter:
    counter = NO_SAMPLES
    for at, is_good in readings:
        counter = counter.after(at, debounce, is_good=is_good)
    return counter


def good(*times: float) -> list[tuple[float, bool]]:
    return [(at, True) for at in times]


def bad(*times: float) -> list[tuple[float, bool]]:
    return [(at, False) for at in times]


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        pytest.param([], DebouncedState.UNDECIDED, id="nothing seen"),
        pytest.param(good(0, 10), DebouncedState.UNDECIDED, id="two good are not three"),
        pytest.param(good(0, 10, 20), DebouncedState.UP, id="three good"),
        pytest.param(bad(0, 10, 20), DebouncedState.DOWN, id="three bad"),
        pytest.param(
            good(0, 1, 2, 3, 9), DebouncedState.UNDECIDED, id="one change seen five times"
        ),
        pytest.param(
            good(0, 10, 10, 10), DebouncedState.UNDECIDED, id="one sample looked at again"
        ),
        pytest.param(
            [*good(0, 10), *bad(11), *good(20)],
            DebouncedState.UNDECIDED,
            id="a bad look ends the row",
        ),
        pytest.param(
            [*good(0, 10, 20), *bad(30, 40)], DebouncedState.UP, id="two bad change nothing"
        ),
        pytest.param([*good(0, 10, 20), *bad(30, 40, 50)], DebouncedState.DOWN, id="up and down"),
        pytest.param(
            [*good(0, 10, 20), *bad(30, 40), *good(45), *bad(50, 60)],
            DebouncedState.UP,
            id="a good look ends the row of bad ones",
        ),
        pytest.param([*bad(0, 10, 20), *good(30, 40, 50)], DebouncedState.UP, id="down and up"),
    ],
)
def test_so_many_samples_in_a_row_change_the_state(
    readings: list[tuple[float, bool]], state: DebouncedState
):
    assert after(readings).state is state


def test_one_sample_is_enough_where_one_is_asked_for():
    at_once = DebounceLimits(good_samples=3, bad_samples=1, period_s=10)
    assert after([*good(0, 10, 20), *bad(20.5)], at_once).state is DebouncedState.DOWN


def test_the_same_evidence_is_one_sample_however_short_the_period_is():
    at_will = DebounceLimits(good_samples=3, bad_samples=3, period_s=0)
    assert after(good(5, 5, 5, 5), at_will).state is DebouncedState.UNDECIDED
    assert after(good(5, 5.1, 5.2), at_will).state is DebouncedState.UP


def test_the_next_sample_is_due_a_period_after_the_last():
    assert after(good(5)).next_sample_in(8, DEFAULT_DEBOUNCE) == 7
    assert after(good(5)).next_sample_in(50, DEFAULT_DEBOUNCE) == 0


@pytest.mark.parametrize("readings", [[], good(0, 10, 20), bad(0, 10, 20)])
def test_nothing_is_due_while_looks_agree_with_the_state(readings: list[tuple[float, bool]]):
    assert after(readings).next_sample_in(100, DEFAULT_DEBOUNCE) is None


def test_a_look_that_comes_early_by_a_rounding_error_is_a_sample():
    assert after(good(0, 9.99999, 19.99998)).state is DebouncedState.UP


@pytest.mark.parametrize(
    "figures", [{"good_samples": 0}, {"bad_samples": -1}, {"period_s": -0.1}], ids=str
)
def test_figures_that_mean_nothing_are_refused(figures: dict[str, float]):
    with pytest.raises(ValueError, match="counted from 1"):
        DebounceLimits(**figures)  # type: ignore[arg-type]  # a table of wrong figures


READINGS = st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60)


@given(READINGS)
def test_no_standing_changes_but_after_three_periods_of_looks_that_all_agree(
    steps: list[tuple[float, bool]],
):
    """Never up before three good samples, never a flap inside of a window."""
    now, counter = 0.0, NO_SAMPLES
    agreeing_since, last = 0.0, None
    for wait_s, is_good in steps:
        now += wait_s
        if is_good is not last:
            agreeing_since, last = now, is_good
        before, counter = counter, counter.after(now, DEFAULT_DEBOUNCE, is_good=is_good)
        if counter.state is not before.state:
            assert counter.state is (DebouncedState.UP if is_good else DebouncedState.DOWN)
            assert now - agreeing_since >= 2 * DEFAULT_DEBOUNCE.period_s - 0.01


@given(READINGS)
def test_enough_agreeing_looks_always_lead_to_their_state(steps: list[tuple[float, bool]]):
    now, counter = 0.0, NO_SAMPLES
    for wait_s, is_good in steps:
        now += wait_s
        counter = counter.after(now, DEFAULT_DEBOUNCE, is_good=is_good)
    for _ in range(4):
        now += DEFAULT_DEBOUNCE.period_s
        counter = counter.after(now, DEFAULT_DEBOUNCE, is_good=True)
    assert counter == DebounceCounter(DebouncedState.UP)
