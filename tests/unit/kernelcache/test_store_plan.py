"""What a node extracts, keeps and removes, and the reason of each."""

import dataclasses

import pytest

from kernelcache.store_plan import (
    Extract,
    ExtractionReason,
    Keep,
    KeepReason,
    Postpone,
    PostponeReason,
    RemovalReason,
    Remove,
    plan_store,
)
from kernelcache.store_snapshot import (
    DesiredCache,
    FailedAttempts,
    StoreLimits,
    StoreSnapshot,
    unneeded_since,
)
from tests.unit.kernelcache.stores import (
    A,
    B,
    C,
    a_desired_cache,
    a_store,
    carried_out,
    is_idle,
    named,
    on_disk,
)

LIMITS = StoreLimits(quota_bytes=100, grace_s=300.0, retry_base_s=10.0, retry_max_s=60.0)
NO_QUOTA = dataclasses.replace(LIMITS, quota_bytes=None)
NOW = 1000.0
NAME = named("cache-0")


def removed(store: StoreSnapshot, limits: StoreLimits = LIMITS) -> dict[str, RemovalReason]:
    return {removal.digest: removal.reason for removal in plan_store(store, limits, NOW).removals}


def extracted(store: StoreSnapshot, limits: StoreLimits = LIMITS) -> list[str]:
    return [extraction.digest for extraction in plan_store(store, limits, NOW).extractions]


def test_wanted_cache_is_extracted_and_then_kept():
    store = a_store([a_desired_cache(A)])
    plan = plan_store(store, LIMITS, NOW)
    assert plan.extractions == (
        Extract(digest=A, caches=(NAME,), reason=ExtractionReason.WARM, max_bytes=100),
    )
    after = plan_store(carried_out(store, plan, NOW), LIMITS, NOW)
    assert is_idle(after)
    assert after.kept == (Keep(digest=A, reason=KeepReason.DESIRED),)
    assert after.next_at is None


def test_caches_of_one_digest_share_one_copy():
    """Numbers: a second cache with the same digest, in another namespace, costs no pull and no bytes."""
    store = StoreSnapshot(
        desired={named("x", "b"): a_desired_cache(A, 10), named("x", "a"): a_desired_cache(A, 12)},
        stored={},
    )
    [one] = plan_store(store, LIMITS, NOW).extractions
    assert one.caches == (named("x", "a"), named("x", "b"))
    store = dataclasses.replace(store, stored={A: on_disk()})
    assert is_idle(plan_store(store, LIMITS, NOW))
    del store.desired[named("x", "a")]  # type: ignore[attr-defined]  # a dict, as the builder made it
    assert plan_store(store, LIMITS, NOW).kept == (Keep(digest=A, reason=KeepReason.DESIRED),)


def test_what_pods_use_stays_whatever_else_is_wanted():
    """G8: the old digest under running pods stays until the last of them has ended."""
    store = a_store([a_desired_cache(B)], {A: on_disk()}, mounted=[A], unneeded_since={A: 0.0})
    plan = plan_store(store, LIMITS, NOW)
    assert plan.kept == (Keep(digest=A, reason=KeepReason.IN_USE),)
    assert [extraction.digest for extraction in plan.extractions] == [B]


def test_content_that_nothing_needs_goes_after_its_grace_time():
    """G15."""
    store = a_store([], {A: on_disk()}, unneeded_since={A: NOW - 300.0})
    assert removed(store) == {A: RemovalReason.UNNEEDED}
    store = a_store([], {A: on_disk()}, unneeded_since={A: NOW - 299.0})
    plan = plan_store(store, LIMITS, NOW)
    assert plan.kept == (Keep(digest=A, reason=KeepReason.GRACE, until=NOW + 1.0),)
    assert plan.next_at == NOW + 1.0


def test_grace_time_starts_when_the_need_ends_and_starts_again_after_a_need():
    store = a_store([], {A: on_disk(used_at=0.0), B: on_disk()}, mounted=[B])
    assert unneeded_since(store, NOW) == {A: NOW}
    later = dataclasses.replace(store, unneeded_since={A: NOW, B: 5.0})
    assert unneeded_since(later, NOW + 9.0) == {A: NOW}
    desired = dataclasses.replace(later, desired={NAME: a_desired_cache(A)})
    assert unneeded_since(desired, NOW + 9.0) == {}


def test_room_is_made_of_the_least_recently_used_content_even_in_its_grace_time():
    store = a_store(
        [a_desired_cache(C, 40)], {A: on_disk(40, used_at=2.0), B: on_disk(40, used_at=1.0)}
    )
    assert removed(store) == {B: RemovalReason.SPACE}
    assert extracted(store) == [C]


def test_no_more_is_removed_than_must_be():
    store = a_store(
        [a_desired_cache(C, 60)], {A: on_disk(10, used_at=1.0), B: on_disk(60, used_at=2.0)}
    )
    assert removed(store) == {B: RemovalReason.SPACE}


