"""The binder against an API server: outcomes of a write, and results of a read."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from api import names
from api.foreign.core import Pod
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import Conflict
from kube.resources import PODS
from scheduler.bind import bind_pod
from scheduler.codec import BindRequest
from scheduler.outcome import Outcome
from scheduler.ports import (
    BindRefused,
    BindUnknown,
    BindWritten,
    BoundReading,
    FailedReading,
    MissingReading,
    PendingReading,
    PodBinding,
    PodRef,
)
from server.binder import KubeBinder
from simulator.apiserver.server import InMemoryApiServer
from tests.support.loop_clock import LoopClock
from tests.support.scheduling import ExtenderSetup

DEVICES = '{"main":["GPU-n1-0"]}'
TIMEOUT_S = 0.2


@pytest.fixture
async def api() -> AsyncIterator[InMemoryApiServer]:
    async with InMemoryApiServer(LoopClock()) as api:
        yield api


@pytest.fixture
async def client(api: InMemoryApiServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(StaticConnection(api.url), LoopClock()) as client:
        yield client


@pytest.fixture
def binder(client: KubeClient) -> KubeBinder:
    return KubeBinder(client, TIMEOUT_S)


@pytest.fixture
async def pod(client: KubeClient) -> PodRef:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    created = (await client.create(PODS, body)).decode(Pod)
    return PodRef("default", "p", names.PodUid(created.metadata.uid))


def to_n1(pod: PodRef) -> PodBinding:
    return PodBinding(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=names.NodeName("n1"),
        annotations={names.DEVICES_ANNOTATION: DEVICES},
        labels={names.POOL_LABEL: "whole"},
    )


async def test_binding_puts_node_and_devices_into_the_pod_with_one_request(
    api: InMemoryApiServer, client: KubeClient, binder: KubeBinder, pod: PodRef
) -> None:
    api.requests.clear()
    assert await binder.bind(to_n1(pod)) == BindWritten()
    assert [(request.method, request.path) for request in api.requests] == [
        ("POST", "/api/v1/namespaces/default/pods/p/binding")
    ]
    stored = await client.get(PODS, Pod, "p", namespace="default")
    assert stored.spec.node_name == "n1"
    assert stored.metadata.annotation(names.DEVICES_ANNOTATION) == DEVICES
    # By which the next leader finds it, also where our webhooks never saw it.
    assert stored.metadata.label(names.POOL_LABEL) == "whole"


@pytest.mark.parametrize(("is_fenced", "value"), [(True, "true"), (False, None)])
async def test_binding_that_names_a_term_is_labelled_for_the_fence(
    is_fenced: bool,
    value: str | None,
    client: KubeClient,
    binder: KubeBinder,
    pod: PodRef,
) -> None:
    await binder.bind(dataclasses.replace(to_n1(pod), is_fenced=is_fenced))
    stored = await client.get(PODS, Pod, "p", namespace="default")
    assert stored.metadata.label(names.FENCED_LABEL) == value


async def test_pod_that_is_bound_is_refused_as_a_conflict(binder: KubeBinder, pod: PodRef) -> None:
    await binder.bind(to_n1(pod))
    outcome = await binder.bind(to_n1(pod))
    assert isinstance(outcome, BindRefused)
    assert outcome.is_conflict
    assert 'pod p is already assigned to node "n1"' in outcome.message


async def test_another_pod_of_the_same_name_is_refused(binder: KubeBinder, pod: PodRef) -> None:
    another = PodRef(pod.namespace, pod.name, names.PodUid("of-the-one-before"))
    outcome = await binder.bind(to_n1(another))
    assert isinstance(outcome, BindRefused)
    assert outcome.is_conflict


async def test_pod_that_is_gone_is_refused(
    client: KubeClient, binder: KubeBinder, pod: PodRef
) -> None:
    await client.delete(PODS, "p", namespace="default", grace_period_s=0)
    outcome = await binder.bind(to_n1(pod))
    assert isinstance(outcome, BindRefused)
    assert not outcome.is_conflict
    assert 'pods "p" not found' in outcome.message


@pytest.mark.parametrize("code", [400, 401, 403, 422])
async def test_refusal_is_definite(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef, code: int
) -> None:
    api.faults.fail("POST", "/binding$", code)
    outcome = await binder.bind(to_n1(pod))
    assert isinstance(outcome, BindRefused)
    assert not outcome.is_conflict
    assert await binder.read(pod) == PendingReading()


@pytest.mark.parametrize(("code", "reported"), [(403, 1), (422, 1), (409, 0), (404, 0), (500, 0)])
async def test_refusal_that_may_be_the_fences_is_reported(
    api: InMemoryApiServer, client: KubeClient, pod: PodRef, code: int, reported: int
) -> None:
    api.faults.fail("POST", "/binding$", code)
    heard: list[None] = []
    binder = KubeBinder(client, TIMEOUT_S, on_forbidden=lambda: heard.append(None))
    await binder.bind(to_n1(pod))
    await binder.bind(to_n1(pod))
    assert len(heard) == reported


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_server_error_leaves_the_outcome_unknown(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef, code: int
) -> None:
    api.faults.fail("POST", "/binding$", code)
    outcome = await binder.bind(to_n1(pod))
    assert isinstance(outcome, BindUnknown)
    assert str(code) in outcome.message


async def test_lost_response_leaves_the_outcome_unknown_and_a_read_resolves_it(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef
) -> None:
    api.faults.reset_after("POST", "/binding$")
    assert isinstance(await binder.bind(to_n1(pod)), BindUnknown)
    assert await binder.read(pod) == BoundReading(
        names.NodeName("n1"), {"main": (names.UnitId("GPU-n1-0"),)}
    )


async def test_response_that_does_not_come_in_time_leaves_the_outcome_unknown(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef
) -> None:
    api.faults.delay("POST", "/binding$", 60.0)
    assert await binder.bind(to_n1(pod)) == BindUnknown("no answer within 0.2 s")


async def test_write_is_sent_once_whatever_becomes_of_it(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef
) -> None:
    api.faults.reset_before("POST", "/binding$")
    api.requests.clear()
    await binder.bind(to_n1(pod))
    assert len(api.requests.writes(path="/binding")) == 1


async def test_pending_pod_is_seen_as_such(binder: KubeBinder, pod: PodRef) -> None:
    assert await binder.read(pod) == PendingReading()


async def test_pod_that_was_replaced_by_one_of_its_name_is_seen_as_gone(
    binder: KubeBinder, pod: PodRef
) -> None:
    assert await binder.read(PodRef("default", "p", names.PodUid("before"))) == MissingReading()


async def test_pod_that_does_not_exist_is_seen_as_gone(binder: KubeBinder) -> None:
    assert await binder.read(PodRef("default", "q", names.PodUid("u"))) == MissingReading()


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500])
async def test_refused_read_shows_nothing(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef, code: int
) -> None:
    api.faults.fail("GET", "/pods/p$", code)
    reading = await binder.read(pod)
    assert isinstance(reading, FailedReading)
    assert str(code) in reading.message


async def test_read_without_an_answer_in_time_shows_nothing(
    api: InMemoryApiServer, binder: KubeBinder, pod: PodRef
) -> None:
    api.faults.delay("GET", "/pods/p$", 60.0)
    assert await binder.read(pod) == FailedReading("no answer within 0.2 s")


class SlowApi:
    """Answers each request late, the write with a conflict."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s

    async def create(self, *_: object, **__: object) -> None:
        await asyncio.sleep(self.takes_s)
        raise Conflict(409, "Conflict", "pod p is already assigned")

    async def get(self, *_: object, **__: object) -> Pod:
        await asyncio.sleep(self.takes_s)
        metadata = {"name": "p", "namespace": "default", "uid": "uid-p"}
        return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}}, Pod)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("takes_s", "took_s", "outcome"),
    [
        pytest.param(1.9, 3.8, Outcome.BOUND_ELSEWHERE, id="both in time"),
        pytest.param(3.9, 4.0, Outcome.IN_DOUBT, id="no time left for the read"),
        pytest.param(5.0, 4.0, Outcome.IN_DOUBT, id="no time for the write"),
    ],
)
async def test_write_and_read_after_a_conflict_have_one_deadline(
    takes_s: float, took_s: float, outcome: Outcome
) -> None:
    client: Any = SlowApi(takes_s)
    setup = ExtenderSetup(binder=KubeBinder(client, 4.0)).pool(n1=1, n2=1)  # type: ignore[arg-type]  # the real one
    setup.pending("p")
    began = asyncio.get_running_loop().time()
    request = BindRequest(PodRef("default", "p", names.PodUid("uid-p")), names.NodeName("n2"))
    bound = await bind_pod(request, setup.context)
    assert bound.outcome is outcome
    assert asyncio.get_running_loop().time() - began == pytest.approx(took_s, abs=0.01)
