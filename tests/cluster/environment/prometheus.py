"""Prometheus of Debian, configured from ServiceMonitors as the Prometheus operator does.

github.com/prometheus-operator/prometheus-operator: pkg/prometheus/promcfg.go, `generateServiceMonitorConfig`.
Debian builds it without the discovery of Kubernetes, which is done here once, at the start: Services by the
monitor's selector, their endpoints by the name of the port.
"""

import base64
import shutil
from typing import TYPE_CHECKING, Any, final

import aiohttp
import yaml

from tests.cluster.environment import client, polling
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.cluster.environment.control_plane import ControlPlane

_READY_S = 120


@final
class Prometheus:
    """One Prometheus on a free port of loopback."""

    def __init__(
        self, control_plane: "ControlPlane", program: "Path", *, name: str = "prometheus"
    ) -> None:
        """`name` tells those of one run apart."""
        run = control_plane.run
        self._control_plane = control_plane
        self._configuration = run.directory / f"{name}.yaml"
        self._ca_file = run.directory / f"{name}-ca.crt"
        self._data = run.scratch / name
        self.url = f"http://127.0.0.1:{ports.free_port()}"
        self.process = run.child(
            name,
            [
                str(program),
                f"--config.file={self._configuration}",
                f"--storage.tsdb.path={self._data}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
        )

    async def start(
        self, *monitors: "Mapping[str, Any]", jobs: "Sequence[Mapping[str, Any]]" = ()
    ) -> None:
        """Scrape what ServiceMonitors select, and further jobs; returns when it is ready.

        It knows nothing of what it scraped before an earlier end.
        """
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            made = [*jobs, *[await self._job_of(api, monitor) for monitor in monitors]]
        self._configuration.write_text(yaml.safe_dump({"scrape_configs": made}), encoding="utf-8")
        shutil.rmtree(self._data, ignore_errors=True)
        self.process.start()
        ready = polling.https_probe(f"{self.url}/-/ready", ca_file=None)
        await self.process.wait_ready(ready, within=_READY_S)

    async def _job_of(
        self, api: client.ApiClient, monitor: "Mapping[str, Any]"
    ) -> "Mapping[str, Any]":
        (endpoint,) = monitor["spec"]["endpoints"]
        if "tlsConfig" in endpoint:
            namespace = monitor["metadata"]["namespace"]
            content = await _read_key(api, namespace, endpoint["tlsConfig"]["ca"])
            self._ca_file.write_bytes(content)
        targets = await selected_targets(api, monitor)
        return scrape_job(monitor, endpoint, targets, ca_file=self._ca_file)

    def close(self) -> None:
        self.process.kill9()

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query: their labels, with the value under an empty name."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/query", params={"query": expression}) as answer,
        ):
            document = await answer.json()
        assert document["status"] == "success", document
        return [
            {**item["metric"], "": float(item["value"][1])} for item in document["data"]["result"]
        ]

    async def has_values(self, expression: str, *, since: float, until: float) -> bool:
        """Say whether an expression had a number at any time between, examined each second; NaN is none."""
        asked = {"query": expression, "start": f"{since}", "end": f"{until}", "step": "1s"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/api/v1/query_range", data=asked) as answer,
        ):
            document = await answer.json()
        assert document["status"] == "success", (expression, document)
        return any(
            value != "NaN" for item in document["data"]["result"] for _, value in item["values"]
        )

    async def targets(self) -> list[dict[str, Any]]:
        """Return the targets, with the error of the last scrape of each."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/targets", params={"state": "active"}) as answer,
        ):
            found: list[dict[str, Any]] = (await answer.json())["data"]["activeTargets"]
        return found


async def selected_targets(
    api: client.ApiClient, monitor: "Mapping[str, Any]"
) -> list[dict[str, Any]]:
    """Return a static configuration of each endpoint that a ServiceMonitor of one endpoint selects.

    The labels are those that the Prometheus operator sets: a page's own of these names are renamed `exported_…`.
    """
    namespace, spec = monitor["metadata"]["namespace"], monitor["spec"]
    (endpoint,) = spec["endpoints"]
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
    services = await api.get(f"/api/v1/namespaces/{namespace}/services", labelSelector=selector)
    names = [service["metadata"]["name"] for service in services["items"]]
    slices = await api.get(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        labelSelector=f"kubernetes.io/service-name in ({','.join(names)})",
    )
    return [
        {
            "targets": [f"{address}:{port['port']}"],
            "labels": {
                "namespace": namespace,
                "service": item["metadata"]["labels"]["kubernetes.io/service-name"],
                "endpoint": endpoint["port"],
                "pod": found.get("targetRef", {}).get("name", ""),
            },
        }
        for item in slices["items"]
        for port in item.get("ports") or ()
        if port.get("name") == endpoint["port"]
        for found in item.get("endpoints") or ()
        for address in found["addresses"]
    ]


def scrape_job(
    monitor: "Mapping[str, Any]",
    endpoint: "Mapping[str, Any]",
    targets: list[dict[str, Any]],
    *,
    ca_file: "Path",
    token_file: "Path | None" = None,
) -> dict[str, Any]:
    """Return the scrape configuration of an endpoint of a ServiceMonitor.

    Args:
        monitor: has the endpoint.
        endpoint: says how it is read.
        targets: what is read, as static configurations.
        ca_file: what its `tlsConfig` refers to.
        token_file: has what its `bearerTokenFile` has in Prometheus' pod.
    """
    metadata = monitor["metadata"]
    number = monitor["spec"]["endpoints"].index(endpoint)
    job = {
        "job_name": f"serviceMonitor/{metadata['namespace']}/{metadata['name']}/{number}",
        "scheme": endpoint.get("scheme", "http"),
        "metrics_path": endpoint["path"],
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["interval"],
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": targets,
    }
    if "tlsConfig" in endpoint:
        job["tls_config"] = {
            "ca_file": str(ca_file),
            "server_name": endpoint["tlsConfig"]["serverName"],
        }
    if "bearerTokenFile" in endpoint:
        job["authorization"] = {"credentials_file": str(token_file)}
    return job


async def _read_key(api: client.ApiClient, namespace: str, reference: "Mapping[str, Any]") -> bytes:
    """Return what a reference of a Secret's or a ConfigMap's key leads to."""
    (kind,) = reference
    plural = {"secret": "secrets", "configMap": "configmaps"}[kind]
    found = await api.get(f"/api/v1/namespaces/{namespace}/{plural}/{reference[kind]['name']}")
    text: str = found["data"][reference[kind]["key"]]
    return base64.b64decode(text) if kind == "secret" else text.encode()
