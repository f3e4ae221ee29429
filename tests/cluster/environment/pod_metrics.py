"""A double of kube-state-metrics: of the pods of given namespaces, and what nodes can allocate.

As docs/metrics/workload/pod-metrics.md and docs/metrics/cluster/node-metrics.md have it.
"""

import contextlib
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.cluster.environment import nodes, pods
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.client import ApiClient, JsonObject


@contextlib.asynccontextmanager
async def pod_metrics(api: "ApiClient", *namespaces: str) -> "AsyncIterator[dict[str, Any]]":
    """Serve the pages; yields the job of a Prometheus that reads them."""

    async def answer(_: web.Request) -> web.Response:
        found = [
            pod
            for namespace in namespaces
            for pod in (await api.get(pods.collection(namespace)))["items"]
        ]
        lines = [line for pod in found for line in _lines(pod)]
        for node in (await api.get(nodes.NODES))["items"]:
            lines += _allocatable(node)
        return web.Response(text="".join(lines))

    application = web.Application()
    application.add_routes([web.get("/metrics", answer)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    port = ports.free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield {
        "job_name": "kube-state-metrics",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }
    await runner.cleanup()


def _lines(pod: "JsonObject") -> list[str]:
    metadata, spec = pod["metadata"], pod["spec"]
    labels = f'namespace="{metadata["namespace"]}",pod="{metadata["name"]}",uid="{metadata["uid"]}"'
    lines = [f'kube_pod_status_phase{{{labels},phase="{pod["status"]["phase"]}"}} 1\n']
    for container in spec["containers"]:
        for resource, amount in container["resources"].get("limits", {}).items():
            if "/" not in resource:
                continue  # `1k` of CPU is a number to kube-state-metrics, which knows quantities
            lines.append(
                f'kube_pod_container_resource_requests{{{labels},container="{container["name"]}",'
                f'node="{spec.get("nodeName", "")}",resource="{_named(resource)}",unit="integer"}} {amount}\n'
            )
    return lines


def _allocatable(node: "JsonObject") -> list[str]:
    return [
        f'kube_node_status_allocatable{{node="{node["metadata"]["name"]}",'
        f'resource="{_named(resource)}",unit="integer"}} {amount}\n'
        for resource, amount in node["status"].get("allocatable", {}).items()
        if "/" in resource
    ]


def _named(resource: str) -> str:
    return re.sub(r"\W", "_", resource)
