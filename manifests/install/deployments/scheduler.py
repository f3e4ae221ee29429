"""Our kube-scheduler: the unmodified program with the extender, for pods of pools only."""

import hashlib
from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.install import cert_manager
from manifests.install.deployments import deployment
from manifests.install.scheduler import (
    ExtenderEndpoint,
    ExtenderTls,
    SchedulerLeaderElection,
    build_scheduler_configuration,
)
from manifests.yaml import render

if TYPE_CHECKING:
    from manifests.install.installation import Installation

Json = dict[str, Any]

SCHEDULER_FILES: Final = "/etc/gpu-scheduler"
"""Where kube-scheduler has its Secret, `constants.SCHEDULER_SECRET`."""
_CONFIGURATION_DIRECTORY: Final = "/etc/kube-scheduler"
_CONFIGURATION_KEY: Final = "config.yaml"
_CHECKSUM_ANNOTATION: Final = "checksum/configuration"
_PORT: Final = 10259
_CA_FILE, _CERT_FILE, _KEY_FILE = "ca.crt", "scheduler.crt", "scheduler.key"
_FILES: Final = {item: item for item in (_CA_FILE, _CERT_FILE, _KEY_FILE)}
ENVIRONMENT: Final = {"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "5"}
"""kube-scheduler makes its calls on one connection. If the node behind it loses power, no packet says so, and
by default kube-scheduler finds it out after 45 s."""
_HEALTH_PATH: Final = "/healthz"
"""kube-scheduler has `/livez` and `/readyz` from 1.31 on."""


def service_extender(namespace: str) -> ExtenderEndpoint:
    """Return the extender behind our Service, with the files that the Deployment mounts."""
    return ExtenderEndpoint(
        base_url=f"https://{constants.SERVICE_NAME}.{namespace}.svc",
        tls=ExtenderTls(
            ca_file=f"{SCHEDULER_FILES}/{_CA_FILE}",
            cert_file=f"{SCHEDULER_FILES}/{_CERT_FILE}",
            key_file=f"{SCHEDULER_FILES}/{_KEY_FILE}",
        ),
    )


def build_scheduler_config(installation: "Installation") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": installation.metadata(constants.SCHEDULER_DEPLOYMENT),
        "data": {_CONFIGURATION_KEY: _configuration(installation.namespace)},
    }


def build_scheduler(installation: "Installation") -> Json:
    """Return the Deployment. Of its Secret it mounts what kube-scheduler reads, as a directory."""
    container = {
        "name": "kube-scheduler",
        "image": installation.scheduler_image,
        "imagePullPolicy": installation.values.scheduler.image.pull_policy,
        "command": ["kube-scheduler"],
        "args": [
            f"--config={_CONFIGURATION_DIRECTORY}/{_CONFIGURATION_KEY}",
            f"--secure-port={_PORT}",
        ],
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "ports": [{"name": constants.HTTPS_PORT_NAME, "containerPort": _PORT, "protocol": "TCP"}],
        "startupProbe": deployment.https_probe(
            _HEALTH_PATH, constants.HTTPS_PORT_NAME, periodSeconds=1, failureThreshold=120
        ),
        "livenessProbe": deployment.https_probe(
            _HEALTH_PATH,
            constants.HTTPS_PORT_NAME,
            periodSeconds=10,
            timeoutSeconds=15,
            failureThreshold=8,
        ),
        "readinessProbe": deployment.https_probe(
            _HEALTH_PATH, constants.HTTPS_PORT_NAME, periodSeconds=5, timeoutSeconds=5
        ),
        "volumeMounts": [
            deployment.read_only("configuration", _CONFIGURATION_DIRECTORY),
            deployment.read_only("tls", SCHEDULER_FILES),
        ],
    }
    spec = {
        "serviceAccountName": constants.SCHEDULER_SERVICE_ACCOUNT,
        "volumes": [
            {"name": "configuration", "configMap": {"name": constants.SCHEDULER_DEPLOYMENT}},
            cert_manager.scheduler_volume("tls")
            if installation.uses_cert_manager
            else deployment.secret_volume("tls", constants.SCHEDULER_SECRET, _FILES),
        ],
    }
    return deployment.build_deployment(
        installation,
        constants.SCHEDULER_DEPLOYMENT,
        constants.SCHEDULER_COMPONENT,
        values=installation.values.scheduler,
        pods=deployment.Pods(
            container=container, spec=spec, annotations={_CHECKSUM_ANNOTATION: _checksum()}
        ),
    )


def build_scheduler_budget(installation: "Installation") -> Json:
    return deployment.build_disruption_budget(
        installation, constants.SCHEDULER_DEPLOYMENT, constants.SCHEDULER_COMPONENT
    )


def _configuration(namespace: str) -> str:
    election = SchedulerLeaderElection(namespace=namespace)
    return render(
        [build_scheduler_configuration(service_extender(namespace), leader_election=election)]
    )


def _checksum() -> str:
    """Return a digest of the configuration, in which only the namespace differs between installations."""
    return hashlib.sha256(_configuration(constants.DEFAULT_NAMESPACE).encode()).hexdigest()
