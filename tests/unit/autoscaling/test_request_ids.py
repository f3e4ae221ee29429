"""Ids of requests: one for one origin, and values of labels."""

import re

from hypothesis import given
from hypothesis import strategies as st

from autoscaling.request_ids import new_request_id, request_id
from tests.support.builders import a_pool

LABEL_VALUE = re.compile("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


def test_equal_origins_have_one_id():
    assert request_id(a_pool(), "u", "eight") == request_id(a_pool(), "u", "eight")


def test_each_part_of_the_origin_decides():
    ids = {
        request_id(a_pool(uid="1"), "u", "eight"),
        request_id(a_pool(uid="2"), "u", "eight"),
        request_id(a_pool(uid="1"), "v", "eight"),
        request_id(a_pool(uid="1"), "u", "nine"),
        request_id(a_pool(uid="1"), "u", "eight", number=1),
    }
    assert len(ids) == 5


def test_ids_in_use_are_skipped():
    used = {request_id(a_pool(), "u", "eight", number=number) for number in range(3)}
    assert new_request_id(a_pool(), "u", "eight", used=used) == request_id(
        a_pool(), "u", "eight", number=3
    )


@given(st.from_regex("^[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?$", fullmatch=True))
def test_an_id_is_a_label_value_whatever_the_pool_is_called(name: str):
    """Weak point 14: no name of a product or tenant gets into a label."""
    found = request_id(a_pool(name), "uid", "NVIDIA A100-SXM4-80GB")
    assert len(found) <= 63
    assert LABEL_VALUE.match(found)
