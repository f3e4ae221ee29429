"""The serving certificate of the process, from either source."""

from typing import TYPE_CHECKING, NoReturn, final

from certs.bundle import Requirements
from certs.client_ca_files import ClientAuthorityFiles, ClientFiles
from certs.kubernetes import KubernetesCertificates
from certs.mounted import MountedCertificates
from certs.rotation import CertificateRotation
from certs.tls import ServingContext
from http_edge.negotiated_protocol import PROTOCOLS
from manifests import constants

if TYPE_CHECKING:
    import ssl

    from api.clock import Clock
    from certs.client_authorities import ClientAuthorities
    from kube.client import KubeClient
    from server.settings import Settings


@final
class ServingCertificate:
    """Keeps the port's TLS context loaded."""

    def __init__(self, settings: "Settings", client: "KubeClient", clock: "Clock") -> None:
        self._serving = ServingContext(PROTOCOLS)
        self._source = self._build_source(settings, client, clock)
        self._clients = ClientAuthorityFiles(
            ClientFiles(
                scheduler=settings.extender.client_ca_file,
                api_server=settings.webhooks.client_ca_file,
                own_scheduler=settings.tls.source == "SelfSigned",
            ),
            self._serving,
        )

    @property
    def context(self) -> "ssl.SSLContext":
        """Return the port's context; handshakes fail until a certificate is loaded."""
        return self._serving.context

    @property
    def scheduler_authorities(self) -> "ClientAuthorities":
        return self._serving.scheduler

    @property
    def api_server_authorities(self) -> "ClientAuthorities":
        return self._serving.api_server

    def is_loaded(self) -> bool:
        """Return whether a certificate is served, and the configured CAs of clients are in force."""
        return self._serving.loaded is not None and self._clients.ready.is_set()

    async def run(self) -> NoReturn:
        """Issue, renew and reload until cancelled."""
        await self._source.run()

    async def follow_clients(self) -> NoReturn:
        """Reload the CAs of clients until cancelled."""
        await self._clients.run()

    def _build_source(
        self, settings: "Settings", client: "KubeClient", clock: "Clock"
    ) -> CertificateRotation | MountedCertificates:
        tls = settings.tls
        if tls.source == "Files":
            if tls.directory is None:
                raise ValueError("tls.source Files needs tls.directory")
            return MountedCertificates(tls.directory, self._serving, clock)
        return CertificateRotation(
            KubernetesCertificates(
                client,
                mutating=[constants.MUTATING_CONFIGURATION],
                validating=[constants.VALIDATING_CONFIGURATION],
            ),
            self._serving,
            clock,
            namespace=settings.namespace,
            secret_name=constants.SERVING_SECRET,
            client_secret_name=constants.SCHEDULER_SECRET,
            required=Requirements.for_service(
                constants.SERVICE_NAME,
                settings.namespace,
                extra_dns_names=tls.dns_names,
                extra_ip_addresses=tls.ip_addresses,
            ),
            interval_s=tls.check_every_s,
        )
