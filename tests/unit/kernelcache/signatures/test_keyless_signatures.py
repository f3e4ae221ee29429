"""Keyless signatures by a Sigstore instance of the tests' own, in both forms (W1)."""

import base64
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from api.image_reference import Digest
from api.kinds.gkmcache import SignerIdentity, Verification
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import SignatureMaterial, SimpleSigning
from kernelcache.signatures.policy import (
    SignaturePolicy,
    read_signature_policy,
)
from kernelcache.signatures.trust_root import TrustRoot, read_trust_root
from kernelcache.signatures.verification import (
    KeylessSigner,
    SignatureFault,
    SignatureRefused,
    SignatureVerified,
    VerificationResult,
)
from tests.support.sigstore_instance import (
    ISSUER,
    SIGNED_AT,
    SUBJECT,
    Holder,
    SigstoreInstance,
    b64,
    canonical,
    key_id,
    material_of,
    new_key,
    payload_of,
    public_pem,
    sign,
    statement_of,
    utf8_der,
)


def listing(subject: str) -> SignaturePolicy:
    identities = [SignerIdentity(subject=subject, issuer=ISSUER)]
    return read_signature_policy(Verification(identities=identities))


DIGEST = Digest("sha256:" + "a" * 64)
OTHER = "sha256:" + "b" * 64
INSTANCE = SigstoreInstance()
POLICY = listing(SUBJECT)
LATE = SIGNED_AT + dt.timedelta(hours=1)
LATE_REASON = (
    "it was made at 2026-05-01T13:00:00Z, and its certificate was valid from 2026-05-01T11:55:00Z"
    " to 2026-05-01T12:05:00Z"
)

Form = Callable[..., SignatureMaterial]


@cache
def trust_root() -> TrustRoot:
    return read_trust_root(INSTANCE.trust_root_file())


def older_form(holder: Holder, digest: str = DIGEST, **options: Any) -> SimpleSigning:
    return INSTANCE.simple_signing(holder, payload_of(digest), **options)


def envelope(holder: Holder, digest: str = DIGEST, **options: Any) -> SignatureMaterial:
    return material_of(INSTANCE.bundle(holder, statement=statement_of(digest), **options))


def message(holder: Holder, digest: str = DIGEST, **options: Any) -> SignatureMaterial:
    content = bytes.fromhex(digest.removeprefix("sha256:"))
    return material_of(INSTANCE.bundle(holder, message_digest=content, **options))


in_each_form = pytest.mark.parametrize(
    "form",
    [
        pytest.param(older_form, id="older form"),
        pytest.param(envelope, id="envelope"),
        pytest.param(message, id="message"),
    ],
)


def result_of(material: SignatureMaterial, policy: SignaturePolicy = POLICY) -> VerificationResult:
    return verify_signatures(DIGEST, [material], policy=policy, trust_root=trust_root())


def refused(
    material: SignatureMaterial, policy: SignaturePolicy = POLICY
) -> tuple[SignatureFault, str]:
    result = result_of(material, policy)
    assert isinstance(result, SignatureRefused)
    return result.fault, result.message.removeprefix(f"{DIGEST}: not accepted: ")


@in_each_form
def test_a_signature_by_a_listed_identity_is_accepted(form: Form):
    result = result_of(form(INSTANCE.holder()))
    assert result == SignatureVerified(
        digest=DIGEST, signer=KeylessSigner(subject=SUBJECT, issuer=ISSUER)
    )
    assert result.message == f'{DIGEST} is signed by "{SUBJECT}" of issuer "{ISSUER}"'


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        pytest.param(
            "https://git.example.com/team/build@refs/heads/main",
            x509.UniformResourceIdentifier("https://git.example.com/team/build@refs/heads/main"),
            id="workflow",
        ),
        pytest.param(
            "builder!example.com",
            x509.OtherName(
                x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7"), utf8_der("builder!example.com")
            ),
            id="other name",
        ),
    ],
)
@in_each_form
def test_every_kind_of_subject_is_read(form: Form, subject: str, name: x509.GeneralName):
    policy = listing(subject)
    result = result_of(form(INSTANCE.holder(names=[name])), policy)
    assert isinstance(result, SignatureVerified)


