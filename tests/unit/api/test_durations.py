import datetime as dt

import pytest

from api.text import age_text, duration_text

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (199, "3m19s"),
        (3_600, "1h"),
        (3_659, "1h"),
        (86_405, "1d"),
        (90_000, "1d1h"),
    ],
)
def test_a_duration_has_its_two_largest_parts(seconds: float, text: str):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("created", "text"),
    [
        ("2026-11-23T11:56:41Z", "3m19s"),
        ("2026-11-23T13:00:00Z", "0s"),
        ("2026-11-23T11:00:00", ""),
        ("yesterday", ""),
        ("", ""),
    ],
)
def test_an_age_that_is_not_known_is_left_out(created: str, text: str):
    assert age_text(created, NOW) == text
