"""Waiting between attempts."""

import random

from kube.backoff import Backoff


class Highest(random.Random):
    """Always the upper end."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def test_the_bound_doubles_with_every_failure_up_to_the_cap() -> None:
    backoff = Backoff(base_s=1, cap_s=30, rng=Highest())
    assert [backoff.fail() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_success_starts_over() -> None:
    backoff = Backoff(rng=Highest())
    backoff.fail()
    backoff.fail()
    backoff.succeed()
    assert backoff.failures == 0
    assert backoff.fail() == 1


def test_delays_are_spread_over_the_whole_range() -> None:
    backoff = Backoff(base_s=8, cap_s=8, rng=random.Random(1))
    delays = [backoff.fail() for _ in range(200)]
    assert min(delays) < 1
    assert max(delays) > 7


def test_what_the_server_asks_for_is_waited_but_not_beyond_the_cap() -> None:
    backoff = Backoff(base_s=0.001, cap_s=30, rng=Highest())
    assert backoff.fail(at_least_s=5) == 5
    assert backoff.fail(at_least_s=86_400) == 30


def test_thousands_of_failures_do_not_overflow() -> None:
    backoff = Backoff(rng=Highest())
    assert {backoff.fail() for _ in range(5000)} <= {1, 2, 4, 8, 16, 30}
