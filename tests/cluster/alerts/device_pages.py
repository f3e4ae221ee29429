"""A double of dcgm-exporter for all nodes: every field that dashboards show, of the devices that it is told of."""

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support import ports
from tests.support.foreign_series import DCGM_FIELDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BUSY_PERCENT = 80


@dataclass
class DevicePages:
    """What the exporter says; a test changes it."""

    devices: dict[str, str] = field(default_factory=dict)
    """UUID -> node."""
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UUID -> namespace and name of the pod that has the device."""
    idle: set[str] = field(default_factory=set)
    """UUIDs of devices that do nothing."""
    asked: int = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(text="".join(self._lines()))

    def _lines(self) -> list[str]:
        return [
            f"{name}{{{self._labels(number, uuid, node)}}} {self._value(name, uuid)}\n"
            for number, (uuid, node) in enumerate(self.devices.items())
            for name in DCGM_FIELDS
        ]

    def _labels(self, number: int, uuid: str, node: str) -> str:
        labels = {
            "gpu": f"{number}",
            "UUID": uuid,
            "device": f"nvidia{number}",
            "modelName": "NVIDIA H200",
            "Hostname": node,
        }
        if uuid in self.pods:
            labels["namespace"], labels["pod"] = self.pods[uuid]
            labels["container"] = "main"
        return ",".join(f'{name}="{value}"' for name, value in labels.items())

    def _value(self, name: str, uuid: str) -> int:
        if name == "DCGM_FI_DEV_GPU_UTIL":
            return 0 if uuid in self.idle or uuid not in self.pods else BUSY_PERCENT
        return 1_000 + self.asked


@contextlib.asynccontextmanager
async def device_pages() -> "AsyncIterator[tuple[DevicePages, dict[str, Any]]]":
    """Serve the pages; yields them, and the job of a Prometheus that reads them."""
    pages = DevicePages()
    application = web.Application()
    application.add_routes([web.get("/metrics", pages.answer)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    port = ports.free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield (
        pages,
        {
            "job_name": "dcgm-exporter",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        },
    )
    await runner.cleanup()
