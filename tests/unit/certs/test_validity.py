"""What must be renewed, when, and why: each reason by itself."""

import datetime as dt
import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.bundle import Bundle, KeyPair
from certs.issuance import issue_client, issue_serving, new_key
from certs.pem import Defect
from certs.validity import Part, RenewalNeeded, StillGood, needs_renewal
from tests.unit.certs.builders import (
    DAY,
    NOW,
    REQUIRED,
    a_bundle,
    a_pair_by,
    decoded,
    pem_of,
    renewed,
    requirements,
    rsa_key,
)

BUNDLE = a_bundle()
OTHER = a_bundle()
SECOND = dt.timedelta(seconds=1)
LEAF_END = NOW + 365 * DAY
CA_END = NOW + 3650 * DAY


def defects(bundle: Bundle, now: dt.datetime = NOW, required=REQUIRED) -> dict[Part, Defect]:
    match needs_renewal(bundle, required, now):
        case StillGood():
            return {}
        case RenewalNeeded(renewals):
            return {renewal.part: renewal.fault.defect for renewal in renewals}


def test_fresh_bundle_is_good_until_ninety_days_before_the_leaves_end():
    lookahead_ends = LEAF_END - 90 * DAY
    assert needs_renewal(BUNDLE, REQUIRED, NOW) == StillGood(lookahead_ends)
    assert defects(BUNDLE, lookahead_ends - SECOND) == {}


def test_still_good_is_true_until_its_moment_and_no_longer():
    answer = needs_renewal(BUNDLE, REQUIRED, NOW)
    assert isinstance(answer, StillGood)
    assert defects(BUNDLE, answer.until - SECOND) == {}
    assert defects(BUNDLE, answer.until) != {}


def test_nothing_at_all_is_missing_in_every_part():
    assert defects(Bundle()) == {
        Part.AUTHORITY: Defect.MISSING,
        Part.SERVING: Defect.UNKNOWN_ISSUER,
        Part.CLIENT: Defect.UNKNOWN_ISSUER,
    }


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"serving": KeyPair()}, {Part.SERVING: Defect.MISSING}, id="no serving"),
        pytest.param({"client": KeyPair()}, {Part.CLIENT: Defect.MISSING}, id="no client"),
        pytest.param({"authority_key_pem": b""}, {Part.AUTHORITY: Defect.MISSING}, id="no CA key"),
        pytest.param(
            {"serving": replace(BUNDLE.serving, certificate_pem=b"x")},
            {Part.SERVING: Defect.UNDECODABLE},
            id="garbage certificate",
        ),
        pytest.param(
            {"client": replace(BUNDLE.client, key_pem=b"x")},
            {Part.CLIENT: Defect.UNDECODABLE},
            id="garbage key",
        ),
        pytest.param(
            {"serving": replace(BUNDLE.serving, key_pem=BUNDLE.client.key_pem)},
            {Part.SERVING: Defect.KEY_MISMATCH},
            id="another's key",
        ),
        pytest.param(
            {"authority_key_pem": OTHER.authority_key_pem},
            {Part.AUTHORITY: Defect.KEY_MISMATCH},
            id="another CA's key",
        ),
        pytest.param(
            {"authority_key_pem": pem_of(rsa_key())},
            {Part.AUTHORITY: Defect.WRONG_KEY_TYPE},
            id="RSA CA key",
        ),
        pytest.param(
            {"serving": a_pair_by(BUNDLE.authority, rsa_key())},
            {Part.SERVING: Defect.WRONG_KEY_TYPE},
            id="RSA leaf",
        ),
        pytest.param(
            {"serving": OTHER.serving},
            {Part.SERVING: Defect.UNKNOWN_ISSUER},
            id="another CA's leaf",
        ),
        pytest.param(
            {"client": OTHER.client},
            {Part.CLIENT: Defect.UNKNOWN_ISSUER},
            id="another CA's client",
        ),
        pytest.param(
            {"serving": BUNDLE.client},
            {Part.SERVING: Defect.WRONG_USAGE},
            id="client's as server's",
        ),
        pytest.param(
            {"client": BUNDLE.serving}, {Part.CLIENT: Defect.WRONG_USAGE}, id="server's as client's"
        ),
    ],
)
def test_each_flaw_concerns_its_own_part_only(changes, want: dict[Part, Defect]):
    assert defects(replace(BUNDLE, **changes)) == want


def test_leaf_in_place_of_the_authority_is_no_authority():
    bundle = replace(
        BUNDLE,
        trust_pem=BUNDLE.serving.certificate_pem,
        authority_key_pem=BUNDLE.serving.key_pem,
    )
    assert defects(bundle)[Part.AUTHORITY] is Defect.NOT_AN_AUTHORITY


@pytest.mark.parametrize(
    ("required", "want"),
    [
        pytest.param(
            requirements(dns_names=(*REQUIRED.dns_names, "new.example.org")),
            {Part.SERVING: Defect.NAMES_MISSING},
            id="DNS name",
        ),
        pytest.param(
            requirements(ip_addresses=(ipaddress.ip_address("10.0.0.1"),)),
            {Part.SERVING: Defect.NAMES_MISSING},
            id="address",
        ),
        pytest.param(
            requirements(client_name="other"), {Part.CLIENT: Defect.NAMES_MISSING}, id="client"
        ),
        pytest.param(
            requirements(dns_names=REQUIRED.dns_names[:1]), {}, id="fewer names are wanted"
        ),
    ],
)
def test_names_that_are_wanted_must_be_there(required, want: dict[Part, Defect]):
    assert defects(BUNDLE, required=required) == want


