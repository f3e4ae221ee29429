"""The console: its Service and Deployment.

It serves TLS with a certificate of a Secret, or HTTP behind an ingress that ends TLS.
"""

from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.install.deployments import deployment

if TYPE_CHECKING:
    from manifests.install.installation import Installation

Json = dict[str, Any]

_TLS_DIRECTORY: Final = "/etc/gpu-console/tls"
_TLS_FILES: Final = {"tls.crt": "tls.crt", "tls.key": "tls.key"}


def build_console(installation: "Installation") -> list[Json]:
    return [_service(installation), _deployment(installation)]


def _service(installation: "Installation") -> Json:
    labels = constants.component_labels(constants.CONSOLE_COMPONENT)
    port = _port_name(installation)
    number = (
        constants.SERVICE_PORT
        if port == constants.HTTPS_PORT_NAME
        else constants.PLAIN_SERVICE_PORT
    )
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": installation.metadata(constants.CONSOLE, labels),
        "spec": {
            "selector": labels,
            "ports": [
                {
                    "name": port,
                    "port": number,
                    "targetPort": port,
                    "protocol": "TCP",
                    "appProtocol": port,
                }
            ],
        },
    }


def _deployment(installation: "Installation") -> Json:
    values = installation.values.console
    port = _port_name(installation)
    listen = f"--listen=0.0.0.0:{constants.CONTAINER_PORT}"
    args = ["console", listen, f"--namespace={installation.namespace}"]
    mounts, volumes = [], []
    if values.plain_http:
        args.append("--plain-http")
    else:
        args += [
            f"--tls-certificate={_TLS_DIRECTORY}/tls.crt",
            f"--tls-key={_TLS_DIRECTORY}/tls.key",
        ]
        mounts.append(deployment.read_only("tls", _TLS_DIRECTORY))
        volumes.append(deployment.secret_volume("tls", installation.console_secret, _TLS_FILES))
    container = {
        "name": constants.CONSOLE,
        "image": installation.image,
        "imagePullPolicy": installation.values.image.pull_policy,
        "command": ["gpu-control-plane"],
        "args": [*args, *installation.console_arguments],
        "ports": [
            {"name": port, "containerPort": constants.CONTAINER_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe(constants.LIVENESS_PATH, port, periodSeconds=1, failureThreshold=60),
        "livenessProbe": _probe(constants.LIVENESS_PATH, port, periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": _probe(constants.READINESS_PATH, port, periodSeconds=2, timeoutSeconds=2),
        **deployment.given(volumeMounts=mounts),
    }
    return deployment.build_deployment(
        installation,
        constants.CONSOLE,
        constants.CONSOLE_COMPONENT,
        values=values,
        pods=deployment.Pods(
            container=container,
            spec={"serviceAccountName": constants.CONSOLE, **deployment.given(volumes=volumes)},
            annotations={},
        ),
    )


def _port_name(installation: "Installation") -> str:
    is_plain = installation.values.console.plain_http
    return constants.HTTP_PORT_NAME if is_plain else constants.HTTPS_PORT_NAME


def _probe(path: str, port: str, **times: int) -> Json:
    return {"httpGet": {"path": path, "port": port, "scheme": port.upper()}, **times}
