"""Quantities as the API server stores them."""

import pytest

from api.quantity import canonical_quantity


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1", "1"),
        ("0", "0"),
        ("0Mi", "0"),
        ("100m", "100m"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("100000", "100k"),
        ("1.5", "1500m"),
        ("128Mi", "128Mi"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
    ],
)
def test_a_quantity_is_spelled_as_the_api_server_spells_it(given: str, stored: str):
    assert canonical_quantity(given) == stored
    assert canonical_quantity(stored) == stored


@pytest.mark.parametrize("text", ["", "-1", "1.0001", "1e3", "2 Gi", "256mb", "1Xi", "9" * 70])
def test_what_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a quantity"):
        canonical_quantity(text)
