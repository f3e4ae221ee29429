"""Pages of a DCGM exporter, and an exporter that serves them over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer


def device_lines(
    uuid: str, *, xid: int = 0, volatile: int = 0, aggregate: int = 0, thermal: int = 0
) -> str:
    """Return the lines of one device, with the labels of dcgm-exporter 3.3."""
    labels = f'gpu="0",UUID="{uuid}",pci_bus_id="00000000:17:00.0",modelName="NVIDIA A100"'
    figures = {
        "GPU_TEMP": 34,
        "XID_ERRORS": xid,
        "ECC_DBE_VOL_TOTAL": volatile,
        "ECC_DBE_AGG_TOTAL": aggregate,
        "THERMAL_VIOLATION": thermal,
    }
    return "".join(
        f"# TYPE DCGM_FI_DEV_{name} gauge\nDCGM_FI_DEV_{name}{{{labels}}} {value}\n"
        for name, value in figures.items()
    )


def a_page(*devices: str) -> str:
    return "".join(devices)


@dataclass
class Exporter:
    """A dcgm-exporter; a test changes what it says."""

    page: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hold: asyncio.Event | None = None
    """While set to an event, requests wait for it."""
    asked: int = 0
    """Requests so far."""
    host: str = ""
    port: int = 0

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        return web.Response(text=self.page, status=self.status, headers=self.headers)


@asynccontextmanager
async def an_exporter(page: str = "", *, port: int | None = None) -> AsyncIterator[Exporter]:
    """Serve a page on a loopback port, a free one by default."""
    exporter = Exporter(page)
    app = web.Application()
    app.router.add_get("/metrics", exporter.answer)
    async with TestServer(app, host="127.0.0.1", port=port) as server:
        exporter.host, exporter.port = "127.0.0.1", server.port or 0
        yield exporter
