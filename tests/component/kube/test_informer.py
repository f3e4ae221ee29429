"""The informer and its sink, with a healthy API server."""

import asyncio

import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.informer import Informer, Selection
from kube.resources import PODS
from telemetry.metrics import REGISTRY
from tests.component.kube.mirror import Mirror, a_bookmark, a_pod, an_informer, metric, running
from tests.support.canned_api import CannedApi, Hang, Stream, a_list, event
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime


class Broken(Mirror):
    def upsert(self, item: Pod) -> None:
        raise LookupError(f"no place for {item.metadata.name}")


async def test_the_sink_follows_list_and_events(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(
        a_list(a_pod("p", 1), a_pod("q", 2)),
        Stream(
            [
                event("ADDED", a_pod("r", 11)),
                event("MODIFIED", a_pod("p", 12, "Running")),
                event("DELETED", a_pod("q", 13)),
            ]
        ),
    )
    async with running(an_informer(client, clock, sink)):
        await asyncio.sleep(1)
        assert sink.pods == {"p": "Running", "r": "Pending"}
        assert sink.calls == ["replace_all", "upsert", "upsert", "discard"]


async def test_the_watch_starts_where_the_list_ended(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(a_list(version="77"), Hang())
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(2)
    assert "resourceVersion" not in api.seen[0].query
    assert api.seen[1].query["resourceVersion"] == "77"
    assert api.seen[1].query["allowWatchBookmarks"] == "true"
    assert 300 <= int(api.seen[1].query["timeoutSeconds"]) <= 600


async def test_the_selection_holds_for_list_and_watch(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(a_list(), Hang())
    selection = Selection(namespace="a", label_selector="l in (x)", field_selector="f!=y")
    async with running(an_informer(client, clock, Mirror(), selection)):
        await api.until_seen(2)
    for seen in api.seen:
        assert seen.path == "/api/v1/namespaces/a/pods"
        assert seen.query["labelSelector"] == "l in (x)"
        assert seen.query["fieldSelector"] == "f!=y"


async def test_it_is_synced_after_the_first_list_and_not_before(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(Hang(), a_list(), Hang())
    informer = an_informer(client, clock, Mirror())
    async with running(informer):
        await api.until_seen(1)
        assert not informer.synced.is_set()
        assert metric("gpu_informer_synced") == 0
        async with asyncio.timeout(100):
            await informer.synced.wait()
        assert metric("gpu_informer_synced") == 1
    assert metric("gpu_informer_synced") == 0


async def test_a_watch_that_ends_properly_goes_on_from_the_last_version_without_a_list(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(
        a_list(version="10"),
        Stream([event("ADDED", a_pod("p", 11)), 300.0 - 200, a_bookmark(50)], then="end"),
        Hang(),
    )
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(3)
        assert clock.monotonic() == pytest.approx(100, abs=1)
    assert [seen.query.get("resourceVersion") for seen in api.seen] == [None, "10", "50"]


async def test_replayed_and_duplicated_events_change_nothing(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    added, gone = event("ADDED", a_pod("p", 11)), event("DELETED", a_pod("q", 12))
    api.will_answer(a_list(a_pod("q", 1)), Stream([added, added, gone, gone, added]))
    async with running(an_informer(client, clock, sink)):
        await asyncio.sleep(1)
        assert sink.pods == {"p": "Pending"}


async def test_an_event_of_several_mebibytes_in_many_pieces_arrives(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    pod = a_pod("p", 11)
    pod["unread"] = "x" * (5 * 1024 * 1024)
    line = event("ADDED", pod)
    pieces = [line[start : start + 100_000] for start in range(0, len(line), 100_000)]
    sink = Mirror()
    api.will_answer(a_list(), Stream(pieces))
    async with running(an_informer(client, clock, sink)):
        await asyncio.sleep(1)
        assert sink.pods == {"p": "Pending"}


async def test_what_the_sink_raises_ends_the_informer(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(a_list(), Stream([event("ADDED", a_pod("p", 11))]))
    with pytest.raises(LookupError, match="no place for p"):
        await an_informer(client, clock, Broken()).run()


async def test_the_lag_is_the_time_since_the_last_event_or_bookmark(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(a_list(), Stream([60.0, a_bookmark(11)]))
    informer = an_informer(client, clock, Mirror())
    async with running(informer):
        await asyncio.sleep(50)
        assert metric("gpu_informer_lag_seconds") == pytest.approx(50, abs=1)
        await asyncio.sleep(30)
        assert metric("gpu_informer_lag_seconds") == pytest.approx(20, abs=1)
    labels = {"resource": "pods"}
    assert REGISTRY.get_sample_value("gpu_informer_lag_seconds", labels) is None


async def test_events_are_counted_by_type(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    before = metric("gpu_informer_events_total", type="BOOKMARK")
    api.will_answer(a_list(), Stream([a_bookmark(11), a_bookmark(12)]))
    async with running(an_informer(client, clock, Mirror())):
        await asyncio.sleep(1)
    assert metric("gpu_informer_events_total", type="BOOKMARK") == before + 2


async def test_a_second_informer_of_a_resource_is_told_apart_by_its_name(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    """Its lag must not hide that of the first, nor its end take the first one's series away."""
    api.will_answer(a_list(), Hang(), a_list(), Hang())
    named = Informer(client, PODS, Pod, sink=Mirror(), clock=clock, name="operand pods")
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(2)
        async with running(named):
            await api.until_seen(4)
            assert metric("gpu_informer_synced", resource="operand pods") == 1
        assert metric("gpu_informer_synced", resource="operand pods") == 0
        assert metric("gpu_informer_synced") == 1
        await asyncio.sleep(10)
        assert metric("gpu_informer_lag_seconds") == pytest.approx(10, abs=1)
