"""What we wrote stands for what the watch does not show yet, and no longer."""

import pytest

from api.meta import ObjectMeta
from reconciler.runtime.expectations import SHOWN_WITHIN_S
from reconciler.runtime.own_fields import FieldExpectations, Stamped
from tests.support.scheduling import Time


def meta(version: str, uid: str = "u") -> ObjectMeta:
    return ObjectMeta(name="n1", uid=uid, resource_version=version)


@pytest.mark.parametrize(
    ("shown", "unseen"),
    [
        pytest.param(meta("9"), "ours", id="before our write"),
        pytest.param(meta("99"), "ours", id="before our write, by somebody else"),
        pytest.param(meta("100"), None, id="our write"),
        pytest.param(meta("101"), None, id="after our write"),
        pytest.param(meta("9", uid="v"), None, id="another object of the name"),
    ],
)
def test_what_was_written_counts_until_it_is_shown(shown: ObjectMeta, unseen: str | None):
    own: FieldExpectations[str] = FieldExpectations(Time().now)
    own.wrote(Stamped(meta("100")), "ours")
    assert own.unseen(shown) == unseen
    assert own.unseen(shown) == unseen


def test_versions_that_are_no_numbers_are_the_same_or_not():
    own: FieldExpectations[str] = FieldExpectations(Time().now)
    own.wrote(Stamped(meta("b")), "ours")
    assert own.unseen(meta("a")) == "ours"
    assert own.unseen(meta("b")) is None


def test_a_write_that_is_never_shown_is_forgotten():
    time = Time()
    own: FieldExpectations[str] = FieldExpectations(time.now)
    own.wrote(Stamped(meta("100")), "ours")
    time.seconds += SHOWN_WITHIN_S
    assert own.unseen(meta("9")) is None


def test_nothing_is_known_of_objects_that_were_not_written_or_are_gone():
    own: FieldExpectations[str] = FieldExpectations(Time().now)
    assert own.unseen(meta("9")) is None
    own.wrote(Stamped(meta("100")), "ours")
    own.forget("n1")
    assert own.unseen(meta("9")) is None
