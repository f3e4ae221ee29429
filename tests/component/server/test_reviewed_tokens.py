"""Reviews on tokens: kept for a minute, asked for at a bounded rate, and never kept where nothing is known."""

import asyncio

import pytest

from http_edge.reviews.kube_reviews import TokenUser
from http_edge.reviews.review_cache import (
    ALLOWED_S,
    BURST,
    MAX_IN_FLIGHT,
    MAX_TOKENS,
    REFUSED_S,
    REVIEWS_A_S,
    TokenRefusal,
)
from http_edge.reviews.reviewed_tokens import ReviewedTokens
from kube.errors import Unreachable
from tests.support.loop_clock import LoopClock
from tests.support.served_app import CannedReviews

pytestmark = pytest.mark.looptime


USER = TokenUser(username="reader")


class Setup:
    def __init__(self) -> None:
        self.reviews = CannedReviews()
        self.reviews.results = {"reader": USER, "stranger": TokenRefusal.FORBIDDEN}
        self.tokens = ReviewedTokens(self.reviews, LoopClock(), lambda user: user.username)

    async def review(self, token: str) -> TokenUser | TokenRefusal:
        result = await self.tokens.review(token.encode())
        return result if isinstance(result, TokenRefusal) else result.value

    async def flood(self, count: int, prefix: str = "bad") -> list[TokenUser | TokenRefusal]:
        return [await self.review(f"{prefix}-{number}") for number in range(count)]


async def test_an_allowed_token_is_asked_about_once_a_minute() -> None:
    setup = Setup()
    for _ in range(5):
        assert await setup.review("reader") == USER
    assert setup.reviews.asked == ["reader"]
    await asyncio.sleep(ALLOWED_S)
    assert await setup.review("reader") == USER
    assert setup.reviews.asked == ["reader"] * 2


async def test_a_verdict_says_until_when_it_is_kept() -> None:
    setup = Setup()
    await asyncio.sleep(7)
    first = await setup.tokens.review(b"reader")
    assert not isinstance(first, TokenRefusal)
    assert first.until == pytest.approx(7 + ALLOWED_S)
    await asyncio.sleep(30)
    assert await setup.tokens.review(b"reader") == first


async def test_a_right_that_is_taken_away_ends_within_a_minute() -> None:
    setup = Setup()
    assert await setup.review("reader") == USER
    setup.reviews.results["reader"] = TokenRefusal.FORBIDDEN
    await asyncio.sleep(ALLOWED_S)
    assert await setup.review("reader") is TokenRefusal.FORBIDDEN


@pytest.mark.parametrize(
    ("token", "result"),
    [("stranger", TokenRefusal.FORBIDDEN), ("unknown", TokenRefusal.UNAUTHENTICATED)],
)
async def test_a_refusal_is_kept_for_seconds_only(token: str, result: TokenRefusal) -> None:
    setup = Setup()
    for _ in range(5):
        assert await setup.review(token) is result
    assert len(setup.reviews.asked) == 1
    setup.reviews.results[token] = USER
    await asyncio.sleep(REFUSED_S)
    assert await setup.review(token) == USER


async def test_nothing_is_kept_of_an_api_server_that_does_not_answer() -> None:
    setup = Setup()
    setup.reviews.fault = Unreachable("refused", request_sent=False)
    assert await setup.review("reader") is TokenRefusal.UNAVAILABLE
    setup.reviews.fault = None
    assert await setup.review("reader") == USER


async def test_an_api_server_that_is_away_ends_a_verdict_when_its_time_is_over() -> None:
    setup = Setup()
    assert await setup.review("reader") == USER
    setup.reviews.fault = Unreachable("refused", request_sent=False)
    assert await setup.review("reader") == USER
    await asyncio.sleep(ALLOWED_S)
    assert await setup.review("reader") is TokenRefusal.UNAVAILABLE


async def test_a_flood_of_bad_tokens_costs_the_api_server_a_few_reviews() -> None:
    setup = Setup()
    results = await setup.flood(1_000)
    assert results.count(TokenRefusal.UNAUTHENTICATED) == len(setup.reviews.asked) == BURST
    await asyncio.sleep(10)
    setup.reviews.asked.clear()
    await setup.flood(1_000, "worse")
    assert len(setup.reviews.asked) == min(BURST, 10 * REVIEWS_A_S)


async def test_a_flood_keeps_no_reader_out_that_is_known() -> None:
    setup = Setup()
    assert await setup.review("reader") == USER
    for second in range(2 * int(ALLOWED_S)):
        await setup.flood(50, f"bad-{second}")
        assert await setup.review("reader") == USER
        await asyncio.sleep(1)


async def test_many_tokens_of_a_user_keep_no_other_user_out() -> None:
    setup = Setup()
    many = [f"many-{number}" for number in range(400)]
    setup.reviews.results |= dict.fromkeys(many, TokenUser(username="many"))
    for token in many:
        await setup.review(token)
        await asyncio.sleep(1 / REVIEWS_A_S)
    assert await setup.review("reader") == USER
    for _ in range(2 * int(ALLOWED_S)):
        for token in many[::8]:
            await setup.review(token)
        assert await setup.review("reader") == USER
        await asyncio.sleep(1)


async def test_rates_of_users_are_bounded_in_number() -> None:
    setup = Setup()
    for number in range(MAX_TOKENS + 10):
        user = f"reader-{number}"
        setup.reviews.results[user] = TokenUser(username=user)
        await setup.review(user)
        await asyncio.sleep(ALLOWED_S)
        assert await setup.review(user) == TokenUser(username=user)
    assert len(setup.tokens._cache._by_user) == MAX_TOKENS


async def test_reviews_under_way_are_bounded() -> None:
    setup = Setup()
    setup.reviews.gate.clear()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(setup.review(f"t-{number}")) for number in range(BURST)]
        await asyncio.sleep(0.01)
        assert len(setup.reviews.asked) == MAX_IN_FLIGHT
        setup.reviews.gate.set()
    results = [item.result() for item in asked]
    assert results.count(TokenRefusal.UNAVAILABLE) == BURST - MAX_IN_FLIGHT
    await asyncio.sleep(10)
    assert await setup.review("reader") == USER


async def test_a_caller_that_goes_away_leaves_its_place() -> None:
    setup = Setup()
    setup.reviews.gate.clear()
    for number in range(2 * MAX_IN_FLIGHT):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await setup.review(f"t-{number}")
    assert len(setup.reviews.asked) == 2 * MAX_IN_FLIGHT


async def test_tokens_are_bounded_in_number_and_kept_as_digests() -> None:
    setup = Setup()
    for number in range(MAX_TOKENS + 50):
        setup.reviews.results[f"reader-{number}"] = USER
        assert await setup.review(f"reader-{number}") == USER
        await asyncio.sleep(1 / REVIEWS_A_S)
    kept = setup.tokens._cache._accepted
    assert len(kept) == MAX_TOKENS
    assert {len(digest) for digest in kept} == {32}