def test_a_cache_without_a_pod_displaces_no_other_cache():
    """Two caches that do not fit together would be pulled in turn for ever."""
    store = a_store([a_desired_cache(A, 60), a_desired_cache(B, 60)], {A: on_disk(60)})
    plan = plan_store(store, LIMITS, NOW)
    assert is_idle(plan)
    assert plan.postponed == (
        Postpone(
            digest=B, caches=(named("cache-1"),), reason=PostponeReason.NO_SPACE, missing_bytes=20
        ),
    )
    assert plan.next_at is None


def test_a_pod_that_waits_displaces_the_least_recently_used_cache_and_that_one_stays_away():
    desired = [
        a_desired_cache(A, 50),
        a_desired_cache(B, 50),
        a_desired_cache(C, 50, is_awaited=True),
    ]
    store = a_store(desired, {A: on_disk(50, used_at=2.0), B: on_disk(50, used_at=1.0)})
    plan = plan_store(store, LIMITS, NOW)
    assert plan.removals == (Remove(digest=B, reason=RemovalReason.SPACE),)
    assert [extraction.reason for extraction in plan.extractions] == [ExtractionReason.POD_WAITS]
    after = plan_store(carried_out(store, plan, NOW), LIMITS, NOW)
    assert is_idle(after)
    assert [item.digest for item in after.postponed] == [B]


def test_content_in_its_grace_time_goes_before_a_cache_that_is_wanted():
    desired = [a_desired_cache(A, 50), a_desired_cache(C, 50, is_awaited=True)]
    store = a_store(desired, {A: on_disk(50, used_at=1.0), B: on_disk(50, used_at=2.0)})
    assert removed(store) == {B: RemovalReason.SPACE}


def test_two_pods_that_wait_displace_nothing_of_each_other():
    desired = [a_desired_cache(A, 60, is_awaited=True), a_desired_cache(B, 60, is_awaited=True)]
    store = a_store(desired, {A: on_disk(60)})
    plan = plan_store(store, LIMITS, NOW)
    assert is_idle(plan)
    assert [(item.reason, item.missing_bytes) for item in plan.postponed] == [
        (PostponeReason.NO_SPACE, 20)
    ]


def test_nothing_is_removed_for_a_cache_that_would_not_fit_anyway():
    desired = [a_desired_cache(C, 101, is_awaited=True)]
    store = a_store(desired, {A: on_disk(50)}, mounted=[A])
    assert is_idle(plan_store(store, LIMITS, NOW))
    store = a_store(desired, {A: on_disk(50)})
    plan = plan_store(store, LIMITS, NOW)
    assert is_idle(plan)
    assert [item.missing_bytes for item in plan.postponed] == [1]


def test_a_smaller_cache_takes_the_room_that_a_larger_one_cannot():
    assert extracted(a_store([a_desired_cache(A, 101), a_desired_cache(B, 40)])) == [B]


def test_quota_that_was_lowered_displaces_what_no_pod_uses():
    stored = {A: on_disk(60, used_at=1.0), B: on_disk(60, used_at=2.0), C: on_disk(30)}
    store = a_store([a_desired_cache(A, 60), a_desired_cache(B, 60)], stored, mounted=[C])
    plan = plan_store(store, LIMITS, NOW)
    assert plan.removals == (Remove(digest=A, reason=RemovalReason.QUOTA),)
    after = plan_store(carried_out(store, plan, NOW), LIMITS, NOW)
    assert is_idle(after)
    assert [(item.digest, item.reason) for item in after.postponed] == [
        (A, PostponeReason.NO_SPACE)
    ]


def test_without_a_quota_everything_that_is_wanted_is_extracted():
    store = a_store([a_desired_cache(A, 10**15), a_desired_cache(B, 10**15)], {C: on_disk(10**15)})
    plan = plan_store(store, NO_QUOTA, NOW)
    assert [extraction.max_bytes for extraction in plan.extractions] == [None, None]
    assert plan.removals == ()


def test_extractions_share_what_is_left_so_that_all_fit_together():
    store = a_store([a_desired_cache(A, 20), a_desired_cache(B, 30)], {C: on_disk(10)}, mounted=[C])
    found = {
        extraction.digest: extraction.max_bytes
        for extraction in plan_store(store, LIMITS, NOW).extractions
    }
    assert found == {A: 40, B: 50}


def test_extraction_under_way_keeps_its_room():
    store = a_store([a_desired_cache(A, 60), a_desired_cache(B, 60)], extracting={A: 60})
    plan = plan_store(store, LIMITS, NOW)
    assert plan.extractions == ()
    assert [(item.digest, item.reason) for item in plan.postponed] == [
        (A, PostponeReason.EXTRACTING),
        (B, PostponeReason.NO_SPACE),
    ]


def test_a_failure_of_a_time_to_come_binds_a_digest_no_longer_than_the_longest_delay():
    failures = {A: FailedAttempts(count=1, at=NOW + 7200.0)}
    [postponed] = plan_store(
        a_store([a_desired_cache(A)], failures=failures), LIMITS, NOW
    ).postponed
    assert postponed.until == NOW + LIMITS.retry_max_s