@in_each_form
def test_a_signature_of_another_image_is_refused(form: Form):
    assert refused(form(INSTANCE.holder(), OTHER)) == (
        SignatureFault.OTHER_IMAGE,
        f'"{SUBJECT}" of issuer "{ISSUER}" has signed another image, {OTHER}',
    )


@in_each_form
def test_the_right_subject_of_another_issuer_is_refused(form: Form):
    other = "https://evil.example.com"
    assert refused(form(INSTANCE.holder(issuer=other))) == (
        SignatureFault.OTHER_ISSUER,
        f'it is by "{SUBJECT}" of issuer "{other}"; of this subject, the issuer {ISSUER} is listed',
    )


@pytest.mark.parametrize(
    "subject", ["Builder@example.com", "builder@example.com.evil", "xbuilder@example.com"]
)
@in_each_form
def test_w1_another_signer_of_a_trusted_authority_is_refused(form: Form, subject: str):
    assert refused(form(INSTANCE.holder(subject))) == (
        SignatureFault.OTHER_SUBJECT,
        f'it is by "{subject}" of issuer "{ISSUER}", who is not listed',
    )


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        pytest.param(
            {"names": [x509.RFC822Name(SUBJECT), x509.RFC822Name("evil@example.com")]},
            "2 subjects and 1 issuers",
            id="two subjects",
        ),
        pytest.param({"names": [x509.DNSName("a.b")]}, None, id="subject of another kind"),
        pytest.param(
            {"old_issuer": "https://evil.example.com"}, "1 subjects and 2 issuers", id="two issuers"
        ),
    ],
)
@in_each_form
def test_w1_a_certificate_that_is_not_clear_is_refused(
    form: Form, options: dict[str, Any], counts: str | None
):
    fault, detail = refused(form(INSTANCE.holder(**options)))
    if counts is None:
        assert fault is SignatureFault.OTHER_SUBJECT
    else:
        assert (fault, detail) == (
            SignatureFault.UNTRUSTED_CERTIFICATE,
            f"its certificate names {counts}; one of each is needed",
        )


@in_each_form
def test_a_signature_made_after_the_certificate_had_expired_is_refused(form: Form):
    assert refused(form(INSTANCE.holder(), at=LATE)) == (
        SignatureFault.EXPIRED_CERTIFICATE,
        LATE_REASON,
    )


@in_each_form
def test_a_certificate_of_another_authority_is_refused(form: Form):
    stranger = replace_authority(SigstoreInstance())
    fault, detail = refused(form(stranger.holder()))
    assert fault is SignatureFault.UNTRUSTED_CERTIFICATE
    assert "certificate" in detail


def test_names_that_cannot_be_read_are_refused():
    assert refused(older_form(INSTANCE.holder(issuer_value=b"\xff"))) == (
        SignatureFault.MALFORMED,
        "the names in its certificate cannot be read",
    )


def test_a_certificate_with_a_key_that_is_not_supported_is_refused():
    key = ec.generate_private_key(ec.SECP521R1())
    assert refused(older_form(INSTANCE.holder(key=key))) == (
        SignatureFault.UNSUPPORTED,
        "the key in its certificate is the curve secp521r1: P-256 and P-384 are supported",
    )


