"""What is read of an exporter's port, and what is refused, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from reconciler.dcgm.errors import ExporterUnavailableError
from reconciler.dcgm.exporter import ExporterClient
from tests.support.dcgm import Exporter, a_page, an_exporter, device_lines

PAGE = a_page(device_lines("GPU-a"), device_lines("GPU-b"))


@pytest.fixture
async def exporter() -> AsyncIterator[Exporter]:
    async with an_exporter(PAGE) as serving:
        yield serving


async def read(exporter: Exporter, **bounds: float) -> str:
    async with ExporterClient(**{"timeout_s": 5.0, **bounds}) as exporters:  # type: ignore[arg-type]  # numbers
        return await exporters.page(exporter.host, exporter.port)


async def test_a_page_is_read(exporter: Exporter):
    assert await read(exporter) == PAGE


async def test_a_page_that_is_too_long_is_refused(exporter: Exporter):
    with pytest.raises(ExporterUnavailableError, match="more than 100 bytes"):
        await read(exporter, max_body_bytes=100)


async def test_a_silent_exporter_is_given_up(exporter: Exporter):
    exporter.hold = asyncio.Event()
    with pytest.raises(ExporterUnavailableError, match=r"did not answer within 0\.05 s"):
        await read(exporter, timeout_s=0.05)
    exporter.hold.set()


@pytest.mark.parametrize("status", [404, 500, 503, 204])
async def test_another_status_is_no_page(exporter: Exporter, status: int):
    exporter.status = status
    with pytest.raises(ExporterUnavailableError, match=f"answered {status}"):
        await read(exporter)


async def test_no_redirect_is_followed(exporter: Exporter):
    """A pod must not be able to have us ask another client."""
    exporter.status = 302
    exporter.headers = {"Location": f"http://127.0.0.1:{exporter.port}/metrics"}
    with pytest.raises(ExporterUnavailableError, match="answered 302"):
        await read(exporter)
    assert exporter.asked == 1


async def test_nothing_is_unpacked(exporter: Exporter):
    """A few KiB could become gigabytes."""
    exporter.headers = {"Content-Encoding": "gzip"}
    assert await read(exporter) == PAGE


async def test_a_port_where_nobody_listens_is_an_error_of_ours(exporter: Exporter):
    exporter.port = 1
    with pytest.raises(ExporterUnavailableError, match=r"127\.0\.0\.1:1/metrics"):
        await read(exporter)


@pytest.mark.parametrize("address", ["", "example.com", "10.0.0.7/x?", "10.0.0.7@evil"])
async def test_only_addresses_are_asked(address: str):
    async with ExporterClient(timeout_s=1) as exporters:
        with pytest.raises(ExporterUnavailableError, match="is no IP address"):
            await exporters.page(address, 9400)


async def test_a_closed_client_reads_nothing(exporter: Exporter):
    exporters = ExporterClient(timeout_s=1)
    with pytest.raises(ExporterUnavailableError, match="closed"):
        await exporters.page(exporter.host, exporter.port)
