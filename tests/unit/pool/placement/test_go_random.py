"""Go's generator of random numbers, against what Go 1.24 prints."""

from pool.placement.simulation.go_random import GoRandom


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