def test_missing_names_are_named():
    answer = needs_renewal(BUNDLE, requirements(dns_names=("a.org", "b.org")), NOW)
    assert isinstance(answer, RenewalNeeded)
    assert answer.renewals[0].fault.detail == "the certificate lacks a.org, b.org"


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(LEAF_END - 90 * DAY, Defect.EXPIRING, id="lookahead begins"),
        pytest.param(LEAF_END - SECOND, Defect.EXPIRING, id="last second"),
        pytest.param(LEAF_END, Defect.EXPIRED, id="end"),
        pytest.param(NOW - dt.timedelta(hours=1, seconds=1), Defect.NOT_YET_VALID, id="before it"),
    ],
)
def test_leaf_is_judged_by_the_clock(now: dt.datetime, want: Defect):
    assert defects(BUNDLE, now)[Part.SERVING] is want
    assert defects(BUNDLE, now)[Part.CLIENT] is want


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(CA_END - 90 * DAY - SECOND, None, id="before the lookahead"),
        pytest.param(CA_END - 90 * DAY, Defect.EXPIRING, id="lookahead begins"),
        pytest.param(CA_END, Defect.EXPIRED, id="end"),
        pytest.param(NOW - dt.timedelta(hours=1, seconds=1), Defect.NOT_YET_VALID, id="before it"),
    ],
)
def test_authority_is_judged_by_the_clock(now: dt.datetime, want: Defect | None):
    assert defects(BUNDLE, now).get(Part.AUTHORITY) is want


def test_clock_an_hour_behind_is_good():
    assert defects(BUNDLE, NOW - dt.timedelta(hours=1)) == {}


@pytest.mark.parametrize("lifetime", [dt.timedelta(minutes=3), dt.timedelta(hours=6), 30 * DAY])
def test_lookahead_is_at_most_a_third_of_the_lifetime(lifetime: dt.timedelta):
    required = requirements(leaf_lifetime=lifetime)
    bundle = a_bundle(required)
    assert needs_renewal(bundle, required, NOW) == StillGood(NOW + lifetime * 2 / 3)


class TestSuccession:
    """A CA ends: its successor is trusted first, signs later, and then the old one goes."""

    start = CA_END - 90 * DAY
    leaves_made = start - 10 * DAY
    # leaves so young that their own end plays no part
    old = replace(
        BUNDLE,
        serving=issue_serving(
            decoded(BUNDLE.authority), new_key(), serial=1, now=leaves_made, required=REQUIRED
        ),
        client=issue_client(
            decoded(BUNDLE.authority), new_key(), serial=2, now=leaves_made, required=REQUIRED
        ),
    )
    both = renewed(old, now=start)

    def test_authority_alone_is_replaced_and_the_leaves_stay(self):
        assert defects(self.old, self.start) == {Part.AUTHORITY: Defect.EXPIRING}
        assert self.both.serving == self.old.serving
        assert self.both.client == self.old.client
        assert self.both.trust_pem.endswith(self.old.trust_pem)
        assert self.both.trust_pem != self.old.trust_pem

    def test_leaves_of_the_old_one_are_good_for_thirty_days(self):
        switch = self.start + 30 * DAY
        assert needs_renewal(self.both, REQUIRED, self.start) == StillGood(switch)
        assert defects(self.both, switch) == {
            Part.SERVING: Defect.RETIRING_ISSUER,
            Part.CLIENT: Defect.RETIRING_ISSUER,
        }

    def test_leaf_that_enters_its_lookahead_meanwhile_waits_for_the_switch(self):
        made = self.start - 270 * DAY
        aging = replace(
            self.both,
            serving=issue_serving(
                decoded(BUNDLE.authority), new_key(), serial=3, now=made, required=REQUIRED
            ),
        )
        lookahead_begins = made + 275 * DAY
        assert defects(aging, lookahead_begins + DAY) == {}
        assert defects(aging, self.start + 30 * DAY)[Part.SERVING] is Defect.RETIRING_ISSUER

    def test_leaf_that_would_end_before_the_switch_does_not_wait(self):
        made = self.start - 350 * DAY
        ending = replace(
            self.both,
            serving=issue_serving(
                decoded(BUNDLE.authority), new_key(), serial=3, now=made, required=REQUIRED
            ),
        )
        assert defects(ending, self.start) == {Part.SERVING: Defect.EXPIRING}

    def test_old_authority_is_dropped_at_its_end(self):
        switched = renewed(self.both, now=self.start + 30 * DAY)
        assert needs_renewal(switched, REQUIRED, self.start + 31 * DAY) == StillGood(CA_END)
        assert defects(switched, CA_END) == {Part.RETIRED: Defect.RETIRED}


def test_authority_replaced_early_is_dropped_after_ninety_days():
    lost = replace(BUNDLE, authority_key_pem=b"")
    both = renewed(lost)
    switched = renewed(both, now=NOW + 30 * DAY)
    assert switched.serving != both.serving
    assert defects(switched, NOW + 90 * DAY - SECOND) == {}
    assert defects(switched, NOW + 90 * DAY) == {Part.RETIRED: Defect.RETIRED}


def test_foreign_leaf_among_the_trusted_is_dropped_at_once():
    bundle = replace(BUNDLE, trust_pem=BUNDLE.trust_pem + OTHER.serving.certificate_pem)
    assert defects(bundle) == {Part.RETIRED: Defect.RETIRED}


@given(
    st.dictionaries(
        st.sampled_from(sorted(BUNDLE.as_secret())),
        st.binary(max_size=40) | st.sampled_from(sorted(BUNDLE.as_secret().values())),
    )
)
def test_whatever_a_secret_holds_there_is_an_answer(data: dict[str, bytes]):
    bundle = Bundle.from_secret({**BUNDLE.as_secret(), **data})
    assert isinstance(needs_renewal(bundle, REQUIRED, NOW), RenewalNeeded | StillGood)
