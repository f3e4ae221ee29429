"""Mounted certificates: tls.crt, tls.key and ca.crt in a directory, as cert-manager makes them.

cert-manager's ca-injector writes caBundle. The key must be ECDSA P-256 (`privateKey:
{algorithm: ECDSA, size: 256}` of a Certificate; cert-manager's default is RSA). No other certificate of the issuer authenticates
kube-scheduler: the CAs of clients have files of their own (`certs.client_ca_files`).

The files are compared by content: kubelet swaps a symlink of the directory, and a watch on it, or
times of change, would miss or repeat things.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from certs.bundle import (
    CA_CERTIFICATE,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    KeyPair,
    ServingBundle,
)
from certs.errors import RotationStep, UnusableBundleError

if TYPE_CHECKING:
    from pathlib import Path

    from api.clock import Clock
    from certs.tls import ServingContext

POLL_INTERVAL_S: Final = 10.0
"""Kubelet takes up to a minute to bring a Secret's change into a volume; this adds little."""

_log = structlog.get_logger()


@final
class MountedCertificates:
    """Keeps a `ServingContext` in step with files."""

    def __init__(
        self,
        directory: "Path",
        serving: "ServingContext",
        clock: "Clock",
    ) -> None:
        """Take the directory; nothing is read yet.

        Args:
            directory: of the mounted files.
            serving: receives the certificates.
            clock: its wall clock decides whether the mounted certificate has expired.
        """
        self.ready: Final = asyncio.Event()
        """Set once a certificate is served."""
        self._directory = directory
        self._serving = serving
        self._clock = clock
        self._last_fault: str | None = None

    async def run(self) -> NoReturn:
        while True:
            self.poll()
            await asyncio.sleep(POLL_INTERVAL_S)

    def poll(self) -> None:
        """Serve what is mounted now, if it can be served.

        What cannot be (missing, half-written, another kind of key) is counted every time, logged once,
        and what was served stays. Blocks for three small files in memory (kubelet's tmpfs).
        """
        try:
            bundle = self._read()
        except OSError as error:
            RotationStep.RELOAD.count_failure()
            self._note(f"{error.filename}: {error.strerror}")
            return
        try:
            self._serving.load(bundle)
        except UnusableBundleError as error:
            self._note(str(error))
            return
        self._note(self._expiry())
        self.ready.set()

    def _read(self) -> ServingBundle:
        return ServingBundle(
            trust_pem=(self._directory / CA_CERTIFICATE).read_bytes(),
            pair=KeyPair(
                certificate_pem=(self._directory / SERVING_CERTIFICATE).read_bytes(),
                key_pem=(self._directory / SERVING_KEY).read_bytes(),
            ),
        )

    def _expiry(self) -> str | None:
        end = self._serving.not_after
        if end is None or self._clock.utc_now() < end:
            return None
        return f"{SERVING_CERTIFICATE}: it expired at {end:%FT%TZ}"

    def _note(self, fault: str | None) -> None:
        if fault is not None and fault != self._last_fault:
            _log.error(
                "mounted certificates cannot be used",
                directory=str(self._directory),
                error=fault,
            )
        self._last_fault = fault
