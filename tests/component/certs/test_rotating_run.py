"""Pass after pass, in virtual time: intervals and failures."""

import asyncio
import datetime as dt
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog.testing

from certs.errors import (
    CertificateError,
    InjectionError,
    SecretConflictError,
    StoreUnavailableError,
)
from certs.rotation import CertificateRotation
from certs.tls import ServingContext
from kube.backoff import Backoff
from telemetry.metrics import REGISTRY
from tests.component.certs.doubles import KilledError, MemoryStore
from tests.support.loop_clock import LoopClock
from tests.unit.certs.builders import DAY, requirements

pytestmark = pytest.mark.looptime


def rotation(store: MemoryStore, **changes) -> CertificateRotation:
    return CertificateRotation(
        store,
        ServingContext(),
        LoopClock(),
        namespace="gpu-system",
        secret_name="gpu-certificates",
        backoff=Backoff(base_s=1.0, cap_s=60.0, rng=random.Random(1)),
        **{"required": requirements(), **changes},
    )


@asynccontextmanager
async def running(rotation: CertificateRotation) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(rotation.run())
        try:
            yield
        finally:
            task.cancel()


def errors(step: str) -> float:
    return REGISTRY.get_sample_value("gpu_certificate_errors_total", {"step": step}) or 0.0


async def test_first_pass_comes_at_once_and_the_next_each_minute():
    store = MemoryStore()
    async with running(subject := rotation(store)):
        await asyncio.wait_for(subject.ready.wait(), 0.1)
        assert store.calls == 3
        await asyncio.sleep(61)
        assert store.calls == 5
        await asyncio.sleep(600)
    assert store.calls == 25
    assert store.writes == ["secret", "caBundle"]


async def test_short_lived_leaves_are_renewed_in_time_for_ever():
    store = MemoryStore()
    required = requirements(leaf_lifetime=dt.timedelta(hours=6), authority_lifetime=DAY)
    subject = rotation(store, required=required, interval_s=600)
    clock = LoopClock()
    async with running(subject):
        await subject.ready.wait()
        ends = set()
        for _ in range(10 * 24):
            await asyncio.sleep(3600)
            end = subject._serving.not_after
            assert end is not None
            assert end > clock.utc_now() + dt.timedelta(hours=1)
            ends.add(end)
    assert 50 <= len(ends) <= 70


@pytest.mark.parametrize(
    ("method", "failure", "step"),
    [
        pytest.param("read", StoreUnavailableError("down"), "store", id="read"),
        pytest.param("write", StoreUnavailableError("down"), "store", id="write"),
        pytest.param("inject", InjectionError("gone"), "inject", id="inject"),
    ],
)
async def test_failure_is_counted_logged_and_tried_again_soon(
    method: str, failure: CertificateError, step: str
):
    store = MemoryStore()
    store.fail_next[method] = [failure] * 3
    before = errors(step)
    with structlog.testing.capture_logs() as lines:
        async with running(subject := rotation(store)):
            await asyncio.wait_for(subject.ready.wait(), 1 + 2 + 4 + 0.1)
    assert errors(step) == before + 3
    failed = [line for line in lines if line["event"] == "certificate check failed"]
    assert [line["failure"] for line in failed] == [type(failure).__name__] * 3
    assert failed[0]["secret"] == "gpu-system/gpu-certificates"


async def test_webhook_configuration_that_appears_late_is_injected_within_a_minute():
    store = MemoryStore()
    store.is_registered = False
    async with running(subject := rotation(store)):
        await asyncio.sleep(3600)
        assert not subject.ready.is_set()
        store.is_registered = True
        await asyncio.wait_for(subject.ready.wait(), 60)
    assert store.injected == store.bundle.trust_pem


async def test_lost_race_that_never_ends_is_a_counted_failure():
    store = MemoryStore()
    store.fail_next["write"] = [SecretConflictError("has changed")] * 5
    before = errors("store")
    async with running(subject := rotation(store)):
        await asyncio.wait_for(subject.ready.wait(), 1.1)
    assert errors("store") == before + 1


async def test_success_makes_the_next_failure_short_again():
    store = MemoryStore()
    store.fail_next["read"] = [StoreUnavailableError("down")] * 8
    async with running(subject := rotation(store, interval_s=10.0)):
        await subject.ready.wait()
        await asyncio.sleep(1)
        calls = store.calls
        store.fail_next["read"] = [StoreUnavailableError("down")]
        await asyncio.sleep(10.1)
        assert store.calls == calls + 3


async def test_error_that_is_none_of_ours_ends_the_task():
    store = MemoryStore()
    store.fail_next["read"] = [KilledError()]
    with pytest.raises(KilledError):
        await rotation(store).run()


async def test_cancellation_ends_the_task():
    task_ended = False
    async with running(rotation(MemoryStore())):
        await asyncio.sleep(5)
        task_ended = True
    assert task_ended
