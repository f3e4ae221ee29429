"""Rotation: what one replica does, pass by pass, and what it leaves behind."""

import contextlib
import datetime as dt
from dataclasses import replace

import pytest
import structlog.testing

from certs.bundle import Bundle, Requirements
from certs.errors import CertificateError, InjectionError, StoreUnavailableError
from certs.rotation import CertificateRotation
from certs.tls import ServingContext
from certs.validity import StillGood, needs_renewal
from telemetry.metrics import REGISTRY
from tests.component.certs.doubles import KilledError, MemoryStore, SettableClock
from tests.unit.certs.builders import (
    DAY,
    NOW,
    REQUIRED,
    a_bundle,
    certificate,
    certificates,
    requirements,
)

SECRET = ("gpu-system", "gpu-certificates")
CLIENT_SECRET = ("gpu-system", "gpu-scheduler")


class Replica:
    """One process: its own clock and what it serves."""

    def __init__(self, store: MemoryStore, now: dt.datetime = NOW) -> None:
        self.clock = SettableClock(now)
        self.serving = ServingContext()
        self.store = store
        self.rotation = self.with_required(REQUIRED)

    def with_required(
        self, required: Requirements, *, client_secret_name: str = ""
    ) -> CertificateRotation:
        namespace, name = SECRET
        return CertificateRotation(
            self.store,
            self.serving,
            self.clock,
            namespace=namespace,
            secret_name=name,
            client_secret_name=client_secret_name,
            required=required,
        )

    async def check_at(self, now: dt.datetime) -> None:
        self.clock.now = now
        await self.rotation.check()

    @property
    def is_in_step(self) -> bool:
        return self.serving.loaded == self.store.bundle.to_serve


def test_error_counters_exist_before_the_first_error():
    for step in ("store", "inject", "reload"):
        assert REGISTRY.get_sample_value("gpu_certificate_errors_total", {"step": step}) is not None


async def test_first_pass_makes_stores_injects_and_serves():
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    assert isinstance(needs_renewal(store.bundle, REQUIRED, NOW), StillGood)
    assert store.injected == store.bundle.trust_pem
    assert replica.is_in_step
    assert replica.rotation.ready.is_set()


def with_client_secret(store: MemoryStore) -> CertificateRotation:
    return Replica(store).with_required(REQUIRED, client_secret_name=CLIENT_SECRET[1])


async def test_schedulers_secret_has_what_it_needs_and_no_key_of_ours():
    store = MemoryStore()
    await with_client_secret(store).check()
    copied = store.secrets[CLIENT_SECRET].data
    bundle = Bundle.from_secret(store.secrets[SECRET].data)
    assert copied == {
        "ca.crt": bundle.trust_pem,
        "scheduler.crt": bundle.client.certificate_pem,
        "scheduler.key": bundle.client.key_pem,
    }


@pytest.mark.parametrize("is_registered", [True, False])
async def test_schedulers_secret_is_made_again_where_it_differs(is_registered: bool):
    """Also while the webhook configurations are not there yet."""
    store = MemoryStore()
    rotation = with_client_secret(store)
    await rotation.check()
    copied = dict(store.secrets[CLIENT_SECRET].data)
    store.is_registered = is_registered
    for damaged in ({}, {**copied, "scheduler.crt": b"another"}):
        store.put(*CLIENT_SECRET, damaged)
        with contextlib.nullcontext() if is_registered else pytest.raises(InjectionError):
            await rotation.check()
        assert store.secrets[CLIENT_SECRET].data == copied


@pytest.mark.parametrize("passes", [1, 2, 3])
async def test_further_passes_write_nothing(passes: int):
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    store.writes.clear()
    for _ in range(passes):
        await replica.rotation.check()
    assert store.writes == []


async def test_restart_writes_nothing_and_serves_the_same():
    store = MemoryStore()
    first = Replica(store)
    await first.rotation.check()
    store.writes.clear()
    second = Replica(store)
    await second.rotation.check()
    assert store.writes == []
    assert second.serving.loaded == first.serving.loaded


async def test_leaf_is_renewed_ninety_days_before_its_end_without_another_injection():
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    before = store.bundle
    store.writes.clear()
    await replica.check_at(NOW + 275 * DAY - dt.timedelta(seconds=1))
    assert store.writes == []
    await replica.check_at(NOW + 275 * DAY)
    assert store.writes == ["secret"]
    assert store.bundle.trust_pem == before.trust_pem
    assert store.bundle.serving != before.serving
    assert replica.is_in_step


async def test_name_that_is_newly_wanted_makes_a_new_leaf():
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    await replica.with_required(requirements(dns_names=("new.example.org",))).check()
    assert "new.example.org" in certificate(store.bundle.serving.certificate_pem).dns_names
    assert replica.is_in_step


async def test_deleted_secret_is_made_again():
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    store.secrets.clear()
    await replica.rotation.check()
    assert replica.is_in_step
    assert store.injected == store.bundle.trust_pem


async def test_ca_bundle_that_somebody_removed_is_injected_again():
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    store.injected = None
    await replica.rotation.check()
    assert store.injected == store.bundle.trust_pem


async def test_foreign_keys_of_the_secret_stay():
    store = MemoryStore()
    store.put(*SECRET, {"note": b"mine"})
    await Replica(store).rotation.check()
    assert store.secrets[SECRET].data["note"] == b"mine"
    assert isinstance(needs_renewal(store.bundle, REQUIRED, NOW), StillGood)


