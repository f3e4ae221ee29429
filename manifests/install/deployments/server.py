"""The server: its Service and Deployment."""

from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.install import cert_manager
from manifests.install.deployments.deployment import (
    Pods,
    build_deployment,
    build_disruption_budget,
    given,
    https_probe,
    read_only,
    secret_volume,
)
from manifests.install.installation import CLIENT_CA_DIRECTORY, SERVING_DIRECTORY

if TYPE_CHECKING:
    from manifests.install.installation import Installation
    from manifests.install.values import KernelCacheValues

Json = dict[str, Any]

_ADDRESS_VARIABLE: Final = "GPU_CONTROL_PLANE_LISTEN__ADVERTISED_ADDRESS"
_PORT: Final = {
    "name": constants.HTTPS_PORT_NAME,
    "port": constants.SERVICE_PORT,
    "targetPort": constants.HTTPS_PORT_NAME,
    "protocol": "TCP",
    "appProtocol": "https",
}
_TERMINATION_GRACE_S: Final = 30
"""More than `drain_s` and the 20 s in which bindings and Events end."""


def build_service(installation: "Installation") -> Json:
    """Return the Service of webhooks and extender.

    It selects no pods: the leader writes its address into an EndpointSlice
    (`reconciler.installation.service_endpoint`).
    """
    labels = constants.component_labels(constants.SERVER_COMPONENT)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": installation.metadata(constants.SERVICE_NAME, labels),
        "spec": {
            "ports": [_PORT],
        },
    }


def build_metrics_service(installation: "Installation") -> Json:
    """Return the Service by which Prometheus finds every replica, whether it leads or not."""
    labels = constants.component_labels(constants.METRICS_COMPONENT)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": installation.metadata(constants.METRICS_SERVICE, labels),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": constants.component_labels(constants.SERVER_COMPONENT),
            "ports": [_PORT],
        },
    }


def build_server(installation: "Installation") -> list[Json]:
    """Return the Deployment; a change of the installation's settings restarts its pods."""
    mounts: list[Json] = []
    volumes: list[Json] = []
    if installation.uses_cert_manager:
        mounts += [
            read_only("tls", SERVING_DIRECTORY),
            read_only("client-ca", CLIENT_CA_DIRECTORY),
        ]
        volumes += [
            secret_volume("tls", constants.SERVING_SECRET, cert_manager.SERVING_FILES),
            secret_volume("client-ca", constants.SCHEDULER_SECRET, cert_manager.CLIENT_CA_FILES),
        ]
    mounts += installation.cache_mounts
    volumes += installation.cache_volumes
    values = installation.values.server
    container = {
        "name": constants.NAME,
        "image": installation.image,
        "imagePullPolicy": installation.values.image.pull_policy,
        "command": ["gpu-control-plane"],
        "args": ["serve", "--installation", installation.settings],
        "env": [
            {
                "name": _ADDRESS_VARIABLE,
                "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
            }
        ],
        "ports": [
            {
                "name": constants.HTTPS_PORT_NAME,
                "containerPort": installation.port,
                "protocol": "TCP",
            },
        ],
        "startupProbe": https_probe(
            constants.LIVENESS_PATH, constants.HTTPS_PORT_NAME, periodSeconds=1, failureThreshold=60
        ),
        "livenessProbe": https_probe(
            constants.LIVENESS_PATH, constants.HTTPS_PORT_NAME, periodSeconds=10, timeoutSeconds=5
        ),
        "readinessProbe": https_probe(
            constants.SYNCED_PATH,
            constants.HTTPS_PORT_NAME,
            periodSeconds=1,
            timeoutSeconds=2,
            failureThreshold=2,
        ),
        **given(volumeMounts=mounts),
    }
    spec = {
        "serviceAccountName": constants.SERVICE_ACCOUNT,
        "terminationGracePeriodSeconds": _TERMINATION_GRACE_S,
        **given(volumes=volumes),
    }
    return [
        build_deployment(
            installation,
            constants.NAME,
            constants.SERVER_COMPONENT,
            values=values,
            pods=Pods(container=container, spec=spec, annotations={}),
        )
    ]


def cache_files(values: "KernelCacheValues") -> tuple[list[Json], list[Json]]:
    """Return volumes and mounts of the server; the chart has the same as a helper."""
    given = (
        ("registries-ca", values.registries.ca_config_map, constants.REGISTRIES_CA_DIRECTORY),
        ("trust-root", values.verification.trust_root_config_map, constants.TRUST_ROOT_DIRECTORY),
    )
    volumes = [{"name": name, "configMap": {"name": source}} for name, source, _ in given if source]
    mounts = [read_only(name, path) for name, source, path in given if source]
    return volumes, mounts


def build_server_budget(installation: "Installation") -> Json:
    return build_disruption_budget(installation, constants.NAME, constants.SERVER_COMPONENT)
