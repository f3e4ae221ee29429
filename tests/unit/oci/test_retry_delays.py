"""Waits between attempts: longer each time, with jitter, and what Retry-After says."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci import retry_delays

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@given(st.integers(1, 10_000))
def test_a_wait_has_a_bound_that_doubles_up_to_a_cap(failures: int) -> None:
    delay = retry_delays.retry_delay_s(failures, None)
    assert delay is not None
    assert 0 <= delay <= min(retry_delays.CAP_S, retry_delays.BASE_S * 2 ** min(failures - 1, 16))


def test_waits_differ() -> None:
    """A pool's nodes come back one after another."""
    assert len({retry_delays.retry_delay_s(5, None) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("asked_for_s", "is_honoured"),
    [(0.0, True), (100.0, True), (retry_delays.LONGEST_ASKED_FOR_S + 1, False)],
)
def test_what_the_registry_asks_for_is_a_lower_bound_or_an_end(
    asked_for_s: float, is_honoured: bool
) -> None:
    delay = retry_delays.retry_delay_s(1, asked_for_s)
    assert (delay is not None) == is_honoured
    assert delay is None or delay >= asked_for_s


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("7", 7.0),
        (" 120 ", 120.0),
        ("9" * 400, 999_999_999.0),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 00:01:00 -0000", 60.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("Thu, 99 Jan 2026 00:01:00 GMT", None),
    ],
)
def test_the_header_is_a_number_or_a_date(value: str | None, expected: float | None) -> None:
    assert retry_delays.parse_retry_after(value, NOW) == expected


@given(st.text(max_size=60))
def test_any_header_is_read(value: str) -> None:
    retry_delays.parse_retry_after(value, NOW)
