"""The CAs of clients' certificates, from mounted files.

An unusable file is counted and logged, and the CAs so far stay trusted. Until all files have been read once, no
certificate of these clients is accepted and the server is not ready.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from certs.client_authorities import ClientTrust, decode_authorities
from certs.errors import RotationStep, UnusableBundleError
from certs.mounted import POLL_INTERVAL_S

if TYPE_CHECKING:
    from pathlib import Path

    from certs.pem import Certificate
    from certs.tls import ServingContext

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """Where they are; None is where no file is configured."""

    scheduler: "Path | None" = None
    api_server: "Path | None" = None
    own_scheduler: bool = True
    """Without a file of its own, kube-scheduler's certificate is by the CAs of our serving certificate.
    Where those are a foreign issuer, it signs for others too, and no certificate is good."""


@final
class ClientAuthorityFiles:
    """Keeps a `ServingContext` in step with the files, by their content."""

    def __init__(
        self,
        files: ClientFiles,
        serving: "ServingContext",
        *,
        interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        self.ready: Final = asyncio.Event()
        """Set once clients are judged by what the files hold."""
        self._files = files
        self._serving = serving
        self._interval_s = interval_s
        self._fault: str | None = None

    async def run(self) -> NoReturn:
        while True:
            self.poll()
            await asyncio.sleep(self._interval_s)

    def poll(self) -> None:
        """Trust what is mounted now, if it can be read. Blocks for two small files in memory."""
        try:
            self._serving.trust(self._read())
        except UnusableBundleError as error:
            self._note(str(error))
            return
        self._note(None)
        self.ready.set()

    def _read(self) -> ClientTrust:
        files = self._files
        default = None if files.own_scheduler else ()
        return ClientTrust(
            scheduler=_read(files.scheduler) if files.scheduler else default,
            api_server=_read(files.api_server) if files.api_server else (),
        )

    def _note(self, fault: str | None) -> None:
        if fault is not None and fault != self._fault:
            _log.error("CAs of clients cannot be used", error=fault)
        self._fault = fault


def _read(file: "Path") -> "tuple[Certificate, ...]":
    try:
        return decode_authorities(file.read_bytes(), str(file))
    except OSError as error:
        RotationStep.RELOAD.count_failure()
        raise UnusableBundleError(f"{file}: {error.strerror}") from error
    except UnusableBundleError:
        RotationStep.RELOAD.count_failure()
        raise
