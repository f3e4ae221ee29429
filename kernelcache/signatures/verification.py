"""The result of verifying an image: which signer is proven, or why none is.

One accepted signature is enough. Where none is, each one's problem is kept; the problem that came closest to
acceptance names the refusal, so that "the certificate had expired" is not hidden by an older, foreign signature.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api.text import MAX_MESSAGE_LENGTH, truncate

if TYPE_CHECKING:
    from api.image_reference import Digest


class SignatureFault(Enum):
    """Why a signature, or an image, is not accepted; later members came closer to acceptance."""

    NONE_AT_ALL = "Unsigned"
    TOO_MANY = "TooManySignatures"
    TOO_LARGE = "SignatureTooLarge"
    MALFORMED = "MalformedSignature"
    UNSUPPORTED = "UnsupportedSignature"
    """Well-formed, and of a kind that is not accepted, such as an attestation."""
    NO_TRUST_ROOT = "NoTrustRoot"
    UNKNOWN_KEY = "UnknownKey"
    """No listed key has made it: it never was listed, was taken off, or the content was changed."""
    UNTRUSTED_CERTIFICATE = "UntrustedCertificate"
    NOT_LOGGED = "NotLogged"
    """The transparency log does not prove when, or that, it was made."""
    EXPIRED_CERTIFICATE = "ExpiredCertificate"
    """The certificate was not valid at the time of signing."""
    OTHER_CONTENT = "SignatureMismatch"
    """The certificate is good, and its key has not signed this content."""
    OTHER_SUBJECT = "OtherSubject"
    OTHER_ISSUER = "OtherIssuer"
    """The subject is listed, with another issuer."""
    OTHER_IMAGE = "OtherImage"
    """A listed signer has signed another image."""


_RANKS: Final = {fault: rank for rank, fault in enumerate(SignatureFault)}


@final
class SignatureProblem(Exception):  # noqa: N818  # a value of every result; raised to end one signature's checks
    """One signature is not accepted."""

    def __init__(self, fault: SignatureFault, detail: str) -> None:
        self.fault = fault
        # Names in it are the signer's: they must not break a line of a log or a condition.
        self.detail = truncate("".join(item if item.isprintable() else "?" for item in detail))
        super().__init__(self.detail)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeySigner:
    """The holder of a listed key."""

    fingerprint: str

    def __str__(self) -> str:
        return f"key {self.fingerprint}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessSigner:
    """A signer by the identity that its certificate names."""

    subject: str
    """An e-mail address, or a URI such as that of a workflow."""
    issuer: str
    """The OpenID Connect issuer that has authenticated the subject."""

    def __str__(self) -> str:
        return f'"{truncate(self.subject)}" of issuer "{truncate(self.issuer)}"'


Signer = KeySigner | KeylessSigner


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureVerified:
    """A signer that the policy lists has signed the image with this digest."""

    digest: "Digest"
    signer: Signer

    @property
    def message(self) -> str:
        return f"{self.digest} is signed by {self.signer}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRefused:
    """No signature proves that a listed signer has signed the image with this digest."""

    digest: "Digest"
    fault: SignatureFault
    message: str


VerificationResult = SignatureVerified | SignatureRefused


def refusal(digest: "Digest", problems: list[SignatureProblem]) -> SignatureRefused:
    """Return the refusal for these problems, one for each signature, of which there is at least one."""
    ranked = sorted(problems, key=lambda problem: -_RANKS[problem.fault])
    details = list(dict.fromkeys(problem.detail for problem in ranked))
    number = (
        f"none of {len(problems)} signatures is accepted" if len(problems) > 1 else "not accepted"
    )
    return SignatureRefused(
        digest=digest,
        fault=ranked[0].fault,
        message=truncate(f"{digest}: {number}: {'; '.join(details)}", MAX_MESSAGE_LENGTH),
    )