async def test_new_authority_is_trusted_before_any_leaf_is_by_it():
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    old_ca = store.bundle.trust_pem
    now = NOW
    while store.bundle.trust_pem == old_ca:
        now += 100 * DAY
        await replica.check_at(now)
    new_ca = certificate(store.bundle.trust_pem)
    assert store.injected == store.bundle.trust_pem == new_ca.pem + old_ca
    assert not certificate(store.bundle.serving.certificate_pem).is_issued_by(new_ca)
    await replica.check_at(now + 30 * DAY)
    assert certificate(store.bundle.serving.certificate_pem).is_issued_by(new_ca)
    assert store.injected == new_ca.pem + old_ca
    await replica.check_at(now + 90 * DAY)
    assert store.injected == store.bundle.trust_pem == new_ca.pem
    assert replica.is_in_step


class TestInjectionFails:
    """caBundle cannot be written: no certificate is shown that the API server would refuse."""

    async def test_first_certificate_is_served_all_the_same_but_not_ready(self):
        store = MemoryStore()
        store.is_registered = False
        replica = Replica(store)
        with pytest.raises(InjectionError, match="does not exist"):
            await replica.rotation.check()
        assert replica.is_in_step
        assert not replica.rotation.ready.is_set()

    async def test_certificate_by_an_unknown_ca_is_held_back_until_it_succeeds(self):
        store = MemoryStore()
        replica = Replica(store)
        await replica.rotation.check()
        served = replica.serving.loaded
        store.put(*SECRET, a_bundle().as_secret())
        store.is_registered = False
        with pytest.raises(InjectionError):
            await replica.rotation.check()
        assert replica.serving.loaded == served
        store.is_registered = True
        await replica.rotation.check()
        assert replica.is_in_step

    async def test_certificate_by_the_same_cas_is_not_held_back(self):
        store = MemoryStore()
        replica = Replica(store)
        await replica.rotation.check()
        store.is_registered = False
        with pytest.raises(InjectionError):
            await replica.check_at(NOW + 280 * DAY)
        assert store.writes[-1] == "secret"
        assert replica.is_in_step

    async def test_nothing_is_held_back_once_the_old_certificate_is_about_to_end(self):
        store = MemoryStore()
        replica = Replica(store)
        await replica.rotation.check()
        end = NOW + 365 * DAY
        store.is_registered = False
        store.put(*SECRET, a_bundle(now=end).as_secret())
        with pytest.raises(InjectionError):
            await replica.check_at(end - dt.timedelta(minutes=59))
        assert replica.is_in_step


@pytest.mark.parametrize("method", ["read", "write"])
async def test_api_server_that_fails_changes_nothing_that_is_served(method: str):
    store = MemoryStore()
    replica = Replica(store)
    await replica.rotation.check()
    served = replica.serving.loaded
    store.fail_next[method] = [StoreUnavailableError("down")]
    with pytest.raises(StoreUnavailableError):
        await replica.check_at(NOW + 300 * DAY)
    assert replica.serving.loaded == served
    await replica.rotation.check()
    assert replica.is_in_step


async def test_write_of_unknown_outcome_that_happened_is_found_and_kept():
    store = MemoryStore()
    replica = Replica(store)
    store.then_fail_next["write"] = [StoreUnavailableError("timed out")]
    with pytest.raises(StoreUnavailableError):
        await replica.rotation.check()
    stored = store.bundle
    await replica.rotation.check()
    assert store.bundle == stored
    assert replica.is_in_step


@pytest.mark.parametrize("when", ["fail_next", "then_fail_next"])
@pytest.mark.parametrize("method", ["read", "write", "inject"])
@pytest.mark.parametrize(
    "start",
    [
        pytest.param({}, id="nothing stored"),
        pytest.param(a_bundle(now=NOW - 300 * DAY).as_secret(), id="leaves due"),
        pytest.param(replace(a_bundle(), authority_key_pem=b"").as_secret(), id="authority due"),
    ],
)
async def test_crash_at_any_step_is_made_good_by_the_next_start(
    start: dict[str, bytes], method: str, when: str
):
    store = MemoryStore()
    if start:
        store.put(*SECRET, start)
    getattr(store, when)[method] = [KilledError()]
    with pytest.raises(KilledError):
        await Replica(store).rotation.check()
    successor = Replica(store)
    await successor.rotation.check()
    assert isinstance(needs_renewal(store.bundle, REQUIRED, NOW), StillGood)
    assert store.injected == store.bundle.trust_pem
    assert successor.is_in_step
    store.writes.clear()
    await successor.rotation.check()
    assert store.writes == []


async def test_damaged_secret_is_mended():
    store = MemoryStore()
    store.put(*SECRET, {**a_bundle().as_secret(), "tls.key": b"junk", "ca.crt": b"junk"})
    replica = Replica(store)
    await replica.rotation.check()
    assert isinstance(needs_renewal(store.bundle, REQUIRED, NOW), StillGood)
    assert len(certificates(store.bundle.trust_pem)) == 1


async def test_no_log_line_or_error_shows_key_material():
    store = MemoryStore()
    replica = Replica(store)
    errors: list[CertificateError] = []
    with structlog.testing.capture_logs() as lines:
        await replica.rotation.check()
        store.put(*SECRET, {**store.bundle.as_secret(), "tls.key": store.bundle.client.key_pem})
        await replica.rotation.check()
        replica.store.is_registered = False
        store.injected = None
        try:
            await replica.rotation.check()
        except CertificateError as error:
            errors.append(error)
    assert any(line["event"] == "certificates renewed" for line in lines)
    current = repr(lines) + repr(errors) + repr(store.secrets) + repr(Bundle())
    assert "BEGIN" not in current
    assert "PRIVATE" not in current
