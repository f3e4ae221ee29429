"""The webhooks for caches answer whatever they are sent; none of them raises, and nothing unproven is let in."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission import cache_webhooks
from tests.support.cache_admission import CLUSTERGKMCACHE, GKMCACHE, CacheAdmissionSetup
from tests.support.reviews import Reply, a_review

WORDS = ["metadata", "spec", "name", "image", "annotations", "gkm.io/resolvedDigest", "warm"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
near_caches = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["c", "", "../x", "C"])},
            optional={
                "annotations": st.dictionaries(
                    st.sampled_from(["gkm.io/resolvedDigest", "gkm.io/mutationSig", "a"]),
                    st.text(max_size=4),
                ),
                "generation": st.integers(-1, 3),
                "deletionTimestamp": st.just("2026-01-01T00:00:00Z"),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"image": st.sampled_from(["registry.example.com/team/cache:1", "", "a b", 1, None])},
            optional={"verification": json_values, "warm": json_values, "pullSecrets": json_values},
        ),
    }
)


def answers(body: bytes) -> list[Reply]:
    context = CacheAdmissionSetup().context
    mutated = [
        asyncio.run(mutate(body, context))
        for mutate in (cache_webhooks.mutate_gkmcache, cache_webhooks.mutate_clustergkmcache)
    ]
    validated = [
        validate(body, context)
        for validate in (cache_webhooks.validate_gkmcache, cache_webhooks.validate_clustergkmcache)
    ]
    return [Reply(item) for item in (*mutated, *validated)]


@given(body=st.binary(max_size=64) | json_values.map(lambda value: a_review(value, kind=GKMCACHE)))
def test_any_bytes_are_answered(body: bytes):
    assert {item.answer.status for item in answers(body)} <= {200, 400}


@given(
    new=near_caches,
    old=st.none() | near_caches,
    kind=st.sampled_from([GKMCACHE, CLUSTERGKMCACHE]),
    namespace=st.sampled_from(["", "team-a", "../x"]),
)
def test_nothing_unproven_is_validated(new: Any, old: Any, kind: dict[str, str], namespace: str):
    operation = "CREATE" if old is None else "UPDATE"
    body = a_review(new, kind=kind, old=old, namespace=namespace, operation=operation)
    validated = [item for item in answers(body)[2:] if item.answer.status == 200]
    is_deleting = old is not None and "deletionTimestamp" in old["metadata"]
    assert all(is_deleting or not item.allowed for item in validated)


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_other_operations_are_let_pass(operation: str):
    body = a_review({}, kind=GKMCACHE, operation=operation)
    assert [item.allowed for item in answers(body) if item.answer.status == 200] == [True, True]
