"""Certificates by cert-manager: `tls.source: CertManager`.

A CA of this installation signs kube-scheduler's client certificate, and the serving certificate
unless another issuer is given. No other client has a certificate by that CA, so its names can be
trusted (docs/operations.md, "External certificates").
"""

from typing import TYPE_CHECKING, Any, Final

from api.names import DEFAULT_SCHEDULER_NAME
from manifests import constants

if TYPE_CHECKING:
    from manifests.install.installation import Installation

Json = dict[str, Any]

SERVING_FILES: Final = {"tls.crt": "tls.crt", "tls.key": "tls.key", "ca.crt": "ca.crt"}
CLIENT_CA_FILES: Final = {"ca.crt": "ca.crt"}
INJECT_ANNOTATION: Final = "cert-manager.io/inject-ca-from"

_GROUP: Final = "cert-manager.io"
_VERSION: Final = f"{_GROUP}/v1"
_CA: Final = f"{constants.NAME}-ca"
_ROOT: Final = f"{constants.NAME}-root"
OWN_ISSUER: Final = {"name": _CA, "kind": "Issuer", "group": _GROUP}


def inject_annotation(namespace: str) -> dict[str, str]:
    """Return the annotation by which cert-manager writes caBundle into a webhook configuration."""
    return {INJECT_ANNOTATION: f"{namespace}/{constants.SERVING_SECRET}"}


def build_certificates(installation: "Installation") -> list[Json]:
    """Return issuers and certificates, each certificate called as its Secret."""
    service = f"{constants.SERVICE_NAME}.{installation.namespace}.svc"
    return [
        _object(installation, "Issuer", _ROOT, spec={"selfSigned": {}}),
        _certificate(
            installation,
            _CA,
            {
                "commonName": _CA,
                "isCA": True,
                "duration": "87600h",
                "issuerRef": OWN_ISSUER | {"name": _ROOT},
            },
        ),
        _object(installation, "Issuer", _CA, spec={"ca": {"secretName": _CA}}),
        _certificate(
            installation,
            constants.SERVING_SECRET,
            {
                "commonName": service,
                "dnsNames": [service, f"{service}.cluster.local"],
                "usages": ["digital signature", "key encipherment", "server auth"],
                "issuerRef": dict(installation.serving_issuer),
            },
        ),
        _certificate(
            installation,
            constants.SCHEDULER_SECRET,
            {
                "commonName": DEFAULT_SCHEDULER_NAME,
                "usages": ["digital signature", "client auth"],
                "issuerRef": dict(OWN_ISSUER),
            },
        ),
    ]


def build_console_certificate(installation: "Installation") -> Json:
    """Return the console's certificate, by the issuer of the serving certificate."""
    service = f"{constants.CONSOLE}.{installation.namespace}.svc"
    names = [service, f"{service}.cluster.local", *installation.values.console.hosts]
    return _certificate(
        installation,
        constants.CONSOLE_SECRET,
        {
            "commonName": service,
            "dnsNames": names,
            "usages": ["digital signature", "key encipherment", "server auth"],
            "issuerRef": dict(installation.serving_issuer),
        },
    )


def scheduler_volume(name: str) -> Json:
    """Return the volume with kube-scheduler's key pair, and the CA of the serving certificate."""
    pair = {"tls.crt": "scheduler.crt", "tls.key": "scheduler.key"}
    return {
        "name": name,
        "projected": {
            "defaultMode": 0o440,
            "sources": [
                _projected(constants.SERVING_SECRET, {"ca.crt": "ca.crt"}),
                _projected(constants.SCHEDULER_SECRET, pair),
            ],
        },
    }


def _projected(secret: str, files: dict[str, str]) -> Json:
    items = [{"key": key, "path": path} for key, path in files.items()]
    return {"secret": {"name": secret, "items": items}}


def _certificate(installation: "Installation", name: str, spec: Json) -> Json:
    key = {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
    return _object(
        installation, "Certificate", name, spec={"secretName": name, "privateKey": key, **spec}
    )


def _object(installation: "Installation", kind: str, name: str, *, spec: Json) -> Json:
    return {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": installation.metadata(name),
        "spec": spec,
    }
