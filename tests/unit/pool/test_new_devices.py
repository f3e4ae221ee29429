"""A device that came into a pool a moment ago: kubelet may not have its units yet."""

from dataclasses import replace

import pytest

from api.kinds.gpupool import Strategy
from api.names import PoolName
from pool.index.new_devices import NEW_FOR_S
from tests.support.books import cards, commit_to, some_books
from tests.support.builders import a_device, a_pod_facts, a_pool, at

SETTLED = 2 * NEW_FOR_S


def settled_books(*devices, strategy: Strategy = Strategy.BIN_PACK):
    books = some_books(a_pool(strategy=strategy), a_pool("other"), devices=devices)
    books.expire(at(SETTLED))
    return books


def given(books, name: str = "p") -> str:
    (unit,) = commit_to(books, a_pod_facts(name)).units
    return unit


@pytest.mark.parametrize("strategy", Strategy)
def test_units_that_kubelet_has_are_given_out_first(strategy: Strategy) -> None:
    books = settled_books(*cards(1, "n1", uuid="GPU-old", name="n1-9"), strategy=strategy)
    books.index.replace_device(a_device("n1", 0), is_event=True)
    assert [given(books, "p"), given(books, "q")] == ["GPU-old", "GPU-n1-0"]


def test_a_device_from_another_pool_is_new() -> None:
    moved = a_device("n1", 0, "other")
    books = settled_books(moved, a_device("n1", 1))
    books.index.replace_device(replace(moved, pool=PoolName("whole")), is_event=True)
    assert given(books) == "GPU-n1-1"


def test_a_device_of_which_something_else_changes_is_as_new_as_before() -> None:
    first, second = a_device("n1", 0), a_device("n1", 1)
    books = settled_books(first, second)
    books.index.replace_device(replace(first, is_faulted=True), is_event=True)
    books.index.replace_device(first, is_event=True)
    assert given(books) == "GPU-n1-0"


def test_a_new_device_is_like_any_other_after_a_while() -> None:
    books = settled_books(a_device("n1", 1))
    books.index.replace_device(a_device("n1", 0), is_event=True)
    books.expire(at(SETTLED + NEW_FOR_S))
    assert given(books) == "GPU-n1-0"


def test_a_new_device_that_goes_is_forgotten() -> None:
    books = settled_books(a_device("n1", 1))
    device = a_device("n1", 0)
    books.index.replace_device(device, is_event=True)
    books.index.discard_device(device.name)
    books.expire(at(SETTLED + NEW_FOR_S))
    assert (len(books.index._new), len(books.index._new._order)) == (0, 0)


def test_a_device_that_was_merely_listed_is_not_new() -> None:
    books = settled_books(a_device("n1", 1))
    books.index.replace_device(a_device("n1", 0))
    assert given(books) == "GPU-n1-0"


def test_very_many_new_devices_settle_bit_by_bit() -> None:
    books = settled_books()
    for number in range(1_500):
        books.index.replace_device(a_device("n1", number), is_event=True)
    left = []
    for _ in range(2):
        books.expire(at(SETTLED + NEW_FOR_S))
        left.append(len(books.index._new))
    assert left == [500, 0]
