"""The errors of this package: one tree.

    CertificateError
    ├── UnusableBundleError     certificates or keys that cannot be served
    ├── SecretConflictError     another replica wrote the Secret first; read it again
    ├── StoreUnavailableError   the Secret could not be read or written
    └── InjectionError          a webhook configuration lacks its caBundle

No text holds key material or the content of a Secret.
"""

from enum import Enum

from telemetry.metrics import CERTIFICATE_ERRORS


class RotationStep(Enum):
    """The label of `gpu_certificate_errors_total`."""

    STORE = "store"
    INJECT = "inject"
    RELOAD = "reload"

    def count_failure(self) -> None:
        CERTIFICATE_ERRORS.labels(self.value).inc()


for _step in RotationStep:
    CERTIFICATE_ERRORS.labels(
        _step.value
    )  # shown as 0 from the start, so that a rate sees the first


class CertificateError(Exception):
    """Base of everything that this package raises."""


class UnusableBundleError(CertificateError):
    """Certificates or keys that cannot be served; the text says which file and why."""


class SecretConflictError(CertificateError):
    """The Secret is not as it was when it was read; nothing was written."""


class StoreUnavailableError(CertificateError):
    """The Secret could not be read, or may not have been written."""

    def __init__(self, message: str, *, cause: str = "") -> None:
        """Take a text and the name of the client's error, if one is the cause."""
        super().__init__(message)
        self.cause = cause


class InjectionError(CertificateError):
    """Some webhook configuration does not carry the trusted CAs; the text names each."""
