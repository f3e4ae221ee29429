"""Which image a signed content is about: the payload of the older form, the statement of the newer one.

The repository in a payload is not compared: a digest names the same bytes in every registry, and caches are
mirrored. A statement of another type is an attestation, such as the result of a scan: its signer has said
something about the image, not that it is good.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from kernelcache.signatures.verification import SignatureFault, SignatureProblem, Signer

if TYPE_CHECKING:
    from api.image_reference import Digest

STATEMENT_TYPE: Final = "application/vnd.in-toto+json"
"""Statement type of an envelope's content."""
PAYLOAD_TYPE: Final = "cosign container image signature"
STATEMENT_VERSION: Final = "https://in-toto.io/Statement/v1"
_STATEMENT_VERSIONS: Final = frozenset({STATEMENT_VERSION, "https://in-toto.io/Statement/v0.1"})
SIGNATURE_PREDICATE: Final = "https://sigstore.dev/cosign/sign/v1"


class _Image(msgspec.Struct, frozen=True, rename="kebab"):
    docker_manifest_digest: str


class _Critical(msgspec.Struct, frozen=True):
    image: _Image
    type: str


class _Payload(msgspec.Struct, frozen=True):
    critical: _Critical


class _Subject(msgspec.Struct, frozen=True):
    digest: dict[str, str]


class _Statement(
    msgspec.Struct, frozen=True, rename={"type": "_type", "predicate_type": "predicateType"}
):
    type: str
    predicate_type: str
    subject: list[_Subject]


_payload_decoder: Final = msgspec.json.Decoder(_Payload)
_statement_decoder: Final = msgspec.json.Decoder(_Statement)
_DECODE_ERRORS: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def check_payload(payload: bytes, *, digest: "Digest", signer: Signer) -> None:
    """Check that a payload of the older form is about the image.

    Raises:
        SignatureProblem: it is about another one, or no such payload.
    """
    try:
        critical = _payload_decoder.decode(payload).critical
    except _DECODE_ERRORS:
        raise SignatureProblem(
            SignatureFault.MALFORMED, f"what {signer} has signed is no payload of an image"
        ) from None
    if critical.type != PAYLOAD_TYPE:
        raise SignatureProblem(
            SignatureFault.UNSUPPORTED, f'{signer} has signed a "{critical.type}", not an image'
        )
    check_image(critical.image.docker_manifest_digest, digest=digest, signer=signer)


def check_statement(payload_type: str, payload: bytes, *, digest: "Digest", signer: Signer) -> None:
    """Check that the content of an envelope is a signature of the image.

    Raises:
        SignatureProblem: it is of another one, or something else.
    """
    if payload_type != STATEMENT_TYPE:
        raise SignatureProblem(
            SignatureFault.UNSUPPORTED,
            f'{signer} has signed an envelope with "{payload_type}", not with {STATEMENT_TYPE}',
        )
    try:
        statement = _statement_decoder.decode(payload)
    except _DECODE_ERRORS:
        raise SignatureProblem(
            SignatureFault.MALFORMED, f"what {signer} has signed is no in-toto statement"
        ) from None
    if statement.type not in _STATEMENT_VERSIONS or statement.predicate_type != SIGNATURE_PREDICATE:
        raise SignatureProblem(
            SignatureFault.UNSUPPORTED,
            f'{signer} has made an attestation of type "{statement.predicate_type}", not a signature',
        )
    signed = [f"sha256:{item.digest.get('sha256', '')}" for item in statement.subject]
    if digest not in signed:
        check_image(signed[0] if signed else "no image", digest=digest, signer=signer)


def check_image(signed: str, *, digest: "Digest", signer: Signer) -> None:
    """Check the digest that was signed.

    Raises:
        SignatureProblem: it is of another image.
    """
    if signed != digest:
        raise SignatureProblem(
            SignatureFault.OTHER_IMAGE, f"{signer} has signed another image, {signed}"
        )
