"""A written value counts until the watch shows it, and not for ever."""

import pytest

from api.meta import ObjectMeta
from reconciler.runtime.expectations import SEEN_WITHIN_S, Expectations
from tests.support.scheduling import Time


def meta(version: str, uid: str = "u") -> ObjectMeta:
    return ObjectMeta(name="n1", uid=uid, resource_version=version)


class World:
    def __init__(self) -> None:
        self.time = Time()
        self.expected: Expectations[str, str] = Expectations(self.time.now)
        self.current: dict[str, ObjectMeta] = {}

    def unseen(self, current: ObjectMeta | None) -> str | None:
        found = self.expected.unseen("n1", current)
        assert self.expected.unseen("n1", current) == found
        return found

    def are_seen(self) -> bool:
        return self.expected.are_seen(self.current.get)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("current", "unseen"),
    [
        pytest.param(meta("9"), "ours", id="before our write"),
        pytest.param(meta("99"), "ours", id="before our write, by another writer"),
        pytest.param(meta("100"), None, id="our write"),
        pytest.param(meta("101"), None, id="after our write"),
        pytest.param(meta("9", uid="v"), "ours", id="an earlier object of the name"),
        pytest.param(meta("101", uid="v"), None, id="a later object of the name"),
        pytest.param(None, "ours", id="not created yet"),
    ],
)
def test_a_value_counts_until_its_version_is_shown(world, current, unseen):
    world.expected.expect("n1", "ours", meta("100"))
    assert world.unseen(current) == unseen


@pytest.mark.parametrize(
    ("current", "unseen"),
    [
        pytest.param(meta("99"), "ours", id="older"),
        pytest.param(meta("100"), "ours", id="the version that was read"),
        pytest.param(meta("101"), None, id="newer"),
        pytest.param(meta("x"), None, id="another, not comparable"),
    ],
)
def test_a_write_without_an_answer_is_seen_with_the_next_version(world, current, unseen):
    world.expected.expect_newer("n1", "ours", meta("100"))
    assert world.unseen(current) == unseen


def test_versions_that_are_no_numbers_are_the_same_or_not(world: World):
    world.expected.expect("n1", "ours", meta("b"))
    assert world.unseen(meta("a")) == "ours"
    assert world.unseen(meta("b")) is None
    world.expected.expect("n1", "ours", meta("b"))
    assert world.unseen(meta("a", uid="v")) is None


@pytest.mark.parametrize(
    ("current", "unseen"),
    [(meta("200"), "gone"), (meta("200", uid="v"), None), (None, None)],
)
def test_a_deletion_is_seen_when_the_object_is_gone_or_another(world, current, unseen):
    world.expected.expect_deletion("n1", "gone", "u")
    assert world.unseen(current) == unseen


def test_nothing_is_expected_of_objects_that_were_not_written(world: World):
    assert world.unseen(meta("9")) is None
    assert world.are_seen()


def test_the_last_write_of_an_object_counts(world: World):
    world.expected.expect("n1", "first", meta("100"))
    world.expected.expect("n1", "second", meta("101"))
    assert world.unseen(meta("100")) == "second"


def test_every_write_is_waited_for(world: World):
    world.expected.expect("d", "", meta("1"))
    world.expected.expect("e", "", meta("1"))
    world.current["d"] = meta("1")
    assert not world.are_seen()
    world.current["e"] = meta("2")
    assert world.are_seen()


def test_a_write_that_is_never_shown_is_forgotten_in_time(world: World):
    world.expected.expect("n1", "ours", meta("100"))
    world.time.seconds += SEEN_WITHIN_S - 0.1
    assert world.unseen(meta("9")) == "ours"
    assert not world.are_seen()
    world.time.seconds += 0.1
    assert world.unseen(meta("9")) is None
    world.expected.expect("n1", "ours", meta("100"))
    world.time.seconds += SEEN_WITHIN_S
    assert world.are_seen()


def test_what_is_never_looked_at_again_is_forgotten_with_a_later_write(world: World):
    world.expected.expect("gone", "ours", meta("1"))
    world.time.seconds += SEEN_WITHIN_S
    world.expected.expect("n1", "ours", meta("2"))
    world.time.seconds -= SEEN_WITHIN_S
    assert world.expected.unseen("gone", None) is None
