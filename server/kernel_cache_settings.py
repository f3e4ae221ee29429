"""Section `kernel_caches`: GPU kernel caches from OCI images, their signatures, registries and stores on nodes."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.constants import REGISTRIES_CA_FILE, TRUST_ROOT_FILE
from server.setting_sections import HostPath, ObjectName, QuantityText, Section


def _with_mounted_file(given: object, field: str, *, source: str, path: str) -> object:
    """Name the file that the chart mounts, where the settings name its ConfigMap and no file."""
    if isinstance(given, dict) and given.get(source) and given.get(field) is None:
        return {**given, field: path}
    return given


class SignerIdentitySettings(Section):
    """A signer without a key, as the certificate of its signature names it."""

    subject: str
    """Subject alternative name of the certificate, compared as a whole."""
    issuer: str
    """Issuer of the OpenID Connect token, compared as a whole."""


class CacheVerificationSettings(Section):
    """Whose signatures of caches' images are good, in the whole cluster."""

    keys: tuple[str, ...] = ()
    """Public keys, PEM."""
    identities: tuple[SignerIdentitySettings, ...] = ()
    """Signers without keys; they need a trust root."""
    mode: Literal["Enforce", "Warn"] = "Enforce"
    """Warn: an image without a good signature is pulled, and the author of the object is warned."""
    allow_unsigned: bool = False
    """Accept caches for which neither these settings nor their spec.verification name a signer."""
    trust_root_file: Path | None = None
    """Sigstore's trusted root (JSON): authorities and logs behind identities. If omitted, the file of
    trust_root_config_map, where that is set."""
    trust_root_config_map: ObjectName = ""
    """ConfigMap in our namespace with the key trusted_root.json, which the chart mounts for the server."""

    @model_validator(mode="after")
    def _is_policy(self) -> Self:
        if self.keys or self.identities:
            # Not at the top: `cryptography` would slow every command.
            from api.kinds.gkmcache import SignerIdentity, Verification  # noqa: PLC0415
            from kernelcache.signatures.policy import (  # noqa: PLC0415
                read_signature_policy,
            )

            identities = [
                SignerIdentity(subject=identity.subject, issuer=identity.issuer)
                for identity in self.identities
            ]
            read_signature_policy(Verification(keys=list(self.keys), identities=identities))
        return self

    @model_validator(mode="before")
    @classmethod
    def _file_of_the_config_map(cls, given: object) -> object:
        return _with_mounted_file(
            given, "trust_root_file", source="trust_root_config_map", path=TRUST_ROOT_FILE
        )


class CacheRegistrySettings(Section):
    """How the registries of caches' images are reached, from the server and from nodes."""

    plain_http: tuple[str, ...] = ()
    """`host:port` of registries that are asked without TLS."""
    private: tuple[str, ...] = ()
    """`host:port` of registries, token servers and blob stores whose addresses are not public (loopback, link-local,
    private), and that server and node agents may ask all the same; a host without a port is on 80 or 443."""
    ca_file: Path | None = None
    """Authorities that the server trusts instead of the system's. If omitted, the file of ca_config_map, where that
    is set."""
    ca_config_map: ObjectName = ""
    """ConfigMap in our namespace with the key ca.crt, which is mounted for the server and for the node agents."""

    @model_validator(mode="before")
    @classmethod
    def _file_of_the_config_map(cls, given: object) -> object:
        return _with_mounted_file(given, "ca_file", source="ca_config_map", path=REGISTRIES_CA_FILE)


class KernelCacheSettings(Section):
    """GPU kernel caches (docs/kernel-caches.md)."""

    enabled: bool = True
    """Serve GKMCaches: webhooks, controllers, and the CSI driver in the node agents."""
    verification: CacheVerificationSettings = CacheVerificationSettings()
    kyverno: bool = False
    """Take the digest and the verification of images that Kyverno verified from its annotation."""
    registries: CacheRegistrySettings = CacheRegistrySettings()
    pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets in our namespace that ClusterGKMCaches may name for their registry's credentials."""
    directory: HostPath = "/var/lib/gkm"
    """Directory of extracted caches on the nodes."""
    quota: QuantityText = "100Gi"
    """Bytes that extracted caches may take of a node's disk; less where the disk has not so much left."""
    grace_s: Annotated[float, Field(ge=0)] = 300.0
    """Time that content stays on a node which no cache names and no pod uses any more."""
