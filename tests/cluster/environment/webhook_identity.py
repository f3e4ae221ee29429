"""What makes kube-apiserver show a client certificate to webhooks (docs/operations.md has the same files)."""

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.environment.credentials import CertificatePair

_API = "apiserver.config.k8s.io/v1"


def write_admission_configuration(directory: "Path", host: str, pair: "CertificatePair") -> "Path":
    """Write the file for `--admission-control-config-file`.

    Webhooks at `host`, a name and a port, are called with the certificate, all others without one.
    """
    kubeconfig = directory / "webhooks.kubeconfig"
    login = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    users = [{"name": host, "user": login}]
    _write(kubeconfig, {"apiVersion": "v1", "kind": "Config", "users": users})
    webhooks = {
        "apiVersion": _API,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    configuration = directory / "admission-configuration.yaml"
    _write(
        configuration,
        {
            "apiVersion": _API,
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": name, "configuration": webhooks} for name in plugins],
        },
    )
    return configuration


def _write(path: "Path", document: dict[str, object]) -> None:
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
