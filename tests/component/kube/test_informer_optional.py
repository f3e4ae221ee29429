"""A resource that may not be served: its absence is an empty list, and its appearance is seen."""

import asyncio
import random

import pytest

from api.foreign.core import Pod
from kube.client import KubeClient
from kube.informer import Informer
from kube.resources import PODS
from tests.component.kube.mirror import Mirror, a_pod, an_informer, metric, running
from tests.support.canned_api import Answer, CannedApi, Hang, Json, Seen, Stream, a_list, event
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

NOT_SERVED = Json({"kind": "Status", "code": 404, "reason": "NotFound", "message": ""}, status=404)

GONE = event("ERROR", {"kind": "Status", "code": 404, "reason": "NotFound", "message": ""})
TOO_OLD = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": ""})
SERVED = Json({"kind": "APIResourceList", "resources": [{"name": "pods"}]})
LEFT_OUT = Json({"kind": "APIResourceList", "resources": [{"name": "nodes"}]})
"""What discovery says of the group version."""


def not_served(request: Seen) -> Json:
    return LEFT_OUT if request.path == "/api/v1" else NOT_SERVED


def an_optional_one(client: KubeClient, clock: LoopClock, sink: Mirror) -> Informer[Pod]:
    return Informer(
        client, PODS, Pod, sink=sink, clock=clock, is_optional=True, rng=random.Random(1)
    )


async def test_what_is_not_served_is_synced_and_empty(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(NOT_SERVED, LEFT_OUT)
    informer = an_optional_one(client, clock, sink)
    async with running(informer):
        async with asyncio.timeout(1):
            await informer.synced.wait()
        assert sink.calls == ["replace_all"]
        assert metric("gpu_informer_synced") == 1


async def test_what_is_served_later_is_followed_within_a_minute(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(*[NOT_SERVED, LEFT_OUT] * 2, a_list(a_pod("p", 1)), Hang())
    async with running(an_optional_one(client, clock, sink)):
        await asyncio.sleep(61)
        assert sink.pods == {}
        await asyncio.sleep(60)
        assert sink.pods == {"p": "Pending"}


async def test_what_is_not_served_any_more_is_gone_once_discovery_has_said_so_for_a_minute(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(a_list(a_pod("p", 1)), Stream([GONE]))
    api.always = not_served
    async with running(an_optional_one(client, clock, sink)):
        await asyncio.sleep(59)
        assert sink.pods == {"p": "Pending"}
        await asyncio.sleep(90)
        assert sink.pods == {}
        assert metric("gpu_informer_synced") == 1


@pytest.mark.parametrize(
    "between",
    [
        [Stream([TOO_OLD]), a_list(a_pod("p", 2)), Stream([120.0], "end")],
        [Stream([event("MODIFIED", a_pod("p", 2)), 120.0], "end")],
        [NOT_SERVED, SERVED, Stream([120.0], "end")],
    ],
    ids=["listed", "watched", "discovered"],
)
async def test_absence_is_counted_again_once_it_was_served_in_between(
    api: CannedApi, client: KubeClient, clock: LoopClock, between: list[Answer]
) -> None:
    sink = Mirror()
    api.will_answer(a_list(a_pod("p", 1)), NOT_SERVED, LEFT_OUT)
    api.will_answer(*between, NOT_SERVED, LEFT_OUT, Hang())
    async with running(an_optional_one(client, clock, sink)):
        await asyncio.sleep(130)
        assert sink.pods == {"p": "Pending"}
        assert len(api.seen) >= 5 + len(between)


async def test_what_was_deleted_with_its_definition_is_not_waited_for(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(a_list(a_pod("p", 1)), Stream([event("DELETED", a_pod("p", 2)), GONE]))
    api.always = not_served
    async with running(an_optional_one(client, clock, sink)):
        await asyncio.sleep(10)
        assert sink.pods == {}
        assert sink.calls[-1] == "replace_all"


async def test_a_404_of_a_kind_that_discovery_names_is_a_failure(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(NOT_SERVED, SERVED, a_list(a_pod("p", 1)), Stream([GONE]), SERVED, Hang())
    async with running(an_optional_one(client, clock, sink)):
        await asyncio.sleep(30)
        assert sink.pods == {"p": "Pending"}
        assert sink.calls == ["replace_all"]


async def test_without_a_right_to_discovery_the_404_of_a_kind_without_objects_counts(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    api.will_answer(NOT_SERVED, Json({"kind": "Status", "code": 403}, status=403))
    informer = an_optional_one(client, clock, sink)
    async with running(informer):
        async with asyncio.timeout(1):
            await informer.synced.wait()


async def test_without_a_right_to_discovery_known_objects_stay(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    sink = Mirror()
    forbidden = Json({"kind": "Status", "code": 403}, status=403)
    api.will_answer(a_list(a_pod("p", 1)), Stream([GONE]), *[forbidden, NOT_SERVED] * 50)
    async with running(an_optional_one(client, clock, sink)):
        await asyncio.sleep(150)
        assert sink.pods == {"p": "Pending"}


async def test_what_must_be_served_is_waited_for(
    api: CannedApi, client: KubeClient, clock: LoopClock
) -> None:
    api.always = NOT_SERVED
    informer = an_informer(client, clock, Mirror())
    async with running(informer):
        await asyncio.sleep(30)
        assert not informer.synced.is_set()
