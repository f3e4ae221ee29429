"""The API server in trouble: an informer recovers from all of it, and not in a hot loop."""

import asyncio

import pytest
import structlog

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.informer import Informer
from kube.resources import PODS
from tests.component.kube.mirror import (
    Mirror,
    a_bookmark,
    a_pod,
    an_informer,
    metric,
    running,
)
from tests.support.canned_api import (
    Answer,
    CannedApi,
    Cut,
    Hang,
    Json,
    NotHttp,
    Reset,
    Seen,
    Stream,
    Text,
    a_list,
    event,
    status,
)
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

GONE = event("ERROR", status(410, "Expired", "too old resource version: 10 (99)"))


def asked(api: CannedApi) -> list[str]:
    """Each request as `list` or `watch <version>`."""
    return [
        f"watch {seen.query['resourceVersion']}" if "watch" in seen.query else "list"
        for seen in api.seen
    ]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(Stream([GONE]), id="an ERROR event"),
        pytest.param(Json(status(410, "Gone"), 410), id="the status 410"),
    ],
)
async def test_a_version_that_is_too_old_twice_is_listed_again_twice(
    api: CannedApi, client: KubeClient, clock: LoopClock, gone: Answer
) -> None:
    before = metric("gpu_informer_relists_total", cause="gone")
    sink = Mirror()
    api.will_answer(
        a_list(a_pod("p", 1), version="10"),
        gone,
        a_list(a_pod("q", 1), version="20"),
        gone,
        a_list(a_pod("r", 1), version="30"),
        Stream([event("ADDED", a_pod("s", 31))]),
    )
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(6)
        await asyncio.sleep(1)
    assert asked(api) == ["list", "watch 10", "list", "watch 20", "list", "watch 30"]
    assert set(sink.pods) == {"r", "s"}
    assert metric("gpu_informer_relists_total", cause="gone") == before + 2


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Stream([b"<html>502</html>\n"]), id="a page for events"),
        pytest.param(Stream([b'{"type":"ADDED"}\n']), id="an event without object"),
        pytest.param(Stream([event("NEWS", a_pod("x", 1))]), id="an event of unknown type"),
        pytest.param(Stream([b'{"type":"ADD'], then="reset"), id="a stream cut inside an event"),
        pytest.param(Stream([b'{"type":"ADD'], then="end"), id="a stream ended inside an event"),
        pytest.param(Stream([], then="reset"), id="a stream cut at once"),
        pytest.param(Stream([], then="end"), id="a stream ended at once"),
        pytest.param(Stream([event("ERROR", status(500, "InternalError"))]), id="an ERROR event"),
        pytest.param(Stream([event("ERROR", "garbage")]), id="an ERROR event without Status"),
        pytest.param(Json(status(401, "Unauthorized"), 401), id="401"),
        pytest.param(Json(status(403, "Forbidden"), 403), id="403"),
        pytest.param(Json(status(429, "TooManyRequests"), 429), id="429"),
        pytest.param(Text(status=502), id="502 with a page"),
        pytest.param(Reset(), id="reset"),
        pytest.param(Cut(), id="a promised body cut"),
        pytest.param(NotHttp(), id="not HTTP"),
        pytest.param(Hang(), id="no answer"),
    ],
)
async def test_after_trouble_the_watch_goes_on_where_it_was(
    api: CannedApi, client: KubeClient, clock: LoopClock, trouble: Answer
) -> None:
    sink = Mirror()
    # Twice, because the first reset of a kept-alive connection is answered by asking again.
    api.will_answer(a_list(version="10"), trouble, trouble)
    api.always = Stream([event("ADDED", a_pod("p", 11))])
    with structlog.testing.capture_logs() as logs:
        async with running(an_informer(client, clock, sink)):
            await asyncio.sleep(30)
    assert asked(api)[-1] == "watch 10"
    assert asked(api).count("list") == 1
    assert sink.pods == {"p": "Pending"}
    warning = next(line for line in logs if line["log_level"] == "warning")
    assert warning["resource"] == "pods"
    assert warning["cause"]


async def test_a_failing_list_is_tried_until_it_succeeds(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(Text(), Reset(), Json({"items": 1}), Json(status(403, "Forbidden"), 403))
    api.will_answer(a_list(a_pod("p", 1)), Hang())
    sink = Mirror()
    informer = an_informer(client, clock, sink)
    async with running(informer):
        async with asyncio.timeout(200):
            await informer.synced.wait()
    assert sink.pods == {"p": "Pending"}
    assert "list" in asked(api)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Stream([], then="end"), id="closes every watch at once"),
        pytest.param(Stream([a_bookmark(11)], then="end"), id="closes after a bookmark"),
        pytest.param(Stream([GONE]), id="says 410 to every watch"),
        pytest.param(Text(), id="is behind a broken proxy"),
    ],
)
async def test_a_server_that_always_fails_is_asked_ever_more_rarely(
    api: CannedApi, client: KubeClient, clock: LoopClock, answer: Answer
) -> None:
    api.always = lambda seen: answer if "watch" in seen.query else a_list()
    async with running(an_informer(client, clock, Mirror())):
        await asyncio.sleep(600)
    watches = sum("watch" in seen.query for seen in api.seen)
    # Full jitter below 30 s: 15 s on average, 40 in ten minutes, and a handful while it grows.
    assert 20 <= watches <= 90


