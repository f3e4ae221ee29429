"""Values: key pairs, the content of the Secret, the part that a server loads, the requirements.

They hold PEM as it was read. `certs.pem` decodes it and `certs.validity` judges it. No repr shows key material.
"""

import datetime as dt
import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, final

from api.names import DEFAULT_SCHEDULER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

CA_CERTIFICATE: Final = "ca.crt"
"""Trusted CAs, the signing one first; what goes into caBundle, and what clients mount."""
CA_KEY: Final = "ca.key"
SERVING_CERTIFICATE: Final = "tls.crt"
SERVING_KEY: Final = "tls.key"
CLIENT_CERTIFICATE: Final = "scheduler.crt"
CLIENT_KEY: Final = "scheduler.key"

_DNS_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"(\*\.)?{_DNS_LABEL}(\.{_DNS_LABEL})*")
_MAX_DNS_NAME = 253
_MAX_COMMON_NAME = 64
"""X.520's upper bound; OpenSSL refuses more."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate, perhaps with its chain, and its key; empty where missing."""

    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBundle:
    """A TLS server's part: the trusted CAs of clients, and its own pair."""

    trust_pem: bytes = field(repr=False)
    pair: KeyPair


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of the Secret; empty where missing."""

    trust_pem: bytes = field(default=b"", repr=False)
    """The signing CA first, then those that it replaced and that are still trusted."""
    authority_key_pem: bytes = field(default=b"", repr=False)
    serving: KeyPair = KeyPair()
    client: KeyPair = KeyPair()
    """kube-scheduler's, for the extender's paths."""

    @property
    def authority(self) -> KeyPair:
        """Return the signing CA; its certificate is the first of the chain."""
        return KeyPair(certificate_pem=self.trust_pem, key_pem=self.authority_key_pem)

    @property
    def to_serve(self) -> ServingBundle:
        return ServingBundle(trust_pem=self.trust_pem, pair=self.serving)

    @classmethod
    def from_secret(cls, data: "Mapping[str, bytes]") -> Self:
        """Never raises; unknown keys are ignored."""

        def pair(certificate: str, key: str) -> KeyPair:
            return KeyPair(certificate_pem=data.get(certificate, b""), key_pem=data.get(key, b""))

        return cls(
            trust_pem=data.get(CA_CERTIFICATE, b""),
            authority_key_pem=data.get(CA_KEY, b""),
            serving=pair(SERVING_CERTIFICATE, SERVING_KEY),
            client=pair(CLIENT_CERTIFICATE, CLIENT_KEY),
        )

    def as_secret(self) -> dict[str, bytes]:
        return {
            CA_CERTIFICATE: self.trust_pem,
            CA_KEY: self.authority_key_pem,
            SERVING_CERTIFICATE: self.serving.certificate_pem,
            SERVING_KEY: self.serving.key_pem,
            CLIENT_CERTIFICATE: self.client.certificate_pem,
            CLIENT_KEY: self.client.key_pem,
        }

    def as_client_secret(self) -> dict[str, bytes]:
        """Return the content of kube-scheduler's Secret: its own pair and the trusted CAs; no key of ours."""
        return {
            CA_CERTIFICATE: self.trust_pem,
            CLIENT_CERTIFICATE: self.client.certificate_pem,
            CLIENT_KEY: self.client.key_pem,
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The names of the certificates, and their lifetimes.

    Raises:
        ValueError: a name cannot stand in a certificate, there is none, or a lifetime is not positive.
    """

    dns_names: tuple[str, ...]
    ip_addresses: tuple[IpAddress, ...] = ()
    client_name: str = DEFAULT_SCHEDULER_NAME
    """CN of kube-scheduler's certificate."""
    authority_lifetime: dt.timedelta = dt.timedelta(days=3650)
    leaf_lifetime: dt.timedelta = dt.timedelta(days=365)
    lookahead: dt.timedelta = dt.timedelta(days=90)
    """Renew so long before the end; at most a third of the lifetime (`certs.validity`)."""

    def __post_init__(self) -> None:
        """Refuse values that X.509 cannot hold."""
        if not self.dns_names and not self.ip_addresses:
            raise ValueError("the serving certificate needs a DNS name or an IP address")
        for name in self.dns_names:
            if len(name) > _MAX_DNS_NAME or not _DNS_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no lower-case DNS name")
        if not 1 <= len(self.client_name) <= _MAX_COMMON_NAME:
            raise ValueError(
                f"the client's name has {len(self.client_name)} characters; 1 to {_MAX_COMMON_NAME} fit"
            )
        for what, span in (("CA", self.authority_lifetime), ("leaf", self.leaf_lifetime)):
            if span <= dt.timedelta(0):
                raise ValueError(f"the {what}'s lifetime is {span}; it must be positive")

    @classmethod
    def for_service(
        cls,
        service: str,
        namespace: str,
        *,
        cluster_domain: str = "cluster.local",
        extra_dns_names: "Iterable[str]" = (),
        extra_ip_addresses: "Iterable[str]" = (),
        client_name: str = DEFAULT_SCHEDULER_NAME,
    ) -> Self:
        """Return the requirements of a Service's certificate, with further names where settings give them.

        Raises:
            ValueError: a name or an address is none.
        """
        host = f"{service}.{namespace}"
        names = (f"{host}.svc", f"{host}.svc.{cluster_domain}", host, *extra_dns_names)
        return cls(
            dns_names=tuple(dict.fromkeys(name.lower() for name in names)),
            ip_addresses=tuple(
                dict.fromkeys(ipaddress.ip_address(address) for address in extra_ip_addresses)
            ),
            client_name=client_name,
        )
