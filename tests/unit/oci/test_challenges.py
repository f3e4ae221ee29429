"""WWW-Authenticate: quoted values with commas, several schemes, several headers, nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci.registry_authorization import BasicChallenge, BearerChallenge, Challenge, choose_challenge

TOKEN = BearerChallenge(
    realm="https://auth.example/token", service="r.example", scope="repository:a:pull,push"
)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            [
                'Bearer realm="https://auth.example/token",service="r.example",scope="repository:a:pull,push"'
            ],
            TOKEN,
        ),
        (
            [
                'bearer  Realm = "https://auth.example/token" , service=r.example,scope="repository:a:pull,push"'
            ],
            TOKEN,
        ),
        (['Basic realm="x, Bearer realm=y"'], BasicChallenge()),
        (["Basic"], BasicChallenge()),
        (['Basic realm="x", Bearer realm="https://t"'], BearerChallenge(realm="https://t")),
        (['Basic realm="x"', 'Bearer realm="https://t"'], BearerChallenge(realm="https://t")),
        (['Bearer realm="a\\"b"'], BearerChallenge(realm='a"b')),
        (['Bearer service="s"'], None),
        (['Bearer service="s", Basic realm="x"'], BasicChallenge()),
        (["Negotiate"], None),
        (["=,=,"], None),
        ([""], None),
        ([], None),
    ],
)
def test_the_challenge_that_is_answered(headers: list[str], expected: Challenge | None) -> None:
    assert choose_challenge(headers) == expected


@given(st.lists(st.text(alphabet='Bearbsic=", \\x', max_size=200), max_size=3))
def test_any_header_has_an_answer(headers: list[str]) -> None:
    choose_challenge(headers)


def test_a_header_without_sense_is_quick() -> None:
    """Each would take minutes where an expression goes back and forth over it."""
    for text in ('Bearer a="' + "\\" * 50_000, "Bearer " + ", " * 50_000, 'a="b"' * 20_000):
        assert choose_challenge([text]) is None
