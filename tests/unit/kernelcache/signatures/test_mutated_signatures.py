"""Whatever a registry shows: nothing raises, and nothing is accepted but what a listed signer has signed.

A change that leaves signed content, signature and certificate as they were (of white space, of a hint) may be
accepted; any other is not.
"""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.image_reference import Digest
from api.kinds.gkmcache import SignerIdentity, Verification
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import (
    SignatureMaterial,
    SignatureMaterialError,
    SigstoreBundle,
    SimpleSigning,
    read_bundle_manifest,
    read_simple_signing_manifest,
)
from kernelcache.signatures.policy import read_signature_policy
from kernelcache.signatures.trust_root import TrustRoot, TrustRootError, read_trust_root
from kernelcache.signatures.verification import SignatureVerified
from tests.support import sigstore_instance
from tests.support.strategies import json_values

DIGEST = Digest("sha256:" + "a" * 64)
KEY = sigstore_instance.new_key()
INSTANCE = sigstore_instance.SigstoreInstance()
HOLDER = INSTANCE.holder()
POLICY = read_signature_policy(
    Verification(
        keys=[sigstore_instance.public_pem(KEY)],
        identities=[
            SignerIdentity(subject=sigstore_instance.SUBJECT, issuer=sigstore_instance.ISSUER)
        ],
    )
)
PAYLOAD = sigstore_instance.payload_of(DIGEST)
BY_KEY = SimpleSigning(
    payload=PAYLOAD, signature=sigstore_instance.b64(sigstore_instance.sign(KEY, PAYLOAD))
)
KEYLESS = INSTANCE.simple_signing(HOLDER, PAYLOAD)
BUNDLES = [
    sigstore_instance.key_bundle(
        dsseEnvelope=sigstore_instance.envelope_of(KEY, sigstore_instance.statement_of(DIGEST))
    ),
    INSTANCE.bundle(HOLDER, statement=sigstore_instance.statement_of(DIGEST)),
    INSTANCE.bundle(HOLDER, message_digest=bytes.fromhex("a" * 64)),
]


@cache
def trust_root() -> TrustRoot:
    return read_trust_root(INSTANCE.trust_root_file())


def is_accepted(material: SignatureMaterial) -> bool:
    result = verify_signatures(DIGEST, [material], policy=POLICY, trust_root=trust_root())
    assert result.message
    return isinstance(result, SignatureVerified)


@st.composite
def changed_bytes(draw: Callable[..., Any], content: bytes) -> bytes:
    """The content with a part of it replaced."""
    start = draw(st.integers(0, len(content)))
    length = draw(st.integers(0, 3) | st.integers(0, len(content)))
    inserted: bytes = draw(st.binary(max_size=4))
    return content[:start] + inserted + content[start + length :]


@st.composite
def changed_json(draw: Callable[..., Any], value: Any) -> Any:
    """The value with one of its members, at any depth, replaced or removed."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        name = draw(st.sampled_from(sorted(value)))
        remaining = {key: item for key, item in value.items() if key != name}
        return (
            remaining
            if draw(st.integers(0, 9)) == 0
            else remaining | {name: draw(changed_json(value[name]))}
        )
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(changed_json(value[index])), *value[index + 1 :]]
    if isinstance(value, str) and draw(st.booleans()):
        return draw(changed_bytes(value.encode())).decode("utf-8", "replace")
    return draw(json_values())


def signed_in(bundle: Any) -> list[Any]:
    """Return what a bundle's signature is about, decoded."""
    envelope, message = bundle.get("dsseEnvelope"), bundle.get("messageSignature")
    certificate = (bundle["verificationMaterial"].get("certificate") or {}).get("rawBytes", "")
    if envelope:
        parts = [envelope["payload"], envelope["signatures"][0]["sig"], certificate]
        return [envelope["payloadType"], *map(base64.b64decode, parts)]
    parts = [message["messageDigest"]["digest"], message["signature"], certificate]
    return list(map(base64.b64decode, parts))


def test_what_is_mutated_here_is_accepted_as_it_is():
    assert is_accepted(BY_KEY)
    assert is_accepted(KEYLESS)
    assert all(is_accepted(SigstoreBundle(content=json.dumps(item).encode())) for item in BUNDLES)


@given(st.sampled_from([BY_KEY, KEYLESS]), st.data())
def test_a_changed_part_of_the_older_form_is_never_accepted(
    material: SimpleSigning, data: st.DataObject
):
    names = [field.name for field in fields(SimpleSigning) if getattr(material, field.name)]
    name = data.draw(st.sampled_from(names))
    before = getattr(material, name)
    if name == "payload":
        changed = replace(material, payload=data.draw(changed_bytes(before)))
    else:
        after = data.draw(changed_bytes(before.encode())).decode("utf-8", "surrogateescape")
        changed = replace(material, **{name: after})  # type: ignore[arg-type]  # a text, as before
    if is_accepted(changed):
        assert changed.payload == material.payload
        assert base64.b64decode(changed.signature) == base64.b64decode(material.signature)


@given(st.data())
def test_a_changed_entry_of_the_log_is_never_accepted(data: st.DataObject):
    before = json.loads(KEYLESS.log_bundle)
    after = data.draw(changed_json(before))
    if is_accepted(replace(KEYLESS, log_bundle=json.dumps(after))):
        assert after["Payload"].items() >= before["Payload"].items()


@given(st.sampled_from(BUNDLES), st.data())
def test_a_changed_member_of_a_bundle_never_changes_what_was_signed(
    bundle: dict[str, Any], data: st.DataObject
):
    after = data.draw(changed_json(bundle))
    if is_accepted(SigstoreBundle(content=json.dumps(after).encode())):
        assert signed_in(after) == signed_in(bundle)


@given(st.sampled_from(BUNDLES), st.data())
def test_changed_bytes_of_a_bundle_never_change_what_was_signed(
    bundle: dict[str, Any], data: st.DataObject
):
    content = data.draw(changed_bytes(json.dumps(bundle).encode()))
    if is_accepted(SigstoreBundle(content=content)):
        assert signed_in(json.loads(content)) == signed_in(bundle)


@given(st.binary(max_size=64), st.text(max_size=32), st.text(max_size=32), st.text(max_size=32))
def test_arbitrary_signatures_are_refused(
    payload: bytes, signature: str, certificate: str, log_bundle: str
):
    assert not is_accepted(SigstoreBundle(content=payload))
    assert not is_accepted(
        SimpleSigning(
            payload=payload, signature=signature, certificate=certificate, log_bundle=log_bundle
        )
    )


MANIFEST = {
    "layers": [
        {
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": DIGEST,
            "size": 3,
            "annotations": {"dev.cosignproject.cosign/signature": "AAAA"},
        }
    ]
}


@given(changed_json(MANIFEST).map(lambda item: json.dumps(item).encode()) | st.binary(max_size=64))
def test_arbitrary_manifests_raise_the_declared_error_only(content: bytes):
    for read in (read_bundle_manifest, read_simple_signing_manifest):
        with suppress(SignatureMaterialError):
            read(content)


@given(changed_json(INSTANCE.trust_root()))
def test_arbitrary_trust_roots_raise_the_declared_error_only(root: Any):
    with suppress(TrustRootError):
        read_trust_root(json.dumps(root).encode())
