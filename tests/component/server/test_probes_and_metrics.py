"""The paths that are open to everyone: liveness, readiness, metrics."""

import asyncio
import gzip
import http.client
import threading
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from http_edge.exposition import FRESH_S, Exposition, accepts_gzip
from manifests.constants import (
    FILTER_PATH,
    LIVENESS_PATH,
    METRICS_PATH,
    READINESS_PATH,
    SYNCED_PATH,
)
from telemetry.metric_declaration import MetricDeclarations
from tests.support.scheduling import a_wire_pod, extender_args
from tests.support.served_app import ServedApp


async def test_livez_is_ok_whatever_readiness_says(anonymous: ServedApp) -> None:
    anonymous.readiness.checks["pods synced"] = lambda: False
    reply = await anonymous.call("GET", LIVENESS_PATH)
    assert (reply.status, reply.content_type, reply.text) == (200, "text/plain", "ok\n")


async def test_readyz_names_every_check_and_fails_while_one_does(anonymous: ServedApp) -> None:
    """Lesson 21: a replica was ready before its caches were synced."""
    anonymous.readiness.checks |= {"nodes synced": lambda: True, "pods synced": lambda: False}
    reply = await anonymous.call("GET", READINESS_PATH)
    assert (reply.status, reply.content_type) == (503, "text/plain")
    assert reply.text == "[+] nodes synced\n[-] pods synced\nnot ready\n"


async def test_readyz_is_ok_once_every_check_passes(anonymous: ServedApp) -> None:
    anonymous.readiness.checks["pods synced"] = lambda: True
    reply = await anonymous.call("GET", READINESS_PATH)
    assert (reply.status, reply.text) == (200, "[+] pods synced\nready\n")


async def test_replica_that_stands_by_is_synced_and_not_ready(anonymous: ServedApp) -> None:
    anonymous.readiness.checks["pods synced"] = lambda: True
    anonymous.readiness.is_leading = lambda: False
    assert (await anonymous.call("GET", READINESS_PATH)).status == 503
    assert (await anonymous.call("GET", SYNCED_PATH)).status == 200


@pytest.mark.parametrize("fault", ["cache", "stopping"])
async def test_replica_that_could_not_take_over_is_not_synced(
    anonymous: ServedApp, fault: str
) -> None:
    anonymous.readiness.checks["pods synced"] = lambda: fault != "cache"
    anonymous.readiness.is_stopping = fault == "stopping"
    assert (await anonymous.call("GET", SYNCED_PATH)).status == 503


async def test_readyz_fails_while_the_process_stops(anonymous: ServedApp) -> None:
    anonymous.readiness.is_stopping = True
    reply = await anonymous.call("GET", READINESS_PATH)
    assert (reply.status, reply.text) == (503, "[-] stopping\nnot ready\n")


