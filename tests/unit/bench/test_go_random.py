"""Go's generator of random numbers, against what Go 1.24 prints."""

from tests.bench.placement.go_random import GoRandom


def test_numbers_are_those_of_go() -> None:
    random = GoRandom(42)
    assert [random.int63(), random.below(8152), random.below(64)] == [3440579354231278675, 4315, 4]
    assert random.permutation(10) == [0, 7, 8, 6, 3, 9, 2, 4, 5, 1]
    order = list(range(10))
    random.shuffle(order)
    assert order == [9, 2, 0, 7, 8, 6, 4, 3, 5, 1]


def test_equal_seeds_give_equal_numbers() -> None:
    assert GoRandom(0).int63() == GoRandom(89482311).int63(), "Go replaces seed 0"
    assert GoRandom(-1).int63() == GoRandom((1 << 31) - 2).int63()
    assert GoRandom(1).int63() != GoRandom(2).int63()


def test_numbers_below_a_limit_are_drawn_again_where_they_would_not_be_even() -> None:
    # Of 2**31 values all above the largest multiple of the limit are rejected: nearly half of them here.
    limit = (1 << 30) + 1
    random = GoRandom(7)
    drawn = [random.below(limit) for _ in range(50)]
    assert max(drawn) < limit
    plain = GoRandom(7)
    unrejected = [plain.int63() >> 32 for _ in range(50)]
    assert drawn != [value % limit for value in unrejected]
    assert drawn == [value for value in _stream(7) if value < limit][:50]
    assert all(0 <= random._below_by_product(limit) < limit for _ in range(50))


def _stream(seed: int) -> list[int]:
    random = GoRandom(seed)
    return [random.int63() >> 32 for _ in range(200)]