def replace_authority(other: SigstoreInstance) -> SigstoreInstance:
    """Return another authority, whose certificates the trusted certificate log knows."""
    other.certificate_log_key = INSTANCE.certificate_log_key
    return other


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"has_promise": False}, id="no promise"),
        pytest.param({"certificate_log_key": new_key()}, id="promise of another log"),
        pytest.param({"purpose": ExtendedKeyUsageOID.CLIENT_AUTH}, id="another purpose"),
        pytest.param({"left_out": x509.ExtendedKeyUsage}, id="no purpose"),
        pytest.param({"left_out": x509.SubjectAlternativeName}, id="no subject"),
    ],
)
@in_each_form
def test_a_certificate_that_is_not_as_an_authority_makes_it_is_refused(
    form: Form, options: dict[str, Any]
):
    fault, _ = refused(form(INSTANCE.holder(**options)))
    assert fault is SignatureFault.UNTRUSTED_CERTIFICATE


@in_each_form
def test_an_entry_that_the_log_has_not_signed_is_refused(form: Form):
    fault, detail = refused(form(INSTANCE.holder(), log_key=new_key()))
    assert fault is SignatureFault.NOT_LOGGED
    assert "transparency log" in detail


@pytest.mark.parametrize(
    "material",
    [
        pytest.param(older_form(INSTANCE.holder(), logged_payload=b"another"), id="older form"),
        pytest.param(envelope(INSTANCE.holder(), logged_digest="0" * 64), id="envelope"),
        pytest.param(message(INSTANCE.holder(), logged_digest="0" * 64), id="message"),
    ],
)
def test_an_entry_about_something_else_is_refused(material: SignatureMaterial):
    fault, detail = refused(material)
    assert fault is SignatureFault.NOT_LOGGED
    assert "transparency log" in detail


def test_a_payload_that_the_holder_has_not_signed_is_refused():
    material = older_form(INSTANCE.holder(), signature=sign(new_key(), payload_of(DIGEST)))
    assert refused(material) == (
        SignatureFault.OTHER_CONTENT,
        "the key in its certificate has not signed its payload",
    )


def test_an_envelope_that_the_holder_has_not_signed_is_refused():
    bundle = INSTANCE.bundle(INSTANCE.holder(), statement=statement_of(OTHER))
    bundle["dsseEnvelope"]["payload"] = b64(statement_of(DIGEST))
    assert refused(material_of(bundle)) == (
        SignatureFault.OTHER_CONTENT,
        "the key in its certificate has not signed its content",
    )


def test_a_signature_without_an_entry_of_the_log_is_refused():
    want = (
        SignatureFault.NOT_LOGGED,
        "it is keyless and has no entry of a transparency log",
    )
    holder = INSTANCE.holder()
    assert refused(replace(older_form(holder), log_bundle="")) == want
    bundle = INSTANCE.bundle(holder, statement=statement_of(DIGEST))
    bundle["verificationMaterial"]["tlogEntries"] = []
    assert refused(material_of(bundle)) == want


def with_entry(**changed: Any) -> SimpleSigning:
    """Return a signature whose entry the log has signed as it is."""
    material = older_form(INSTANCE.holder())
    entry = json.loads(material.log_bundle)["Payload"] | changed
    log_bundle = {
        "SignedEntryTimestamp": b64(sign(INSTANCE.log_key, canonical(entry))),
        "Payload": entry,
    }
    return replace(material, log_bundle=json.dumps(log_bundle))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        pytest.param({"body": "!"}, SignatureFault.MALFORMED, id="body outside Base64"),
        pytest.param({"body": b64(b"{}")}, SignatureFault.MALFORMED, id="empty body"),
        pytest.param({"logID": "x"}, SignatureFault.MALFORMED, id="log id"),
        pytest.param({"integratedTime": 1 << 60}, SignatureFault.MALFORMED, id="far future"),
        pytest.param({"integratedTime": -1}, SignatureFault.MALFORMED, id="before 1970"),
        pytest.param({"integratedTime": 1}, SignatureFault.NOT_LOGGED, id="log not yet in use"),
        pytest.param({"logID": "0" * 64}, SignatureFault.NOT_LOGGED, id="another log"),
    ],
)
def test_an_entry_of_the_older_form_that_is_not_usable_is_refused(
    changed: dict[str, Any], fault: SignatureFault
):
    assert refused(with_entry(**changed))[0] is fault