async def test_metrics_can_be_scraped(scheduler: ServedApp) -> None:
    await scheduler.post(FILTER_PATH, extender_args(a_wire_pod(whole=1), "n1"))
    reply = await scheduler.call("GET", METRICS_PATH)
    assert (reply.status, reply.content_type) == (200, "text/plain")
    families = {family.name: family for family in text_string_to_metric_families(reply.text)}
    counts = {
        (sample.labels["verb"], sample.labels["outcome"]): sample.value
        for sample in families["gpu_extender_duration_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert counts["filter", "fits"] >= 1


async def test_metrics_are_compressed_where_the_scraper_takes_that(scheduler: ServedApp) -> None:
    def scrape(accept_encoding: str) -> tuple[str | None, bytes]:
        request = urllib.request.Request(
            scheduler.url + METRICS_PATH, headers={"Accept-Encoding": accept_encoding}
        )
        with urllib.request.urlopen(request, context=scheduler.tls()) as reply:
            assert isinstance(reply, http.client.HTTPResponse)
            assert reply.headers["Vary"] == "Accept-Encoding"
            return reply.headers["Content-Encoding"], reply.read()

    encoding, plain = await asyncio.to_thread(scrape, "identity")
    assert encoding is None
    encoding, packed = await asyncio.to_thread(scrape, "gzip")
    assert encoding == "gzip"
    assert len(packed) < len(plain) / 5
    exported = text_string_to_metric_families(gzip.decompress(packed).decode())
    assert {family.name for family in exported} == {
        family.name for family in text_string_to_metric_families(plain.decode())
    }


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        *(("gzip", True), ("deflate, gzip;q=0.5", True), ("GZIP", True), ("*", True)),
        *(("", False), ("identity", False), ("gzip;q=0", False), ("gzip; q=0.0, br", False)),
    ],
)
def test_what_a_scraper_accepts(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected


@pytest.mark.parametrize("path", [LIVENESS_PATH, READINESS_PATH, SYNCED_PATH, METRICS_PATH])
async def test_nothing_can_be_posted_there(anonymous: ServedApp, path: str) -> None:
    assert (await anonymous.post(path, b"{}")).status == 405


@pytest.mark.parametrize("count", [3, 3_000], ids=["short page", "long page"])
async def test_a_page_of_many_devices_says_what_the_library_would_write(count: int) -> None:
    registry = CollectorRegistry()
    declarations = MetricDeclarations(registry)
    declarations.counter("gpu_before", "Another.", ["pool"]).labels("a").inc(2)
    devices = declarations.label_sets("gpu_devices", "What is known.", ["uuid", "product"])
    for number in range(count):
        devices.put(f"{number}", (f"GPU-{number}", 'a "product"'))
    declarations.gauge("gpu_after", "Another.").set(1)
    reply = await Exposition(registry).render(None, {})
    assert families_in(reply.body) == families_in(generate_latest(registry))


class CountedRegistry(CollectorRegistry):
    """Counts its pages, how many were written at a time, and by which threads."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = self.under_way = self.most = 0
        self.threads: set[int] = set()

    def collect(self) -> Iterator[Metric]:
        self.pages += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.threads.add(threading.get_ident())
        yield from super().collect()
        self.under_way -= 1


async def test_all_who_ask_within_a_second_get_the_same_page() -> None:
    registry = CountedRegistry()
    page = Exposition(registry)
    replies = await asyncio.gather(*(page.render(None, {}) for _ in range(32)))
    packed = {b"accept-encoding": b"gzip"}
    replies += await asyncio.gather(*(page.render(None, packed) for _ in range(32)))
    assert registry.pages == 2
    assert registry.most == 1
    assert len({reply.body for reply in replies}) == 2
    assert threading.get_ident() not in registry.threads, "the first page is written in the loop"


@pytest.mark.looptime
async def test_page_is_written_again_after_a_second() -> None:
    registry = CountedRegistry()
    counter = MetricDeclarations(registry).counter("gpu_asked", "Asked.", [])
    page = Exposition(registry)
    for count in range(2):
        assert f"gpu_asked_total {count}.0".encode() in (await page.render(None, {})).body
        counter.inc()
        await asyncio.sleep(FRESH_S + 0.1)
    assert registry.pages == 2
    assert page._replies == {}, "a page is kept in memory for no longer"


async def test_page_that_cannot_be_written_fails_its_caller_alone() -> None:
    registry = CollectorRegistry()
    page = Exposition(registry)

    class Failing(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ZeroDivisionError

        def describe(self) -> Iterator[Metric]:
            return iter(())

    failing = Failing()
    registry.register(failing)
    with pytest.raises(ZeroDivisionError):
        await page.render(None, {})
    registry.unregister(failing)
    assert (await page.render(None, {})).status == 200


def families_in(page: bytes) -> list[tuple[str, str, str, list[Sample]]]:
    return [
        (item.name, item.type, item.documentation, item.samples)
        for item in text_string_to_metric_families(page.decode())
    ]