async def test_a_half_open_connection_is_given_up_and_replaced(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(
        a_list(version="10"),
        Stream([event("ADDED", a_pod("p", 11))], then="hang"),
        Stream([event("ADDED", a_pod("q", 12))], then="hang"),
    )
    sink = Mirror()
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(3)
        assert clock.monotonic() == pytest.approx(150, abs=3)
        await asyncio.sleep(1)
    assert asked(api) == ["list", "watch 10", "watch 11"]
    assert set(sink.pods) == {"p", "q"}


async def test_bookmarks_keep_a_quiet_watch_alive(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    pieces: list[bytes | float] = []
    for minute in range(10):
        pieces += [60.0, a_bookmark(20 + minute)]
    api.will_answer(a_list(), Stream(pieces))
    async with running(an_informer(client, clock, Mirror())):
        await asyncio.sleep(600)
        assert len(api.seen) == 2


async def test_a_server_that_forgot_our_version_is_found_out(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    """An etcd restored from a backup knows only older versions; watches from ours say nothing."""
    before = metric("gpu_informer_relists_total", cause="failures")
    versions = iter(["900", "100"])

    def answer(seen: Seen) -> Answer:
        if "watch" not in seen.query:
            return a_list(version=next(versions))
        if seen.query["resourceVersion"] == "900":
            return Stream([], then="hang")
        return Stream([event("ADDED", a_pod("p", 101))])

    api.always = answer
    sink = Mirror()
    async with running(an_informer(client, clock, sink)):
        await asyncio.sleep(6 * 150 + 120)
        assert sink.pods == {"p": "Pending"}
    assert metric("gpu_informer_relists_total", cause="failures") == before + 1


async def test_informer_that_is_told_to_lists_at_once_though_its_watch_is_silent(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    before = metric("gpu_informer_relists_total", cause="restored")
    sink = Mirror()
    api.will_answer(
        a_list(a_pod("p", 90), version="90"),
        Hang(),
        a_list(a_pod("q", 11), version="11"),
        Hang(),
    )
    informer = an_informer(client, clock, sink)
    async with running(informer):
        await api.until_seen(2)
        assert informer.listed.is_set()
        informer.list_at_once()
        assert not informer.listed.is_set()
        async with asyncio.timeout(0.1):
            await informer.listed.wait()
        await api.until_seen(4)
    assert asked(api) == ["list", "watch 90", "list", "watch 11"]
    assert set(sink.pods) == {"q"}
    assert metric("gpu_informer_relists_total", cause="restored") == before + 1


async def test_who_waits_for_a_list_is_woken_where_another_one_is_asked_for(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(a_list(version="90"), Hang(), Hang(), a_list(version="11"), Hang())
    informer = an_informer(client, clock, Mirror())
    async with running(informer), asyncio.TaskGroup() as group:
        await api.until_seen(2)
        informer.list_at_once()
        await api.until_seen(3)
        waiting = group.create_task(informer.listed.wait())
        await asyncio.sleep(0.01)
        informer.list_at_once()
        async with asyncio.timeout(0.1):
            await waiting
            await informer.listed.wait()


async def test_informer_that_is_told_to_list_waits_for_no_backoff(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    failures = [Reset() for _ in range(7)]
    api.will_answer(a_list(version="90"), *failures, a_list(version="11"), Hang())
    informer = an_informer(client, clock, Mirror())
    async with running(informer):
        await api.until_seen(8)
        informer.list_at_once()
        async with asyncio.timeout(0.1):
            await informer.listed.wait()
        assert informer._backoff.failures == 0


@pytest.mark.parametrize("later_s", [-1e-12, 1e-12])
async def test_informer_that_is_told_to_list_as_its_backoff_ends_forgets_the_version(
    api: CannedApi, client: KubeClient, clock: LoopClock, later_s: float
) -> None:
    """What ends by itself in that turn of the loop is not interrupted any more."""
    initializing = Json(status(429, "TooManyRequests"), 429, {"Retry-After": "1"})
    api.will_answer(a_list(version="90"), initializing, a_list(version="11"), Hang())
    informer = an_informer(client, clock, Mirror())
    async with running(informer):
        await api.until_seen(2)
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + 1 + later_s, informer.list_at_once)
        await api.until_seen(4)
        assert informer.listed.is_set()
    assert asked(api) == ["list", "watch 90", "list", "watch 11"]


async def test_a_change_that_cannot_be_decoded_keeps_what_was_known_and_moves_on(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    before = metric("gpu_informer_decode_errors_total")
    bad = {**a_pod("p", 12), "spec": {"priority": "high"}}
    sink = Mirror()
    api.will_answer(
        a_list(a_pod("p", 1), version="10"),
        Stream([event("MODIFIED", bad), 20.0], then="end"),
        Hang(),
    )
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(3)
    assert asked(api) == ["list", "watch 10", "watch 12"]
    assert sink.pods == {"p": "Pending"}
    assert metric("gpu_informer_decode_errors_total") == before + 1


async def test_a_deletion_that_cannot_be_decoded_is_learned_from_a_list(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    bad = {**a_pod("p", 12), "spec": {"priority": "high"}}
    sink = Mirror()
    api.will_answer(
        a_list(a_pod("p", 1), a_pod("q", 2), version="10"),
        Stream([event("DELETED", bad)]),
        a_list(a_pod("q", 2), version="12"),
        Hang(),
    )
    async with running(an_informer(client, clock, sink)):
        await api.until_seen(4)
    assert asked(api) == ["list", "watch 10", "list", "watch 12"]
    assert set(sink.pods) == {"q"}


async def test_a_bookmark_that_cannot_be_read_keeps_the_version(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(
        a_list(version="10"),
        Stream([event("BOOKMARK", "garbage"), event("BOOKMARK", {}), 20.0], then="end"),
        Hang(),
    )
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(3)
    assert asked(api) == ["list", "watch 10", "watch 10"]


async def test_a_server_that_comes_back_without_our_version_is_listed_soon(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    informer = an_informer(client, clock, Mirror())
    api.will_answer(a_list(version="10"), *[NotHttp()] * 5, Json(status(410, "Expired"), 410))
    api.will_answer(a_list(version="5"), Hang())
    async with running(informer):
        await api.until_seen(7)
        back = clock.monotonic()
        await api.until_seen(8)
        assert clock.monotonic() - back <= 1
    assert asked(api)[-1] == "list"


async def test_a_server_that_comes_back_without_its_roles_is_listed_soon(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    informer = an_informer(client, clock, Mirror())
    api.will_answer(a_list(version="10"), *[NotHttp()] * 5)
    api.will_answer(Json(status(403, "Forbidden"), 403), Json(status(410, "Expired"), 410))
    api.will_answer(a_list(version="20"), Hang())
    async with running(informer):
        await api.until_seen(7)
        back = clock.monotonic()
        await api.until_seen(9)
        assert clock.monotonic() - back <= 3
    assert asked(api)[-1] == "list"


async def test_the_time_that_the_server_asks_for_is_waited(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(Json(status(429, "TooManyRequests"), 429, {"Retry-After": "20"}))
    api.will_answer(a_list(), Hang())
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(2)
        assert clock.monotonic() == pytest.approx(20, abs=0.5)


async def test_after_a_steady_watch_the_first_failure_is_retried_quickly(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.will_answer(*[Text()] * 5, a_list(), Stream([100.0], then="reset"), Hang())
    async with running(an_informer(client, clock, Mirror())):
        await api.until_seen(7)
        opened = clock.monotonic()
        await api.until_seen(8)
        assert clock.monotonic() - opened <= 101


async def test_cancelling_ends_it_wherever_it_stands(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    for answers in ([Hang()], [a_list(), Hang()], [a_list(), Stream([])], [Text()]):
        api.will_answer(*answers)
        async with running(an_informer(client, clock, Mirror())):
            await asyncio.sleep(0.5)


def named_well(pod: Pod) -> Pod:
    """A projection that raises an unexpected error for one object."""
    if pod.metadata.name == "odd":
        raise RecursionError(pod.metadata.name)
    return pod


async def test_an_object_of_which_the_projection_raises_is_skipped_like_one_that_cannot_be_decoded(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    errors = metric("gpu_informer_decode_errors_total")
    changes = [
        event("MODIFIED", a_pod("odd", 11, "Running")),
        event("ADDED", a_pod("later", 12)),
        event("DELETED", a_pod("odd", 13)),
    ]
    api.will_answer(a_list(a_pod("p", 1), a_pod("odd", 2)), Stream(changes), a_list(), Hang())
    informer = Informer(client, PODS, Pod, sink=sink, clock=clock, project=named_well)
    async with running(informer):
        await api.until_seen(4)
    # As for any deletion that is not seen, a list is taken again.
    assert sink.calls == ["replace_all", "upsert", "replace_all"]
    assert metric("gpu_informer_decode_errors_total") - errors == 3
