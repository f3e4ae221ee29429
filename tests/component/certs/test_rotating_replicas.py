"""Several replicas on one Secret: one certificate for all, in any order of writes."""

import asyncio
import datetime as dt
import random
from contextlib import suppress

import pytest

from certs.errors import (
    CertificateError,
    InjectionError,
    SecretConflictError,
    StoreUnavailableError,
)
from certs.validity import StillGood, needs_renewal
from tests.component.certs.doubles import MemoryStore
from tests.component.certs.test_rotating import SECRET, Replica
from tests.unit.certs.builders import DAY, NOW, REQUIRED, a_bundle, certificate, certificates

FAILURES: list[tuple[str, type[CertificateError]]] = [
    ("read", StoreUnavailableError),
    ("write", StoreUnavailableError),
    ("inject", InjectionError),
]


async def test_replicas_that_start_at_once_serve_the_same_certificate():
    store = MemoryStore()
    replicas = [Replica(store) for _ in range(5)]
    async with asyncio.TaskGroup() as tasks:
        for replica in replicas:
            tasks.create_task(replica.rotation.check())
    assert store.writes.count("secret") == 1
    assert all(replica.is_in_step for replica in replicas)


async def test_replicas_that_find_the_leaves_due_at_once_renew_them_once():
    store = MemoryStore()
    store.put(*SECRET, a_bundle(now=NOW - 300 * DAY).as_secret())
    replicas = [Replica(store) for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        for replica in replicas:
            tasks.create_task(replica.rotation.check())
    assert store.writes.count("secret") == 1
    assert all(replica.is_in_step for replica in replicas)


@pytest.mark.parametrize("had_secret", [False, True])
async def test_loser_of_the_race_serves_the_winners_certificate(had_secret: bool):
    store = MemoryStore()
    if had_secret:
        store.put(*SECRET, a_bundle(now=NOW - 300 * DAY).as_secret())
    winner, loser = Replica(store), Replica(store)
    store.meanwhile = winner.rotation.check
    await loser.rotation.check()
    assert store.writes.count("secret") == 1
    assert loser.serving.loaded == winner.serving.loaded == store.bundle.to_serve


async def test_secret_that_is_deleted_between_read_and_write_is_created():
    store = MemoryStore()
    store.put(*SECRET, a_bundle(now=NOW - 300 * DAY).as_secret())

    async def delete() -> None:
        store.secrets.clear()

    store.meanwhile = delete
    replica = Replica(store)
    await replica.rotation.check()
    assert replica.is_in_step


async def test_conflict_without_end_is_an_error_and_no_endless_loop():
    store = MemoryStore()
    replica = Replica(store)
    store.fail_next["write"] = [SecretConflictError("has changed") for _ in range(100)]
    with pytest.raises(SecretConflictError, match="gpu-system/gpu-certificates changed under us"):
        await replica.rotation.check()
    assert store.calls <= 10
    store.fail_next.clear()
    await replica.rotation.check()
    assert replica.is_in_step


async def test_cancelled_pass_leaves_nothing_that_the_next_does_not_mend():
    for steps in range(1, 12):
        store = MemoryStore()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(Replica(store).rotation.check())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
        successor = Replica(store)
        await successor.rotation.check()
        assert successor.is_in_step
        assert store.injected == store.bundle.trust_pem


async def test_replicas_whose_clocks_differ_agree_after_one_round():
    store = MemoryStore()
    ahead, behind = Replica(store, NOW + DAY), Replica(store, NOW - DAY)
    for replica in (ahead, behind, ahead, behind):
        await replica.rotation.check()
    store.writes.clear()
    for replica in (ahead, behind):
        await replica.rotation.check()
        assert replica.is_in_step
    assert store.writes == []


@pytest.mark.parametrize("seed", range(2))
async def test_years_of_passes_in_any_order_never_serve_what_is_not_trusted(seed: int):
    """Replicas pass in any order and often fail; at each moment each must be believed."""
    rng = random.Random(seed)
    store = MemoryStore()
    replicas = [Replica(store) for _ in range(3)]
    now = NOW
    for replica in replicas:
        await replica.rotation.check()
    while now < NOW + 4200 * DAY:
        now += dt.timedelta(days=rng.uniform(2, 29))
        for replica in rng.sample(replicas, k=3):
            replica.clock.now = now
            if rng.random() < 0.2:
                method, failure = rng.choice(FAILURES)
                rng.choice([store.fail_next, store.then_fail_next])[method] = [failure("down")]
            with suppress(CertificateError):
                await replica.rotation.check()
            store.fail_next.clear()
            store.then_fail_next.clear()
            for item in replicas:
                assert is_believed(item, store.injected or b"", now)
    assert isinstance(needs_renewal(store.bundle, REQUIRED, now), StillGood)


def is_believed(replica: Replica, ca_bundle: bytes, now: dt.datetime) -> bool:
    """Say whether the API server, which knows caBundle only, takes what the replica shows."""
    assert replica.serving.loaded is not None
    leaf = certificate(replica.serving.loaded.pair.certificate_pem)
    return leaf.not_after > now and any(
        leaf.is_issued_by(ca) and ca.not_after > now for ca in certificates(ca_bundle)
    )
