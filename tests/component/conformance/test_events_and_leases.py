"""Events, and the times of leases."""

from typing import Any

import pytest

from tests.support.api_servers import Api, unique

Json = dict[str, Any]

TIME = "2026-11-21T09:00:00.000000Z"


def an_event(name: str = "e", **changes: object) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": TIME,
        "type": "Normal",
        "reason": "DevicesAssigned",
        "action": "Scheduling",
        "note": "GPU 3",
        "reportingController": "gpu.deckhouse.io/engine",
        "reportingInstance": "engine-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
        **changes,
    }


@pytest.fixture
def events(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def _in_namespace(event: Json, namespace: str) -> Json:
    event["regarding"] = {**event["regarding"], "namespace": namespace}
    return event


@pytest.mark.usefixtures("on_the_real_server")
async def test_an_event_is_served_in_the_older_form_too(
    api: Api, events: str, namespace: str
) -> None:
    created = await api.created(events, _in_namespace(an_event(), namespace))
    assert created.body["note"] == "GPU 3"
    older = f"/api/v1/namespaces/{namespace}/events/e"
    body = (await api.get(older)).body
    assert (body["kind"], body["apiVersion"]) == ("Event", "v1")
    assert body["message"] == "GPU 3"
    assert body["involvedObject"]["name"] == "p"
    assert body["reportingComponent"] == "gpu.deckhouse.io/engine"
    assert body["metadata"]["resourceVersion"] == created.version
    assert "note" not in body


async def test_events_are_selected_by_what_they_regard(
    api: Api, events: str, namespace: str
) -> None:
    await api.created(events, _in_namespace(an_event(), namespace))
    selected = await api.get(events, fieldSelector="regarding.name=p,regarding.uid=u")
    assert selected.names == ["e"]
    assert (await api.get(events, fieldSelector="regarding.name=q")).names == []
    assert (await api.get(events, fieldSelector="reason=DevicesAssigned")).names == ["e"]


@pytest.mark.usefixtures("on_the_real_server")
async def test_the_older_form_is_selected_by_its_own_names(
    api: Api, events: str, namespace: str
) -> None:
    await api.created(events, _in_namespace(an_event(), namespace))
    older = f"/api/v1/namespaces/{namespace}/events"
    selected = await api.get(older, fieldSelector="involvedObject.name=p,involvedObject.uid=u")
    assert selected.names == ["e"]
    assert (await api.get(older, fieldSelector="involvedObject.name=q")).names == []


@pytest.mark.usefixtures("on_the_real_server")
async def test_both_forms_are_watched(api: Api, events: str, namespace: str) -> None:
    older = f"/api/v1/namespaces/{namespace}/events"
    version = (await api.get(older)).version
    await api.created(events, _in_namespace(an_event(), namespace))
    async with api.watch(older, resourceVersion=version) as changes:
        event = await changes.next()
    assert (event["type"], event["object"]["message"]) == ("ADDED", "GPU 3")


async def test_a_repeat_is_a_series(api: Api, events: str, namespace: str) -> None:
    await api.created(events, _in_namespace(an_event(), namespace))
    series = {"series": {"count": 5, "lastObservedTime": TIME}}
    answer = await api.merge(f"{events}/e", series)
    assert answer.status == 200
    assert answer.body["series"] == series["series"]


async def test_the_note_cannot_be_changed(api: Api, events: str, namespace: str) -> None:
    await api.created(events, _in_namespace(an_event(), namespace))
    answer = await api.merge(f"{events}/e", {"note": "other"})
    assert answer.status == 422
    assert "Invalid value" in answer.message
    assert "field is immutable" in answer.message


@pytest.mark.parametrize(
    "time",
    [
        pytest.param("2026-11-21T09:00:00Z", id="seconds"),
        pytest.param("2026-11-21T09:00:00.000Z", id="milliseconds"),
        pytest.param("2026-11-21T09:00:00.000000000Z", id="nanoseconds"),
    ],
)
async def test_event_times_have_six_fraction_digits(
    api: Api, events: str, namespace: str, time: str
) -> None:
    answer = await api.post(events, _in_namespace(an_event(eventTime=time), namespace))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert f'parsing time "{time}"' in answer.message


@pytest.mark.parametrize(
    "field", ["eventTime", "type", "reason", "action", "reportingController", "reportingInstance"]
)
async def test_an_event_needs_all_its_parts(
    api: Api, events: str, namespace: str, field: str
) -> None:
    event = _in_namespace(an_event(), namespace)
    del event[field]
    answer = await api.post(events, event)
    assert answer.status == 422


async def test_a_note_is_at_most_1024_bytes(api: Api, events: str, namespace: str) -> None:
    event = _in_namespace(an_event(note="x" * 1025), namespace)
    assert (await api.post(events, event)).status == 422
    event["note"] = "x" * 1024
    assert (await api.post(events, event)).status == 201


async def test_lease_times_have_six_fraction_digits(api: Api, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    name = unique("l")
    body = {"metadata": {"name": name}, "spec": {"renewTime": "2026-11-21T09:00:00Z"}}
    answer = await api.post(leases, body)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    body["spec"]["renewTime"] = TIME
    answer = await api.created(leases, body)
    assert answer.body["spec"]["renewTime"] == TIME


async def test_a_lease_lasts_longer_than_nothing(api: Api, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    body = {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}}
    answer = await api.post(leases, body)
    assert answer.status == 422
    assert "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0" in answer.message


async def test_of_two_writers_of_a_lease_one_conflicts(api: Api, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    created = await api.created(leases, {"metadata": {"name": "l"}, "spec": {}})
    first = {**created.body, "spec": {"holderIdentity": "a"}}
    second = {**created.body, "spec": {"holderIdentity": "b"}}
    assert (await api.put(f"{leases}/l", first)).status == 200
    assert (await api.put(f"{leases}/l", second)).status == 409
