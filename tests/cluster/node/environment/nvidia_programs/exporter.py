"""dcgm-exporter: the values of a host engine in Prometheus' format, with the pods that kubelet gave devices to.

Environment and format: github.com/NVIDIA/dcgm-exporter, pkg/cmd/app.go and internal/pkg/rendermetrics. Of a pod it sees
`nvidia.com/gpu`, `nvidia.com/mig-*` and the resources of NVIDIA_RESOURCE_NAMES (internal/pkg/transformation).
"""

import asyncio
import csv
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from agent.kubelet.pod_resources import PodResources
from http_edge.system_clock import SystemClock

_POD_RESOURCES = Path("/var/lib/kubelet/pod-resources")
_WITHIN_S = 5.0

Json = dict[str, Any]


def main() -> None:
    """Serve until killed; ends where the engine cannot be reached."""
    # As process 1 of a container it would ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_serve())


async def _serve() -> None:
    collectors = _collectors(Path(os.environ["DCGM_EXPORTER_COLLECTORS"]))
    await _devices()
    kubelet = PodResources(_POD_RESOURCES, SystemClock())

    async def metrics(_: web.Request) -> web.Response:
        with_pods = os.environ["DCGM_EXPORTER_KUBERNETES"] == "true"
        pods = await _pods(kubelet) if with_pods else {}
        return web.Response(text=_page(collectors, await _devices(), pods))

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="OK")

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics), web.get("/health", health)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    host, _, port = os.environ["DCGM_EXPORTER_LISTEN"].rpartition(":")
    await web.TCPSite(runner, host or None, int(port)).start()
    print("Starting webserver", flush=True)
    await asyncio.Event().wait()


def _collectors(path: Path) -> list[list[str]]:
    """Return name, type and help of each metric."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    rows = [[cell.strip() for cell in row] for row in csv.reader(filter(None, lines))]
    return [row for row in rows if row[1] != "label"]


async def _devices() -> list[Json]:
    host, _, port = os.environ["DCGM_REMOTE_HOSTENGINE_INFO"].rpartition(":")
    async with asyncio.timeout(_WITHIN_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        content = await reader.read()
        writer.close()
    found: list[Json] = json.loads(content)
    return found


async def _pods(kubelet: PodResources) -> dict[str, Json]:
    """Return the container of each device, by UUID; of a shared one the last."""
    named = os.environ.get("NVIDIA_RESOURCE_NAMES", "").split(",")
    return {
        unit.partition("::")[0]: {
            "container": container.name,
            "namespace": pod.namespace,
            "pod": pod.name,
        }
        for pod in await kubelet.list_(_WITHIN_S)
        for container in pod.containers
        for resource, units in container.units.items()
        if resource in {"nvidia.com/gpu", *named} or resource.startswith("nvidia.com/mig-")
        for unit in units
    }


def _page(collectors: list[list[str]], devices: list[Json], pods: dict[str, Json]) -> str:
    lines: list[str] = []
    for name, kind, about in collectors:
        current = [device for device in devices if name in device["values"]]
        if current:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for item in current:
            labels = {key: value for key, value in item.items() if key != "values"}
            labels["Hostname"] = os.environ["NODE_NAME"]
            labels |= pods.get(item["UUID"], {})
            text = ",".join(f'{key}="{value}"' for key, value in labels.items())
            lines.append(f"{name}{{{text}}} {item['values'][name]}")
    return "\n".join([*lines, ""])
