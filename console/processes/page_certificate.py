"""The certificate of the console's port, from two files that change under it.

Any key that OpenSSL takes is served, as companies issue them; clients show no certificate.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog
from cryptography import x509

from certs.errors import RotationStep
from certs.tls import SwitchedContext, server_context
from telemetry.metrics import CERTIFICATE_NOT_AFTER

if TYPE_CHECKING:
    from console.processes.console_settings import CertificateFiles

POLL_EVERY_S: Final = 10.0
"""Kubelet takes up to a minute to bring a Secret's change into a volume; this adds little."""
_PROTOCOLS: Final = ("http/1.1",)

_log = structlog.get_logger()


class UnusableCertificateError(Exception):
    """The files cannot be served; the text says which and why."""


@final
class PageCertificate:
    """Keeps a TLS context in step with the files."""

    def __init__(self, files: "CertificateFiles") -> None:
        self._files = files
        self._served: tuple[bytes, bytes] | None = None
        self._is_reported = False
        self._port = SwitchedContext(server_context(_PROTOCOLS))
        self.context: Final = self._port.context

    def load(self) -> None:
        """Serve what the files have now from the next handshake on.

        Raises:
            UnusableCertificateError: what was served stays.
        """
        files = self._files
        try:
            content = files.certificate.read_bytes(), files.key.read_bytes()
        except OSError as error:
            raise UnusableCertificateError(f"{error.filename}: {error.strerror}") from error
        if content == self._served:
            return
        context = server_context(_PROTOCOLS)
        try:
            leaf = x509.load_pem_x509_certificates(content[0])[0]
            # Without a password OpenSSL would ask the terminal for one.
            context.load_cert_chain(files.certificate, files.key, password="")
        except (ValueError, OSError) as error:
            raise UnusableCertificateError(
                f"{files.certificate} and {files.key} are no certificate with its key: {error}"
            ) from error
        self._port.current, self._served = context, content
        CERTIFICATE_NOT_AFTER.labels("leaf").set(leaf.not_valid_after_utc.timestamp())
        _log.info("certificate loaded", not_after=leaf.not_valid_after_utc.isoformat())

    async def run(self) -> NoReturn:
        """Load the files whenever they change, until cancelled."""
        while True:
            await asyncio.sleep(POLL_EVERY_S)
            self.poll()

    def poll(self) -> None:
        """Load the files; what cannot be served is counted every time, and logged once."""
        try:
            self.load()
        except UnusableCertificateError as error:
            RotationStep.RELOAD.count_failure()
            if not self._is_reported:
                _log.error("certificate not loaded", error=str(error))
            self._is_reported = True
        else:
            self._is_reported = False