def test_an_entry_of_another_kind_is_refused():
    material = older_form(INSTANCE.holder())
    body = json.loads(base64.b64decode(json.loads(material.log_bundle)["Payload"]["body"]))
    changed = with_entry(body=b64(canonical(body | {"kind": "rekord"})))
    assert refused(changed)[0] is SignatureFault.NOT_LOGGED


@pytest.mark.parametrize(
    "certificate", ["x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_a_certificate_that_cannot_be_read_is_refused(certificate: str):
    material = replace(older_form(INSTANCE.holder()), certificate=certificate)
    assert refused(material) == (SignatureFault.MALFORMED, "its certificate cannot be read")


def test_a_bundle_with_a_certificate_that_cannot_be_read_is_refused():
    bundle = INSTANCE.bundle(INSTANCE.holder(), statement=statement_of(DIGEST))
    bundle["verificationMaterial"]["certificate"]["rawBytes"] = b64(b"x")
    assert refused(material_of(bundle)) == (
        SignatureFault.MALFORMED,
        "its certificate cannot be read",
    )


def test_a_bundle_with_fields_that_are_unknown_is_refused():
    bundle = INSTANCE.bundle(INSTANCE.holder(), statement=statement_of(DIGEST))
    bundle["verificationMaterial"]["x"] = 1
    fault, detail = refused(material_of(bundle))
    assert fault is SignatureFault.MALFORMED
    assert detail.startswith("its bundle cannot be read: failed to load bundle:")


@in_each_form
def test_without_listed_identities_a_keyless_signature_proves_nothing(form: Form):
    policy = read_signature_policy(Verification(keys=[public_pem(new_key())]))
    assert refused(form(INSTANCE.holder()), policy) == (
        SignatureFault.UNKNOWN_KEY,
        "no listed key has made it; it is keyless, and no identity is listed",
    )


@in_each_form
def test_without_a_trust_root_a_keyless_signature_proves_nothing(form: Form):
    material = form(INSTANCE.holder())
    result = verify_signatures(DIGEST, [material], policy=POLICY, trust_root=None)
    assert isinstance(result, SignatureRefused)
    assert result.fault is SignatureFault.NO_TRUST_ROOT


def test_a_signature_by_key_where_identities_are_listed_only_is_refused():
    payload = payload_of(DIGEST)
    material = SimpleSigning(payload=payload, signature=b64(sign(new_key(), payload)))
    assert refused(material) == (
        SignatureFault.UNKNOWN_KEY,
        "it is by a key, and no key is listed",
    )


@in_each_form
def test_a_listed_key_needs_no_log_even_where_a_certificate_is_there(form: Form):
    holder = INSTANCE.holder("someone@example.com")
    policy = read_signature_policy(Verification(keys=[public_pem(holder.key)]))
    assert isinstance(result_of(form(holder, log_key=new_key()), policy), SignatureVerified)


def test_an_authority_that_was_retired_before_the_signature_is_not_trusted():
    root = INSTANCE.trust_root()
    root["certificateAuthorities"][0]["validFor"] = {
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-02-01T00:00:00Z",
    }
    result = verify_signatures(
        DIGEST,
        [older_form(INSTANCE.holder())],
        policy=POLICY,
        trust_root=read_trust_root(json.dumps(root).encode()),
    )
    assert isinstance(result, SignatureRefused)
    assert result.message.endswith("the trust root has no authority for 2026-05-01")


def test_a_log_is_known_by_the_hash_of_its_key():
    assert trust_root().transparency_log_key(key_id(INSTANCE.log_key), SIGNED_AT) is not None
    assert trust_root().transparency_log_key(key_id(new_key()), SIGNED_AT) is None
