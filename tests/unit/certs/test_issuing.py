"""What is issued: names, purposes, dates, and that strict verifiers take it."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.bundle import Bundle, Requirements
from certs.issuance import issue_authority, issue_serving, new_key
from certs.pem import Certificate
from tests.unit.certs.builders import DAY, NOW, REQUIRED, a_bundle, certificate, decoded

BUNDLE = a_bundle()
AUTHORITY = certificate(BUNDLE.trust_pem)
SERVING = certificate(BUNDLE.serving.certificate_pem)
CLIENT = certificate(BUNDLE.client.certificate_pem)
ALL = [
    pytest.param(AUTHORITY, id="authority"),
    pytest.param(SERVING, id="serving"),
    pytest.param(CLIENT, id="client"),
]


def policy(bundle: Bundle, at: dt.datetime = NOW) -> PolicyBuilder:
    store = Store([certificate(bundle.trust_pem).parsed])
    return PolicyBuilder().store(store).time(at.replace(tzinfo=None))


@pytest.mark.parametrize("name", REQUIRED.dns_names)
def test_serving_certificate_is_verified_for_every_dns_name(name: str):
    policy(BUNDLE).build_server_verifier(x509.DNSName(name)).verify(SERVING.parsed, [])


def test_serving_certificate_is_verified_for_the_address():
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    policy(BUNDLE).build_server_verifier(address).verify(SERVING.parsed, [])


def test_serving_certificate_is_refused_for_another_name():
    verifier = policy(BUNDLE).build_server_verifier(x509.DNSName("other.svc"))
    with pytest.raises(VerificationError):
        verifier.verify(SERVING.parsed, [])


@pytest.mark.parametrize("certificate", ALL)
def test_every_key_is_ecdsa_p256(certificate: Certificate):
    key = certificate.parsed.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)


@pytest.mark.parametrize("certificate", ALL)
def test_every_certificate_is_valid_an_hour_ago(certificate: Certificate):
    assert certificate.not_before == NOW - dt.timedelta(hours=1)


def test_lifetimes_are_ten_years_and_one():
    assert AUTHORITY.not_after == NOW + 3650 * DAY
    assert SERVING.not_after == CLIENT.not_after == NOW + 365 * DAY


def test_leaf_never_outlives_its_authority():
    bundle = a_bundle(Requirements(dns_names=("a",), authority_lifetime=100 * DAY))
    authority_end = certificate(bundle.trust_pem).not_after
    assert certificate(bundle.serving.certificate_pem).not_after == authority_end
    assert certificate(bundle.client.certificate_pem).not_after == authority_end


def test_each_leaf_serves_one_purpose_only():
    assert SERVING.usages == {ExtendedKeyUsageOID.SERVER_AUTH}
    assert CLIENT.usages == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_client_certificate_names_the_scheduler():
    assert CLIENT.common_names == ("gpu-scheduler",)


def test_authority_signs_leaves_but_no_authorities():
    constraints = AUTHORITY.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert AUTHORITY.is_issued_by(AUTHORITY)


@pytest.mark.parametrize("leaf", ALL[1:])
def test_leaf_is_by_the_authority_and_is_none(leaf: Certificate):
    assert leaf.is_issued_by(AUTHORITY)
    assert not leaf.is_authority


def test_two_authorities_have_different_names():
    names = {
        certificate(
            issue_authority(new_key(), serial=serial, now=NOW, lifetime=DAY).certificate_pem
        ).common_names
        for serial in (2**158, 2**158 + 1)
    }
    assert len(names) == 2


def test_given_key_and_serial_are_used():
    key = new_key()
    made = decoded(
        issue_serving(decoded(BUNDLE.authority), key, serial=42, now=NOW, required=REQUIRED)
    )
    assert made.certificate.parsed.serial_number == 42
    assert made.key.private_numbers() == key.private_numbers()
