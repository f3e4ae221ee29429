"""Renewal: only what is faulty, always enough, and never without an overlap of trust."""

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.bundle import Bundle, KeyPair
from certs.validity import StillGood, needs_renewal
from tests.unit.certs.builders import (
    DAY,
    NOW,
    REQUIRED,
    a_bundle,
    a_pair_by,
    certificate,
    certificates,
    decoded,
    renewed,
    requirements,
    rsa_key,
)

BUNDLE = a_bundle()
OTHER = a_bundle()


def test_empty_bundle_becomes_good():
    assert isinstance(needs_renewal(a_bundle(), REQUIRED, NOW), StillGood)


def test_good_bundle_stays_the_same():
    assert renewed(BUNDLE) is BUNDLE


def test_leaf_renewal_keeps_the_authority_and_the_other_leaf():
    made = renewed(replace(BUNDLE, serving=KeyPair()))
    assert made.trust_pem == BUNDLE.trust_pem
    assert made.client == BUNDLE.client
    assert decoded(made.serving).certificate.is_issued_by(certificate(BUNDLE.trust_pem))


def test_every_new_leaf_has_a_new_key():
    at = NOW + 300 * DAY
    assert renewed(BUNDLE, now=at).serving.key_pem != BUNDLE.serving.key_pem
    assert renewed(BUNDLE, now=at).client.key_pem != BUNDLE.client.key_pem


def test_lost_authority_key_leaves_the_old_authority_trusted_and_the_leaves_served():
    made = renewed(replace(BUNDLE, authority_key_pem=b""))
    assert made.trust_pem.endswith(BUNDLE.trust_pem)
    assert made.serving == BUNDLE.serving
    assert decoded(made.authority).certificate != certificate(BUNDLE.trust_pem)


def test_expired_authority_is_not_trusted_on():
    made = renewed(BUNDLE, now=NOW + 4000 * DAY)
    assert len(certificates(made.trust_pem)) == 1


def test_leaf_in_place_of_the_authority_is_not_trusted_on():
    bundle = replace(
        BUNDLE, trust_pem=BUNDLE.client.certificate_pem, authority_key_pem=BUNDLE.client.key_pem
    )
    made = renewed(bundle)
    assert [ca.is_authority for ca in certificates(made.trust_pem)] == [True]


def test_dropping_a_retired_authority_changes_nothing_else():
    bundle = replace(BUNDLE, trust_pem=BUNDLE.trust_pem + OTHER.serving.certificate_pem)
    assert renewed(bundle) == BUNDLE


def test_number_of_trusted_authorities_is_bounded_however_often_they_are_lost():
    bundle = BUNDLE
    for _ in range(8):
        bundle = renewed(replace(bundle, authority_key_pem=b""))
    assert len(certificates(bundle.trust_pem)) == 4
    assert isinstance(needs_renewal(bundle, REQUIRED, NOW), StillGood)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: st.sampled_from(
                [
                    b"",
                    b"junk",
                    *OTHER.as_secret().values(),
                    *BUNDLE.as_secret().values(),
                    a_pair_by(BUNDLE.authority, rsa_key()).certificate_pem,
                    BUNDLE.trust_pem + OTHER.trust_pem,
                    OTHER.trust_pem + BUNDLE.trust_pem,
                ]
            )
            for key in BUNDLE.as_secret()
        },
    ),
    st.timedeltas(-400 * DAY, 4000 * DAY),
)
def test_whatever_the_secret_held_one_renewal_mends_it(
    damage: dict[str, bytes], later: dt.timedelta
):
    made = renewed(Bundle.from_secret({**BUNDLE.as_secret(), **damage}), now=NOW + later)
    assert isinstance(needs_renewal(made, REQUIRED, NOW + later), StillGood)


SHORT = requirements(authority_lifetime=30 * DAY, leaf_lifetime=7 * DAY)
WAIT = 7 * DAY / 9
"""A third of a third of the leaf's lifetime."""


@pytest.mark.parametrize("step", [dt.timedelta(hours=11), dt.timedelta(hours=31)])
def test_through_many_rotations_each_new_leaf_is_by_an_authority_trusted_before(
    step: dt.timedelta,
):
    now, bundle = NOW, a_bundle(SHORT)
    trusted_since = {certificate(bundle.trust_pem).pem: now}
    current = (bundle.serving, bundle.client)
    switches = 0
    while now < NOW + 100 * DAY:
        now += step
        bundle = renewed(bundle, SHORT, now)
        for authority in certificates(bundle.trust_pem):
            trusted_since.setdefault(authority.pem, now)
        for place, pair in enumerate((bundle.serving, bundle.client)):
            leaf = decoded(pair).certificate
            issuers = [ca for ca in certificates(bundle.trust_pem) if leaf.is_issued_by(ca)]
            assert len(issuers) == 1
            assert leaf.not_after > now
            if leaf.parsed.issuer != decoded(current[place]).certificate.parsed.issuer:
                switches += 1
                assert now - trusted_since[issuers[0].pem] >= WAIT
        current = (bundle.serving, bundle.client)
    assert switches >= 2 * 4
    assert len(trusted_since) >= 5


@pytest.mark.parametrize("lifetime", [dt.timedelta(minutes=1), dt.timedelta(hours=2), 400 * DAY])
def test_renewed_bundle_is_good_for_a_while_whatever_the_lifetimes(lifetime: dt.timedelta):
    required = requirements(authority_lifetime=lifetime, leaf_lifetime=lifetime)
    answer = needs_renewal(a_bundle(required), required, NOW)
    assert isinstance(answer, StillGood)
    assert answer.until > NOW
