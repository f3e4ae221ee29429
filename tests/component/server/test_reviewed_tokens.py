"""Verdicts on tokens: kept for a minute, asked for at a bounded rate, and never kept where nothing is known."""

import asyncio

import pytest

from kube.errors import Unreachable
from server.reviews.reviewed_tokens import (
    ALLOWED_S,
    BURST,
    MAX_TOKENS,
    MAX_UNDER_WAY,
    REFUSED_S,
    REVIEWS_A_S,
    ReviewedTokens,
    TokenVerdict,
)
from tests.support.loop_clock import LoopClock
from tests.support.served_app import CannedReviews

pytestmark = pytest.mark.looptime


class Setup:
    def __init__(self) -> None:
        self.reviews = CannedReviews()
        self.reviews.verdicts = {"reader": TokenVerdict.ALLOWED, "stranger": TokenVerdict.FORBIDDEN}
        self.tokens = ReviewedTokens(self.reviews, LoopClock())

    async def verdict(self, token: str) -> TokenVerdict:
        return await self.tokens.verdict(token.encode())

    async def flood(self, count: int, prefix: str = "bad") -> list[TokenVerdict]:
        return [await self.verdict(f"{prefix}-{number}") for number in range(count)]


async def test_an_allowed_token_is_asked_about_once_a_minute() -> None:
    setup = Setup()
    for _ in range(5):
        assert await setup.verdict("reader") is TokenVerdict.ALLOWED
    assert setup.reviews.asked == ["reader"]
    await asyncio.sleep(ALLOWED_S)
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED
    assert setup.reviews.asked == ["reader"] * 2


async def test_a_right_that_is_taken_away_ends_within_a_minute() -> None:
    setup = Setup()
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED
    setup.reviews.verdicts["reader"] = TokenVerdict.FORBIDDEN
    await asyncio.sleep(ALLOWED_S)
    assert await setup.verdict("reader") is TokenVerdict.FORBIDDEN


@pytest.mark.parametrize(
    ("token", "verdict"),
    [("stranger", TokenVerdict.FORBIDDEN), ("unknown", TokenVerdict.UNAUTHENTICATED)],
)
async def test_a_refusal_is_kept_for_seconds_only(token: str, verdict: TokenVerdict) -> None:
    setup = Setup()
    for _ in range(5):
        assert await setup.verdict(token) is verdict
    assert len(setup.reviews.asked) == 1
    setup.reviews.verdicts[token] = TokenVerdict.ALLOWED
    await asyncio.sleep(REFUSED_S)
    assert await setup.verdict(token) is TokenVerdict.ALLOWED


async def test_nothing_is_kept_of_an_api_server_that_does_not_answer() -> None:
    setup = Setup()
    setup.reviews.fault = Unreachable("refused", request_sent=False)
    assert await setup.verdict("reader") is TokenVerdict.UNAVAILABLE
    setup.reviews.fault = None
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED


async def test_an_api_server_that_is_away_ends_a_verdict_when_its_time_is_over() -> None:
    setup = Setup()
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED
    setup.reviews.fault = Unreachable("refused", request_sent=False)
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED
    await asyncio.sleep(ALLOWED_S)
    assert await setup.verdict("reader") is TokenVerdict.UNAVAILABLE


async def test_a_flood_of_bad_tokens_costs_the_api_server_a_few_reviews() -> None:
    setup = Setup()
    verdicts = await setup.flood(1_000)
    assert verdicts.count(TokenVerdict.UNAUTHENTICATED) == len(setup.reviews.asked) == BURST
    await asyncio.sleep(10)
    setup.reviews.asked.clear()
    await setup.flood(1_000, "worse")
    assert len(setup.reviews.asked) == min(BURST, 10 * REVIEWS_A_S)


async def test_a_flood_keeps_no_reader_out_that_is_known() -> None:
    setup = Setup()
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED
    for second in range(2 * int(ALLOWED_S)):
        await setup.flood(50, f"bad-{second}")
        assert await setup.verdict("reader") is TokenVerdict.ALLOWED
        await asyncio.sleep(1)


async def test_reviews_under_way_are_bounded() -> None:
    setup = Setup()
    setup.reviews.gate.clear()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(setup.verdict(f"t-{number}")) for number in range(BURST)]
        await asyncio.sleep(0.01)
        assert len(setup.reviews.asked) == MAX_UNDER_WAY
        setup.reviews.gate.set()
    verdicts = [one.result() for one in asked]
    assert verdicts.count(TokenVerdict.UNAVAILABLE) == BURST - MAX_UNDER_WAY
    await asyncio.sleep(10)
    assert await setup.verdict("reader") is TokenVerdict.ALLOWED


async def test_a_caller_that_goes_away_leaves_its_place() -> None:
    setup = Setup()
    setup.reviews.gate.clear()
    for number in range(2 * MAX_UNDER_WAY):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await setup.verdict(f"t-{number}")
    assert len(setup.reviews.asked) == 2 * MAX_UNDER_WAY


async def test_tokens_are_bounded_in_number_and_kept_as_digests() -> None:
    setup = Setup()
    for number in range(MAX_TOKENS + 50):
        setup.reviews.verdicts[f"reader-{number}"] = TokenVerdict.ALLOWED
        assert await setup.verdict(f"reader-{number}") is TokenVerdict.ALLOWED
        await asyncio.sleep(1 / REVIEWS_A_S)
    kept = setup.tokens._allowed._verdicts
    assert len(kept) == MAX_TOKENS
    assert {len(digest) for digest in kept} == {32}
