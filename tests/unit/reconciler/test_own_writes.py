"""What was written is waited for, and not for ever."""

import pytest

from api.meta import ObjectMeta
from reconciler.runtime.expectations import SHOWN_WITHIN_S, Expectations
from tests.support.scheduling import Time


class World:
    def __init__(self) -> None:
        self.time = Time()
        self.writes = Expectations(self.time.now)
        self.shown: dict[str, ObjectMeta] = {}

    def show(self, name: str, version: str = "1", uid: str = "u") -> None:
        self.shown[name] = ObjectMeta(name=name, resource_version=version, uid=uid)

    def are_shown(self, key: str = "n1") -> bool:
        return self.writes.are_shown(key, self.shown.get)


@pytest.fixture
def world() -> World:
    return World()


def test_who_wrote_nothing_waits_for_nothing(world: World):
    assert world.are_shown()


@pytest.mark.parametrize(
    ("version", "is_shown"), [("9", False), ("10", True), ("11", True), ("x", False)]
)
def test_a_write_is_shown_by_its_version_or_a_later_one(
    world: World, version: str, *, is_shown: bool
):
    world.writes.wrote("n1", "d", "10")
    assert not world.are_shown()
    world.show("d", version)
    assert world.are_shown() is is_shown


def test_versions_that_are_no_numbers_are_compared_as_they_are(world: World):
    world.writes.wrote("n1", "d", "b")
    world.show("d", "c")
    assert not world.are_shown()
    world.show("d", "b")
    assert world.are_shown()


def test_every_write_of_a_key_is_waited_for_and_no_other(world: World):
    world.writes.wrote("n1", "d", "1")
    world.writes.wrote("n1", "e", "1")
    assert world.are_shown("n2")
    world.show("d")
    assert not world.are_shown()
    world.show("e")
    assert world.are_shown()


def test_a_deletion_is_shown_when_the_object_is_gone_or_another(world: World):
    world.show("d")
    world.writes.deleted("n1", "d", "u")
    assert not world.are_shown()
    world.show("d", uid="v")
    assert world.are_shown()
    world.writes.deleted("n1", "d", "v")
    del world.shown["d"]
    assert world.are_shown()


def test_what_nobody_ever_shows_is_forgotten_in_time(world: World):
    world.writes.wrote("n1", "d", "1")
    world.time.seconds += SHOWN_WITHIN_S - 0.1
    assert not world.are_shown()
    world.time.seconds += 0.1
    assert world.are_shown()
