"""Events on their way to the API server."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from kube.client import KubeClient
from kube.event_recorder import Event, EventLimits, EventRecorder, ObjectReference, micro_time
from telemetry.metrics import REGISTRY
from tests.support.canned_api import Answer, CannedApi, Hang, Json, Reset, Seen, Text, status
from tests.support.loop_clock import EPOCH, LoopClock

pytestmark = pytest.mark.looptime

POD = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="p", uid="u1")
POOL = ObjectReference(api_version="gpu.deckhouse.io/v1alpha1", kind="GPUPool", name="w", uid="u2")
PATH = "/apis/events.k8s.io/v1/namespaces"

Recorders = Callable[..., EventRecorder]


def an_event(note: str = "GPU 3", **changes: Any) -> Event:
    fields: dict[str, Any] = {
        "regarding": POD,
        "type": "Normal",
        "reason": "TestReason",
        "action": "Scheduling",
        "note": note,
    }
    return Event(**{**fields, **changes})


def counted(outcome: str) -> float:
    labels = {"reason": "TestReason", "outcome": outcome}
    return REGISTRY.get_sample_value("gpu_events_emitted_total", labels) or 0.0


@pytest.fixture
async def recorders(client: KubeClient, clock: LoopClock) -> Recorders:
    def make(**limits: Any) -> EventRecorder:
        return EventRecorder(
            client,
            clock,
            reporting_controller="gpu.deckhouse.io/engine",
            reporting_instance="engine-0",
            limits=EventLimits(**limits),
            rng=random.Random(1),
        )

    return make


@asynccontextmanager
async def running(recorder: EventRecorder) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(recorder.run())
        yield
        await recorder.flush(600)
        task.cancel()


async def test_an_event_is_written_as_the_api_server_wants_it(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    before = counted("written")
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event())
    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", f"{PATH}/a/events")
    name = seen.json["metadata"].pop("name")
    assert re.fullmatch(r"p\.[0-9a-f]{16}", name)
    assert re.fullmatch(r"2026-01-01T00:00:\d\d\.\d{6}Z", seen.json["eventTime"])
    assert {**seen.json, "metadata": {"name": name}, "eventTime": ""} == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "",
        "type": "Normal",
        "reason": "TestReason",
        "action": "Scheduling",
        "note": "GPU 3",
        "reportingController": "gpu.deckhouse.io/engine",
        "reportingInstance": "engine-0",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "a",
            "name": "p",
            "uid": "u1",
        },
    }
    assert counted("written") == before + 1


def test_a_micro_time_has_six_digits_even_at_a_full_second() -> None:
    assert micro_time(EPOCH) == "2026-01-01T00:00:00.000000Z"


async def test_an_event_about_a_cluster_scoped_object_lives_in_default(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event(regarding=POOL))
    assert api.seen[0].path == f"{PATH}/default/events"
    assert "namespace" not in api.seen[0].json["regarding"]


@pytest.mark.parametrize(
    ("note", "expected_bytes"),
    [("x" * 1024, 1024), ("x" * 5000, 1024), ("ю" * 5000, 1023), ("🎉" * 300, 1023)],
)
async def test_a_long_note_is_cut_to_what_the_api_server_takes(
    api: CannedApi, recorders: Recorders, note: str, expected_bytes: int
) -> None:
    api.always = Json({})
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event(note, reason="R" * 500, action="A" * 500))
    assert len(api.seen[0].json["note"].encode()) == expected_bytes
    assert len(api.seen[0].json["reason"]) == len(api.seen[0].json["action"]) == 128


async def test_an_object_name_of_full_length_still_makes_a_name(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    recorder = recorders()
    long = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="p-" * 126 + "p")
    async with running(recorder):
        recorder.emit(an_event(regarding=long))
    name = api.seen[0].json["metadata"]["name"]
    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\.[0-9a-f]{16}", name)


async def test_the_same_event_again_is_a_count_on_the_first(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    merged = counted("merged")
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event())
        await recorder.flush(10)
        for _ in range(4):
            recorder.emit(an_event())
        await recorder.flush(10)
    created, patched = api.seen
    assert patched.method == "PATCH"
    assert patched.path == f"{PATH}/a/events/{created.json['metadata']['name']}"
    assert patched.headers["Content-Type"] == "application/merge-patch+json"
    assert patched.json["series"]["count"] == 5
    assert set(patched.json) == {"series"}
    assert re.fullmatch(r"2026-.*\.\d{6}Z", patched.json["series"]["lastObservedTime"])
    assert counted("merged") == merged + 4


@pytest.mark.parametrize(
    "change",
    [
        {"note": "GPU 4"},
        {"reason": "Other"},
        {"type": "Warning"},
        {"regarding": ObjectReference(api_version="v1", kind="Pod", namespace="a", name="p")},
    ],
    ids=["note", "reason", "type", "object"],
)
async def test_another_event_is_written_for_itself(
    api: CannedApi, recorders: Recorders, change: dict[str, Any]
) -> None:
    api.always = Json({})
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event())
        recorder.emit(an_event(**change))
    assert [seen.method for seen in api.seen] == ["POST", "POST"]


async def test_after_the_window_the_same_event_is_a_new_one(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    recorder = recorders(window_s=60)
    async with running(recorder):
        recorder.emit(an_event())
        await asyncio.sleep(61)
        recorder.emit(an_event())
    assert [seen.method for seen in api.seen] == ["POST", "POST"]


async def test_an_event_that_expired_on_the_server_is_written_again(
    api: CannedApi, recorders: Recorders
) -> None:
    expired = Json(status(404, "NotFound", details={"name": "e"}), 404)
    api.will_answer(Json({}), expired, Json({}))
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event())
        await recorder.flush(10)
        recorder.emit(an_event())
    assert [seen.method for seen in api.seen] == ["POST", "PATCH", "POST"]
    assert api.seen[2].json["series"]["count"] == 2
    assert api.seen[2].json["metadata"]["name"] != api.seen[0].json["metadata"]["name"]


async def test_an_object_that_is_talked_about_too_much_is_talked_about_less(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    dropped = counted("dropped")
    recorder = recorders(burst=5, refill_s=100)
    async with running(recorder):
        for number in range(20):
            recorder.emit(an_event(f"note {number}"))
        recorder.emit(an_event(regarding=POOL))
        await recorder.flush(10)
        assert len(api.seen) == 6
        assert counted("dropped") == dropped + 15
        await asyncio.sleep(100)
        recorder.emit(an_event("later"))
    assert len(api.seen) == 7


async def test_counts_that_were_held_back_come_with_the_next_write(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    recorder = recorders(burst=1, refill_s=100)
    async with running(recorder):
        for _ in range(10):
            recorder.emit(an_event())
            await recorder.flush(10)
        await asyncio.sleep(100)
        recorder.emit(an_event())
    assert api.seen[-1].json["series"]["count"] == 11
    assert len(api.seen) == 2


async def test_beyond_the_queue_events_are_dropped_and_counted(recorders: Recorders) -> None:
    dropped = counted("dropped")
    recorder = recorders(queue_length=10)
    for number in range(25):
        recorder.emit(
            an_event(regarding=ObjectReference(api_version="v1", kind="Pod", name=f"p{number}"))
        )
    assert counted("dropped") == dropped + 15


async def test_what_is_remembered_is_bounded(recorders: Recorders) -> None:
    recorder = recorders(remembered=50, queue_length=10_000)
    for number in range(500):
        recorder.emit(
            an_event(regarding=ObjectReference(api_version="v1", kind="Pod", name=f"p{number}"))
        )
    assert len(recorder._series) == len(recorder._budgets) == 50


@pytest.mark.parametrize("trouble", [Text(), Reset(), Hang(), Json({}, 429)])
async def test_a_passing_trouble_costs_no_event_and_makes_no_second(
    api: CannedApi, recorders: Recorders, trouble: Answer
) -> None:
    written = counted("written")
    api.will_answer(trouble, Json(status(409, "AlreadyExists"), 409))
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event())
    first, second = (seen.json["metadata"]["name"] for seen in api.seen)
    assert first == second
    assert counted("written") == written + 1


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        pytest.param(Json(status(403, "Forbidden", "namespace is terminating"), 403), 1, id="403"),
        pytest.param(Json(status(422, "Invalid"), 422), 1, id="422"),
        pytest.param(Text(), 3, id="502 for ever"),
    ],
)
async def test_what_cannot_be_written_is_counted_logged_and_does_not_stop_the_next(
    api: CannedApi, recorders: Recorders, answer: Answer, attempts: int
) -> None:
    def answer_by_note(seen: Seen) -> Answer:
        return answer if seen.json.get("note") == "bad" else Json({})

    api.always = answer_by_note
    failed, written = counted("failed"), counted("written")
    recorder = recorders()
    with structlog.testing.capture_logs() as logs:
        async with running(recorder):
            recorder.emit(an_event("bad"))
            recorder.emit(an_event("good"))
            await recorder.flush(600)
            recorder.emit(an_event("good"))
    assert len(api.seen) == attempts + 2
    assert (counted("failed"), counted("written")) == (failed + 1, written + 1)
    about = {"reason": "TestReason", "kind": "Pod", "object": "a/p"}
    lost, made, again = (line for line in logs if line.items() >= about.items())
    assert (lost["event"], lost["log_level"]) == ("event not written", "warning")
    assert made == {"event": "event", "note": "good", "type": "Normal", "log_level": "info"} | about
    assert again == {"event": "event repeated", "count": 2, "log_level": "info"} | about


async def test_a_note_that_cannot_be_encoded_does_not_stop_the_next(
    api: CannedApi, recorders: Recorders
) -> None:
    api.always = Json({})
    recorder = recorders()
    async with running(recorder):
        recorder.emit(an_event("\ud800"))
        recorder.emit(an_event("good"))
    assert [json.loads(seen.body)["note"] for seen in api.seen] == ["good"]


async def test_flushing_gives_up_at_its_time_out(api: CannedApi, recorders: Recorders) -> None:
    api.always = Hang()
    recorder = recorders()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(recorder.run())
        recorder.emit(an_event())
        before = asyncio.get_running_loop().time()
        await recorder.flush(3)
        assert asyncio.get_running_loop().time() - before == pytest.approx(3, abs=0.1)
        task.cancel()
