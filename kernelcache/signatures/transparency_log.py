"""The transparency log's promise about a signature in the older form: the log has seen it, at a given time.

The log (Rekor) signs an entry with its time; the entry names signature, certificate and payload. A proof that the
entry is in the log's tree does not exist in this form; bundles have one, which `sigstore` verifies.
"""

import base64
import datetime as dt
import hashlib
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from kernelcache.signatures.certificate_parsing import read_pem_certificate
from kernelcache.signatures.verification import SignatureFault, SignatureProblem

if TYPE_CHECKING:
    from cryptography import x509

    from kernelcache.signatures.trust_root import TrustRoot

_YEAR_9999: Final = 253_370_764_800


class _Payload(
    msgspec.Struct,
    frozen=True,
    rename={"log_index": "logIndex", "log_id": "logID", "integrated_time": "integratedTime"},
):
    body: str
    integrated_time: Annotated[int, msgspec.Meta(ge=0, lt=_YEAR_9999)]
    log_index: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    log_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _LogBundle(msgspec.Struct, frozen=True, rename="pascal"):
    signed_entry_timestamp: bytes
    payload: _Payload


class _Hash(msgspec.Struct, frozen=True):
    algorithm: str
    value: str


class _EntryData(msgspec.Struct, frozen=True):
    hash: _Hash


class _Content(msgspec.Struct, frozen=True):
    content: bytes


class _EntrySignature(msgspec.Struct, frozen=True, rename="camel"):
    content: bytes
    public_key: _Content


class _EntrySpec(msgspec.Struct, frozen=True):
    data: _EntryData
    signature: _EntrySignature


class _Entry(msgspec.Struct, frozen=True):
    kind: str
    spec: _EntrySpec


_bundle_decoder: Final = msgspec.json.Decoder(_LogBundle)
_entry_decoder: Final = msgspec.json.Decoder(_Entry)


def logged_at(
    log_bundle: str,
    trust_root: "TrustRoot",
    *,
    payload: bytes,
    signature: bytes,
    certificate: "x509.Certificate",
) -> dt.datetime:
    """Return when a log of the trust root has seen this signature, by this certificate, of this payload.

    Raises:
        SignatureProblem: none has, or the entry is of something else.
    """
    if not log_bundle:
        raise _not_logged("it is keyless and has no entry of a transparency log")
    try:
        bundle = _bundle_decoder.decode(log_bundle)
        entry = _entry_decoder.decode(base64.b64decode(bundle.payload.body, validate=True))
        logged_certificate = read_pem_certificate(entry.spec.signature.public_key.content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise SignatureProblem(
            SignatureFault.MALFORMED, "its entry of the transparency log cannot be read"
        ) from None
    time = dt.datetime.fromtimestamp(bundle.payload.integrated_time, dt.UTC)
    key = trust_root.transparency_log_key(bytes.fromhex(bundle.payload.log_id), time)
    if key is None or not key.has_signed(
        bundle.signed_entry_timestamp, _signed_content(bundle.payload)
    ):
        raise _not_logged("no transparency log of the trust root has signed its entry")
    is_of_this = (
        entry.kind == "hashedrekord"
        and entry.spec.data.hash.algorithm == "sha256"
        and entry.spec.data.hash.value == hashlib.sha256(payload).hexdigest()
        and entry.spec.signature.content == signature
        and logged_certificate == certificate
    )
    if not is_of_this:
        raise _not_logged("its entry of the transparency log is of another signature")
    return time


def _signed_content(payload: _Payload) -> bytes:
    """Return the canonical JSON (RFC 8785) that the log signs; no value in it needs escapes but the body.

    A body outside Base64 has been refused before.
    """
    return msgspec.json.encode(
        {
            "body": payload.body,
            "integratedTime": payload.integrated_time,
            "logID": payload.log_id,
            "logIndex": payload.log_index,
        }
    )


def _not_logged(detail: str) -> SignatureProblem:
    return SignatureProblem(SignatureFault.NOT_LOGGED, detail)
