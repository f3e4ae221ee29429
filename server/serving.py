"""The serving certificate of the process, from either source."""

from typing import TYPE_CHECKING, NoReturn, final

from certs.bundle import Requirements
from certs.files import MountedCertificates
from certs.kubernetes import KubernetesCertificates
from certs.rotating import CertificateRotation
from certs.tls import ServingContext

if TYPE_CHECKING:
    import ssl

    from api.clock import Clock
    from kube.client import KubeClient
    from server.settings import Settings


@final
class Certificates:
    """Keeps the port's TLS context loaded."""

    def __init__(self, settings: "Settings", client: "KubeClient", clock: "Clock") -> None:
        self._serving = ServingContext()
        self._source = self._build_source(settings, client, clock)

    @property
    def context(self) -> "ssl.SSLContext":
        """Return what the server listens with; handshakes fail until a certificate is loaded."""
        return self._serving.context

    def is_loaded(self) -> bool:
        """Say whether a certificate is served."""
        return self._serving.loaded is not None

    async def run(self) -> NoReturn:
        """Issue, renew and reload until cancelled."""
        await self._source.run()

    def _build_source(
        self, settings: "Settings", client: "KubeClient", clock: "Clock"
    ) -> CertificateRotation | MountedCertificates:
        tls = settings.tls
        if tls.source == "Files":
            if tls.directory is None:
                raise ValueError("tls.source Files needs tls.directory")
            return MountedCertificates(
                tls.directory, self._serving, clock, interval_s=tls.poll_files_every_s
            )
        return CertificateRotation(
            KubernetesCertificates(
                client,
                mutating=[settings.mutating_configuration],
                validating=[settings.validating_configuration],
            ),
            self._serving,
            clock,
            namespace=settings.namespace,
            secret_name=tls.secret,
            wanted=Requirements.for_service(
                settings.service,
                settings.namespace,
                extra_dns_names=tls.dns_names,
                extra_ip_addresses=tls.ip_addresses,
            ),
            interval_s=tls.check_every_s,
        )
