"""What can go wrong with certificates: one tree.

    CertificateError
    ├── UnusableBundle     certificates or keys that cannot be served
    ├── SecretConflict     another replica wrote the Secret first; read it again
    ├── StoreUnavailable   the Secret could not be read or written
    └── InjectionFailed    some webhook configuration did not get its caBundle

No text holds key material or what a Secret contains.
"""

from enum import Enum

from telemetry.metrics import CERTIFICATE_ERRORS


class RotationStep(Enum):
    """The label of `gpu_certificate_errors_total`."""

    STORE = "store"
    INJECT = "inject"
    RELOAD = "reload"

    def count_failure(self) -> None:
        """Count one failure of this step."""
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
    """The Secret could not be read, or nobody knows whether it was written."""


class InjectionError(CertificateError):
    """Some webhook configuration does not carry the trusted CAs; the text names each."""
