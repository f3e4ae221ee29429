"""What a registry is to keep of a new signature by key, in both forms, beside those that are there.

The older form is one manifest for all signatures of an image, which grows by a layer; the newer one is a manifest
for each, and where the registry has no referrers API a list of them, which grows by an entry. Entries of
others are taken over as they are.
"""

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.field_errors import UNDECODABLE
from kernelcache.image_format import OCI_INDEX, OCI_MANIFEST, descriptor_json
from kernelcache.signatures.material import (
    BUNDLE_ARTIFACT_TYPE,
    MAX_SIGNATURES,
    SIGNATURE_ANNOTATION,
)
from kernelcache.signatures.signed_image import (
    PAYLOAD_TYPE,
    SIGNATURE_PREDICATE,
    STATEMENT_TYPE,
    STATEMENT_VERSION,
)
from kernelcache.signatures.sigstore_bundle import envelope_content

if TYPE_CHECKING:
    from api.image_reference import Digest, ImageReference
    from kernelcache.image_format import BlobDescriptor
    from kernelcache.signatures.signing_keys import SigningKey

EMPTY_CONFIG: Final = b"{}"
EMPTY_CONFIG_TYPE: Final = "application/vnd.oci.empty.v1+json"
_EPOCH: Final = "1970-01-01T00:00:00Z"


class SignatureListError(ValueError):
    """What is there cannot grow; the message says why."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPayload:
    """A signature in the older form."""

    payload: bytes
    signature: str
    """Base64."""


def sign_payload(key: "SigningKey", reference: "ImageReference", digest: "Digest") -> SignedPayload:
    """Sign the image in the older form, with the bytes that cosign would sign."""
    payload = _json(
        {
            "critical": {
                "identity": {"docker-reference": f"{reference.registry}/{reference.repository}"},
                "image": {"docker-manifest-digest": digest},
                "type": PAYLOAD_TYPE,
            },
            "optional": None,
        }
    )
    return SignedPayload(payload=payload, signature=_base64(key.sign(payload)))


def sign_bundle(key: "SigningKey", digest: "Digest") -> bytes:
    """Sign the image in the newer form, with the bytes that cosign would sign, and return the bundle."""
    statement = _json(
        {
            "_type": STATEMENT_VERSION,
            "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}, "annotations": {}}],
            "predicateType": SIGNATURE_PREDICATE,
            "predicate": {},
        }
    )
    fingerprint = bytes.fromhex(key.public.fingerprint.removeprefix("SHA256:"))
    return _json(
        {
            "mediaType": BUNDLE_ARTIFACT_TYPE,
            # By its hint a verifier with many keys finds the one; cosign writes the same.
            "verificationMaterial": {"publicKey": {"hint": _base64(fingerprint)}},
            "dsseEnvelope": {
                "payload": _base64(statement),
                "payloadType": STATEMENT_TYPE,
                "signatures": [
                    {"sig": _base64(key.sign(envelope_content(STATEMENT_TYPE, statement)))}
                ],
            },
        }
    )


def payload_layers(
    present: bytes | None, payload: "BlobDescriptor", signature: str
) -> list[dict[str, Any]]:
    """Return the layers of the manifest with the signatures in the older form, and one more.

    Raises:
        SignatureListError: the present manifest is malformed, or full.
    """
    layer = {**descriptor_json(payload), "annotations": {SIGNATURE_ANNOTATION: signature}}
    layers = [*_listed(present, "layers", "the manifest of signatures"), layer]
    if len(layers) > MAX_SIGNATURES:
        raise SignatureListError(
            f"the image has {MAX_SIGNATURES} signatures, and more are not read: remove those that"
            " are not needed"
        )
    return layers


def payloads_config(layers: list[dict[str, Any]]) -> bytes:
    """Return the configuration beside these layers, which some clients ask for."""
    return _json(
        {
            "architecture": "",
            "os": "",
            "created": _EPOCH,
            "config": {},
            "history": [{"created": _EPOCH}] * len(layers),
            "rootfs": {"type": "layers", "diff_ids": [layer.get("digest") for layer in layers]},
        }
    )


def payloads_manifest(config: "BlobDescriptor", layers: list[dict[str, Any]]) -> bytes:
    """Return the manifest with the signatures in the older form."""
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor_json(config),
            "layers": layers,
        }
    )


def bundle_manifest(
    image: "BlobDescriptor", config: "BlobDescriptor", bundle: "BlobDescriptor"
) -> bytes:
    """Return the manifest of a bundle, which refers to the image."""
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": BUNDLE_ARTIFACT_TYPE,
            "config": descriptor_json(config),
            "layers": [descriptor_json(bundle)],
            "subject": descriptor_json(image),
            "annotations": _BUNDLE_ANNOTATIONS,
        }
    )


def grown_referrers(present: bytes | None, manifest: "BlobDescriptor") -> bytes:
    """Return the list of referrers with the manifest of a bundle; the same bytes where it is listed.

    Raises:
        SignatureListError: the present list is malformed.
    """
    entries = _listed(present, "manifests", "the list of referrers")
    if present is not None and any(item.get("digest") == manifest.digest for item in entries):
        return present
    entry = {
        **descriptor_json(manifest),
        "artifactType": BUNDLE_ARTIFACT_TYPE,
        "annotations": _BUNDLE_ANNOTATIONS,
    }
    return _json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [*entries, entry]})


_BUNDLE_ANNOTATIONS: Final = {
    "dev.sigstore.bundle.content": "dsse-envelope",
    "dev.sigstore.bundle.predicateType": SIGNATURE_PREDICATE,
}


def _listed(present: bytes | None, member: str, noun: str) -> list[dict[str, Any]]:
    if present is None:
        return []
    try:
        found = msgspec.json.decode(present, type=dict[str, Any])
    except UNDECODABLE as error:
        raise SignatureListError(f"{noun} is malformed: {error}") from None
    entries = found.get(member)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SignatureListError(f"{noun} has no {member}: remove it, and sign again")
    return entries


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