def test_failed_extraction_is_tried_again_later_and_later():
    """G10: with GKM a digest whose last attempt failed is skipped for ever (sticky)."""
    delays = []
    for count in range(1, 6):
        failures = {A: FailedAttempts(count=count, at=NOW)}
        [one] = plan_store(a_store([a_desired_cache(A)], failures=failures), LIMITS, NOW).postponed
        assert one.reason is PostponeReason.RETRY
        assert one.until is not None
        delays.append(one.until - NOW)
        due = plan_store(a_store([a_desired_cache(A)], failures=failures), LIMITS, one.until)
        assert [extraction.digest for extraction in due.extractions] == [A]
    assert delays == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_a_thousand_failures_are_no_overflow():
    failed = FailedAttempts(count=10_000, at=NOW)
    assert LIMITS.retry_at(failed) == NOW + 60.0


def test_a_failure_of_one_digest_does_not_hold_back_another():
    store = a_store(
        [a_desired_cache(A), a_desired_cache(B)], failures={A: FailedAttempts(count=9, at=NOW)}
    )
    assert extracted(store) == [B]


def test_failed_removal_is_tried_again_later():
    """C10: a failure to remove is retried and reported, not only logged."""
    gone = {"unneeded_since": {A: 0.0}}
    failures = {A: FailedAttempts(count=1, at=NOW - 3.0)}
    store = a_store([], {A: on_disk()}, failures=failures, **gone)
    assert plan_store(store, LIMITS, NOW).kept == (
        Keep(digest=A, reason=KeepReason.RETRY, until=NOW + 7.0),
    )
    assert [removal.digest for removal in plan_store(store, LIMITS, NOW + 7.0).removals] == [A]


def test_what_cannot_be_removed_makes_no_room():
    failures = {A: FailedAttempts(count=1, at=NOW)}
    store = a_store([a_desired_cache(B, 60)], {A: on_disk(60)}, failures=failures)
    plan = plan_store(store, LIMITS, NOW)
    assert is_idle(plan)
    assert plan.next_at == NOW + 10.0
    later = plan_store(store, LIMITS, NOW + 10.0)
    assert [removal.digest for removal in later.removals] == [A]
    assert [extraction.digest for extraction in later.extractions] == [B]


def test_lost_content_under_a_mount_is_extracted_again():
    """A lost store: the references are there, the content is not."""
    store = a_store([a_desired_cache(A)], mounted=[A])
    assert extracted(store) == [A]
    assert is_idle(plan_store(a_store([], mounted=[A]), LIMITS, NOW))


@pytest.mark.parametrize("field", ["quota_bytes", "grace_s", "retry_base_s", "retry_max_s"])
def test_terms_below_zero_are_refused(field):
    with pytest.raises(ValueError, match="no less than 0"):
        StoreLimits(**{field: -1})


def test_cache_that_was_larger_than_its_image_says_does_not_come_back_once_displaced():
    store = a_store([a_desired_cache(A, 50)], {A: on_disk(120)})
    plan = plan_store(store, LIMITS, NOW)
    assert plan.removals == (Remove(digest=A, reason=RemovalReason.QUOTA),)
    after = plan_store(carried_out(store, plan, NOW), LIMITS, NOW)
    assert is_idle(after)
    assert [item.missing_bytes for item in after.postponed] == [20]


def test_wanted_bytes_of_a_digest_are_the_largest_claim():
    store = StoreSnapshot(
        desired={named("x"): DesiredCache(digest=A, bytes=1), named("y"): a_desired_cache(A, 101)},
        stored={},
    )
    [one] = plan_store(store, LIMITS, NOW).postponed
    assert one.missing_bytes == 1


def test_an_extraction_keeps_no_more_from_others_than_its_image_makes_likely():
    """The next one must not wait for the quota while the disk is empty."""
    store = StoreSnapshot(desired={NAME: DesiredCache(digest=A, bytes=2 << 30)}, stored={})
    limits = StoreLimits(quota_bytes=100 << 30)
    (one,) = plan_store(store, limits, NOW).extractions
    assert one.max_bytes == 18 << 30


@pytest.mark.parametrize("limits", [LIMITS, NO_QUOTA], ids=["beside a quota", "without a quota"])
def test_a_pod_that_waits_gets_room_on_a_full_disk_and_no_other_cache_does(limits):
    """The quota says what caches may take, the disk what there is."""
    full = {A: on_disk(40), B: on_disk(40)}
    warm = [a_desired_cache(A, 40), a_desired_cache(B, 40)]
    store = a_store([*warm, a_desired_cache(C, 30)], full, free_bytes=-5)
    assert is_idle(plan_store(store, limits, NOW))
    waits = a_store([*warm, a_desired_cache(C, 30, is_awaited=True)], full, free_bytes=-5)
    assert extracted(waits, limits) == [C]
    assert removed(waits, limits) == {A: RemovalReason.SPACE}


def test_a_disk_that_others_filled_displaces_no_content():
    store = a_store([a_desired_cache(A, 40)], {A: on_disk(40)}, free_bytes=-500)
    assert is_idle(plan_store(store, LIMITS, NOW))
    assert store.quota_bytes(LIMITS) == 40
    assert dataclasses.replace(store, free_bytes=1_000).quota_bytes(LIMITS) == 100
