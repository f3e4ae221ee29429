"""From PEM to facts: whatever is given, a value comes back."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from certs.bundle import KeyPair
from certs.issuance import new_key
from certs.pem import CertificateDefect, DecodedPair, Defect, decode_certificates, decode_pair
from tests.unit.certs.builders import a_bundle, a_pair_by, pem_of, rsa_key

BUNDLE = a_bundle()


def defect_of(pair: KeyPair) -> Defect | None:
    result = decode_pair(pair)
    return result.defect if isinstance(result, CertificateDefect) else None


def with_key(key_pem: bytes) -> KeyPair:
    return KeyPair(certificate_pem=BUNDLE.serving.certificate_pem, key_pem=key_pem)


def test_good_pair_is_decoded():
    assert defect_of(BUNDLE.serving) is None


@pytest.mark.parametrize(
    ("pair", "defect"),
    [
        pytest.param(KeyPair(), Defect.MISSING, id="nothing"),
        pytest.param(with_key(b""), Defect.MISSING, id="no key"),
        pytest.param(with_key(b" \n"), Defect.MISSING, id="blank key"),
        pytest.param(KeyPair(key_pem=BUNDLE.serving.key_pem), Defect.MISSING, id="no certificate"),
        pytest.param(with_key(b"garbage"), Defect.UNDECODABLE, id="garbage key"),
        pytest.param(with_key(BUNDLE.serving.key_pem[:60]), Defect.UNDECODABLE, id="cut key"),
        pytest.param(
            with_key(pem_of(new_key(), password="pw")), Defect.UNDECODABLE, id="encrypted key"
        ),
        pytest.param(
            KeyPair(certificate_pem=b"garbage", key_pem=BUNDLE.serving.key_pem),
            Defect.UNDECODABLE,
            id="garbage certificate",
        ),
        pytest.param(with_key(pem_of(rsa_key())), Defect.WRONG_KEY_TYPE, id="RSA key"),
        pytest.param(
            with_key(pem_of(ec.generate_private_key(ec.SECP384R1()))),
            Defect.WRONG_KEY_TYPE,
            id="P-384 key",
        ),
        pytest.param(with_key(BUNDLE.client.key_pem), Defect.KEY_MISMATCH, id="another's key"),
    ],
)
def test_unusable_pair_is_named_by_its_flaw(pair: KeyPair, defect: Defect):
    assert defect_of(pair) is defect


def test_wrong_key_type_says_what_it_is_and_what_is_needed():
    result = decode_pair(a_pair_by(BUNDLE.authority, rsa_key()))
    assert isinstance(result, CertificateDefect)
    assert "RSA" in result.detail
    assert "P-256" in result.detail


def test_encrypted_key_is_named_as_such_and_nobody_is_asked_for_a_password():
    result = decode_pair(with_key(pem_of(new_key(), password="pw")))
    assert isinstance(result, CertificateDefect)
    assert "encrypted" in result.detail


@given(st.data())
def test_damaged_pem_is_a_value_and_never_an_exception(data: st.DataObject):
    whole = data.draw(
        st.sampled_from([BUNDLE.serving.certificate_pem, BUNDLE.serving.key_pem, b""])
    )
    at = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=8))
    damaged = whole[:at] + junk + whole[at + len(junk) :]
    assert isinstance(decode_certificates(damaged), tuple | CertificateDefect)
    assert isinstance(
        decode_pair(KeyPair(certificate_pem=whole, key_pem=damaged)),
        DecodedPair | CertificateDefect,
    )


def test_chain_is_kept_and_its_first_certificate_owns_the_key():
    chained = KeyPair(
        certificate_pem=BUNDLE.serving.certificate_pem + BUNDLE.trust_pem,
        key_pem=BUNDLE.serving.key_pem,
    )
    result = decode_pair(chained)
    assert isinstance(result, DecodedPair)
    assert len(result.chain) == 2
    assert result.certificate.is_issued_by(result.chain[1])
    assert not result.chain[1].is_issued_by(result.certificate)
