"""The plan of the content store, whatever the node has: safe, within the quota, and at rest once carried out."""

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernelcache import store_snapshot
from kernelcache.store_plan import StorePlan, plan_store
from tests.unit.kernelcache.stores import DIGESTS, bytes_of, carried_out, is_idle, named

NOW = 100.0
ONE = st.sampled_from(DIGESTS)
SIZES = st.integers(0, 60)
TIMES = st.integers(0, int(NOW)).map(float)
DESIRED = st.dictionaries(
    st.builds(named, st.sampled_from("xyz"), st.sampled_from(["", "m", "n"])),
    st.builds(store_snapshot.DesiredCache, digest=ONE, bytes=SIZES, is_awaited=st.booleans()),
    max_size=7,
)
STORED = st.dictionaries(
    ONE, st.builds(store_snapshot.DigestOnDisk, bytes=SIZES, last_used_at=TIMES)
)
FAILURES = st.dictionaries(
    ONE, st.builds(store_snapshot.FailedAttempts, count=st.integers(1, 4), at=TIMES), max_size=2
)
LIMITS = st.builds(
    store_snapshot.StoreLimits,
    quota_bytes=st.none() | st.integers(0, 160),
    grace_s=st.sampled_from([0.0, 30.0]),
    retry_base_s=st.just(10.0),
    retry_max_s=st.just(40.0),
)


@st.composite
def snapshots(draw: st.DrawFn) -> store_snapshot.StoreSnapshot:
    stored = draw(STORED)
    extracting = draw(st.dictionaries(ONE, SIZES, max_size=1))
    return store_snapshot.StoreSnapshot(
        desired=draw(DESIRED),
        stored=stored,
        references=draw(st.dictionaries(st.sampled_from("123"), ONE)),
        extracting={digest: size for digest, size in extracting.items() if digest not in stored},
        failures=draw(FAILURES),
        unneeded_since=draw(st.dictionaries(ONE, TIMES)),
    )


def removed(plan: StorePlan) -> set[str]:
    return {removal.digest for removal in plan.removals}


def awaited(store: store_snapshot.StoreSnapshot) -> set[str]:
    return {cache.digest for cache in store.desired.values() if cache.is_awaited}


@given(snapshots(), LIMITS)
def test_what_pods_use_or_wait_for_is_never_removed(store, parameters):
    plan = plan_store(store, parameters, NOW)
    assert not removed(plan) & {*store.references.values()}
    assert not removed(plan) & awaited(store)
    assert removed(plan) <= store.stored.keys()


@given(snapshots(), LIMITS)
def test_every_digest_has_exactly_one_decision(store, parameters):
    plan = plan_store(store, parameters, NOW)
    decided = [
        *(removal.digest for removal in plan.removals),
        *(extraction.digest for extraction in plan.extractions),
        *(item.digest for item in plan.kept),
        *(item.digest for item in plan.postponed),
    ]
    desired = {cache.digest for cache in store.desired.values()}
    assert sorted(decided) == sorted(desired | store.stored.keys())


@given(snapshots(), LIMITS)
def test_caches_of_one_digest_are_extracted_once(store, parameters):
    plan = plan_store(store, parameters, NOW)
    decided = {extraction.digest: extraction.caches for extraction in plan.extractions}
    decided |= {item.digest: item.caches for item in plan.postponed}
    for digest, caches in decided.items():
        named_by = [name for name, cache in store.desired.items() if cache.digest == digest]
        assert list(caches) == sorted(named_by)
    assert not {extraction.digest for extraction in plan.extractions} & store.stored.keys()


@given(snapshots(), LIMITS, st.data())
def test_quota_holds_where_room_can_be_made(store, parameters, data):
    """Whatever an extraction turns out to need, up to what the plan lets it have."""
    plan = plan_store(store, parameters, NOW)
    if parameters.quota_bytes is None:
        return
    sizes = {
        extraction.digest: data.draw(
            st.integers(0, extraction.max_bytes or 0), label=extraction.digest
        )
        for extraction in plan.extractions
    }
    after = carried_out(store, plan, NOW, sizes)
    if bytes_of(after) <= parameters.quota_bytes:
        return
    blocked = {digest for digest, item in store.failures.items() if parameters.retry_at(item) > NOW}
    assert plan.extractions == ()
    assert after.stored.keys() <= {*store.references.values()} | awaited(store) | blocked


@given(snapshots(), LIMITS)
def test_plan_that_is_carried_out_leaves_nothing_to_do(store, parameters):
    plan = plan_store(store, parameters, NOW)
    assert plan_store(store, parameters, NOW) == plan
    after = plan_store(carried_out(store, plan, NOW), parameters, NOW)
    assert is_idle(after)


@given(snapshots(), LIMITS)
def test_extraction_that_fills_its_share_leaves_nothing_to_do(store, parameters):
    plan = plan_store(store, parameters, NOW)
    full = {
        extraction.digest: extraction.max_bytes
        for extraction in plan.extractions
        if extraction.max_bytes is not None
    }
    assert is_idle(plan_store(carried_out(store, plan, NOW, full), parameters, NOW))


@given(snapshots(), LIMITS, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(store, parameters, random):
    def shuffled(mapping: dict[Any, Any]) -> dict[Any, Any]:
        return dict(random.sample(list(mapping.items()), len(mapping)))

    values = {field.name: getattr(store, field.name) for field in dataclasses.fields(store)}
    maps = {name: shuffled(value) for name, value in values.items() if isinstance(value, dict)}
    other = dataclasses.replace(store, **maps)
    assert plan_store(other, parameters, NOW) == plan_store(store, parameters, NOW)


@given(snapshots(), LIMITS, st.sampled_from([0.0, 0.5, 0.99]))
def test_time_alone_changes_nothing_before_the_plan_says(store, parameters, part):
    store = carried_out(store, plan_store(store, parameters, NOW), NOW)
    store = dataclasses.replace(store, unneeded_since=store_snapshot.unneeded_since(store, NOW))
    plan = plan_store(store, parameters, NOW)
    at = NOW + 1e6 if plan.next_at is None else plan.next_at
    assert at > NOW
    assert plan_store(store, parameters, NOW + (at - NOW) * part) == plan


@given(snapshots(), LIMITS)
def test_without_a_quota_nothing_waits_for_room_and_only_the_unneeded_goes(store, parameters):
    parameters = dataclasses.replace(parameters, quota_bytes=None)
    plan = plan_store(store, parameters, NOW)
    assert all(item.missing_bytes == 0 for item in plan.postponed)
    desired = {cache.digest for cache in store.desired.values()}
    assert not removed(plan) & desired
