"""Quantities of countable things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.quantity import parse_count, parse_duration_s


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (3, 3),
        ("3", 3),
        ("0", 0),
        ("007", 7),
        ("+3", 3),
        ("3000m", 3),
        ("2k", 2000),
        ("0.5k", 500),
        ("2Ki", 2048),
        ("1M", 10**6),
        ("1Mi", 2**20),
        ("3e2", 300),
        ("3E2", 300),
        ("20E-1", 2),
        ("1E", 10**18),
        ("2.000", 2),
    ],
)
def test_a_whole_quantity_is_counted(text: str | int, want: int) -> None:
    assert parse_count(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "m",
        "-1",
        -1,
        "0.5",
        "1m",
        "1.2.3",
        ".",
        "1 2",
        "2kk",
        "0x10",
        "1e",
        "٣",
        "1e400000000",
        "1e999999",
        "9223372036854775808",
        "NaN",
        "inf",
    ],
)
def test_anything_else_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_count(text)


@given(st.integers(0, 10**12))
def test_a_number_is_read_back_from_its_text(number: int) -> None:
    assert parse_count(str(number)) == parse_count(f"{number}000m") == number


@pytest.mark.parametrize(
    ("text", "want"), [("90s", 90), ("2m", 120), ("1h30m", 5400), ("1m1m", 120), ("0s", 0)]
)
def test_a_duration_is_a_sum_of_its_parts(text: str, want: int) -> None:
    assert parse_duration_s(text) == want


@pytest.mark.parametrize("text", ["", "5", "1.5h", "2 m", "-1s", "10ms", "1d"])
def test_a_duration_we_do_not_keep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_s(text)
