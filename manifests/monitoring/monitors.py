"""ServiceMonitor and PodMonitor (Prometheus operator): which metrics are read, and how."""

from typing import TYPE_CHECKING, Any, Final

from api.well_known_labels import APP_COMPONENT_LABEL, PART_OF_LABEL
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

_API_VERSION: Final = "monitoring.coreos.com/v1"
_ACCOUNT_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
"""Token file of Prometheus' pod."""


def build_service_monitor(
    namespace: str,
    interval: str,
    labels: "Mapping[str, str]",
    *,
    ca_secret: str,
    with_usage: bool = False,
) -> Json:
    """Return the monitor of the servers.

    Args:
        namespace: of the servers.
        interval: between two scrapes.
        labels: of the object, besides ours.
        ca_secret: has the CA of their certificate.
        with_usage: whether namespaces and pods are read, too, with the token of Prometheus' account.
    """
    endpoint: Json = {
        "port": constants.HTTPS_PORT_NAME,
        "scheme": "https",
        "path": constants.METRICS_PATH,
        "interval": interval,
        "tlsConfig": {
            "ca": {"secret": {"name": ca_secret, "key": "ca.crt"}},
            "serverName": f"{constants.SERVICE_NAME}.{namespace}.svc",
        },
    }
    selected = constants.component_labels(constants.METRICS_COMPONENT)
    endpoints = [endpoint]
    if with_usage:
        usage: Json = {
            "path": constants.USAGE_METRICS_PATH,
            "bearerTokenFile": _ACCOUNT_FILE,
            # Namespaces and pods are those of the page, not those of the server.
            "honorLabels": True,
        }
        endpoints.append({**endpoint, **usage})
    spec = {"selector": {"matchLabels": selected}, "endpoints": endpoints}
    return _monitor("ServiceMonitor", constants.NAME, namespace, labels=labels, spec=spec)


def build_pod_monitor(namespace: str, interval: str, labels: "Mapping[str, str]") -> Json:
    """Return the monitor of node agents and device plugins."""
    endpoint = {
        "port": constants.PROBES_PORT_NAME,
        "path": constants.METRICS_PATH,
        "interval": interval,
    }
    selected = {
        PART_OF_LABEL: constants.NAME,
        APP_COMPONENT_LABEL: constants.DEVICE_PLUGIN,
    }
    spec = {"selector": {"matchLabels": selected}, "podMetricsEndpoints": [endpoint]}
    return _monitor("PodMonitor", constants.NODE_AGENT, namespace, labels=labels, spec=spec)


def _monitor(
    kind: str, name: str, namespace: str, *, labels: "Mapping[str, str]", spec: Json
) -> Json:
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**constants.LABELS, **labels},
        },
        "spec": spec,
    }
