"""Objects are written where they differ, and put back ever later while another client undoes that."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube.client import KubeClient
from kube.errors import Forbidden
from kube.resources import DAEMON_SETS, SERVICE_MONITORS
from manifests.node.device_plugin import signed
from reconciler.runtime.object_applier import FIRST_PAUSE_S, MOST_PAUSE_S, ObjectApplier
from tests.support.client_of_api import an_api_with_client
from tests.support.loop_clock import ServerClock
from tests.support.metric_samples import Counted
from tests.support.recorded_events import RecordedEvents

NAMESPACE = "gpu"
Json = dict[str, Any]


def a_daemon_set(image: str) -> Json:
    labels = {"app": "driver"}
    container = {"name": "driver", "image": image}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "driver", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    return signed(body)


def mirrored(body: Json) -> Json:
    """The object as a policy lets it in that has images come from a mirror."""
    changed = copy.deepcopy(body)
    for container in changed["spec"]["template"]["spec"]["containers"]:
        container["image"] = f"mirror.example.com/{container['image']}"
    return changed


class Admitting:
    """A client of an API server whose admission changes what is applied, or refuses it."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.is_mirroring = False
        self.refusal: Forbidden | None = None
        self.writes = 0

    async def apply(self, resource: Any, body: Json, *, field_manager: str) -> Any:
        self.writes += 1
        if self.refusal is not None:
            raise self.refusal
        body = mirrored(body) if self.is_mirroring else body
        return await self._client.apply(resource, body, field_manager=field_manager)


class World:
    """One applier's DaemonSet, as a controller reconciles it."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.clock = ServerClock()
        self.events = RecordedEvents()
        self.counted = Counted()
        self.body = a_daemon_set("driver:1")
        self.begin_term()

    def begin_term(self) -> None:
        self.admitting = Admitting(self.client)
        client: Any = self.admitting
        self.applier = ObjectApplier(
            client,
            {item.kind: item for item in (DAEMON_SETS, SERVICE_MONITORS)},
            field_manager="test",
            recorder=self.events,
            now=self.clock.instant,
            source="the settings",
        )

    async def found(self) -> Json | None:
        listing = await self.client.list_(DAEMON_SETS, dict[str, Any], namespace=NAMESPACE)
        return next(iter(listing.items), None)

    async def passes(self, seconds: float, *, every_s: float = 10.0) -> list[str]:
        """Reconcile now and every ten seconds; return the notes of Events."""
        for _ in range(int(seconds / every_s) or 1):
            found = await self.found()
            if self.applier.differs(self.body, found):
                assert await self.applier.write("state-driver", self.body, found) is None
            self.clock.offset_s += every_s
        return [event.note for event in self.events.taken()]

    async def edit(self, image: str = "other:1") -> None:
        found = await self.found()
        assert found is not None
        found["spec"]["template"]["spec"]["containers"][0]["image"] = image
        await self.client.replace(DAEMON_SETS, found)

    async def report(self, ready: int) -> None:
        """Write the status, as the DaemonSet's controller does: the object has another version afterwards."""
        found = await self.found()
        assert found is not None
        meta = found["metadata"]
        status = {"status": {"numberReady": ready}}
        where = {"name": meta["name"], "namespace": meta["namespace"], "subresource": "status"}
        await self.client.merge_patch(DAEMON_SETS, status, **where)

    async def image(self) -> str:
        found = await self.found()
        assert found is not None
        image: str = found["spec"]["template"]["spec"]["containers"][0]["image"]
        return image

    def taken_writes(self) -> int:
        found, self.admitting.writes = self.admitting.writes, 0
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with an_api_with_client(namespace=NAMESPACE) as (_, client):
        yield World(client)


async def test_another_desired_object_is_written_though_the_last_one_was_stored_otherwise(
    world: World,
):
    world.admitting.is_mirroring = True
    await world.passes(20)
    assert world.taken_writes() == 1
    world.body = a_daemon_set("driver:2")
    await world.passes(20)
    assert world.taken_writes() == 1
    assert await world.image() == "mirror.example.com/driver:2"


async def test_what_a_webhook_changes_at_each_write_is_written_once_and_told_once(world: World):
    world.admitting.is_mirroring = True
    (note,) = await world.passes(3600)
    for ready in range(3):
        await world.report(ready)
        assert await world.passes(60) == []
    assert world.taken_writes() == 1
    assert "stores spec.template.spec.containers[driver].image of this object otherwise" in note
    assert world.counted.growth("gpu_object_conflicts_total") == {("DaemonSet",): 1}
    world.admitting.is_mirroring = False
    world.body = a_daemon_set("driver:2")
    assert await world.passes(60) == []
    assert await world.image() == "driver:2"


async def test_an_edit_is_put_back_at_once_and_told(world: World):
    await world.passes(10)
    await world.edit()
    (note,) = await world.passes(60)
    assert await world.image() == "driver:1"
    assert note.startswith("another client changed this object: it is put back")
    assert "Change the settings instead" in note


async def test_an_edit_is_told_by_a_leader_that_never_wrote_the_object(world: World):
    await world.passes(10)
    world.begin_term()
    assert await world.passes(10) == []
    await world.edit()
    assert len(await world.passes(10)) == 1
    assert world.taken_writes() == 1


async def test_a_deletion_is_undone_and_told(world: World):
    await world.passes(10)
    await world.client.delete(DAEMON_SETS, "driver", namespace=NAMESPACE)
    (note,) = await world.passes(10)
    assert note.startswith("another client deleted this object")
    assert await world.image() == "driver:1"


@pytest.mark.parametrize("does", ["edits", "deletes"])
async def test_a_client_that_fights_is_met_ever_less_often_and_told_once(world: World, does: str):
    await world.passes(10)
    notes: list[str] = []
    for _ in range(6 * 60):
        if does == "edits":
            await world.edit()
        elif await world.found() is not None:
            await world.client.delete(DAEMON_SETS, "driver", namespace=NAMESPACE)
        notes += await world.passes(10)
    writes = world.taken_writes() - 1
    assert len(notes) == 1
    # At 0, 10, 30, 70, 150, 310, 630, 1,230, 1,830 ... seconds of an hour.
    assert 10 <= writes <= 12
    assert world.counted.growth("gpu_object_conflicts_total") == {("DaemonSet",): writes}
    # It is over, and later another one begins.
    await world.passes(3 * MOST_PAUSE_S)
    assert await world.image() == "driver:1"
    await world.edit()
    assert len(await world.passes(10)) == 1
    assert await world.image() == "driver:1"


async def test_a_change_of_what_is_desired_waits_for_no_fight(world: World):
    await world.passes(10)
    for _ in range(5):
        await world.edit()
        await world.passes(FIRST_PAUSE_S)
    world.body = a_daemon_set("driver:2")
    await world.passes(10)
    assert await world.image() == "driver:2"


async def test_a_watch_that_is_behind_accuses_nobody(world: World):
    await world.passes(10)
    before = await world.found()
    world.body = a_daemon_set("driver:2")
    await world.passes(10)
    assert world.applier.differs(world.body, before)
    assert await world.applier.write("state-driver", world.body, before) is None
    assert await world.applier.write("state-driver", world.body, None) is None
    assert world.events.taken() == []


async def test_what_was_desired_before_is_written_again_though_the_watch_shows_nothing_else_yet(
    world: World,
):
    await world.passes(10)
    before = await world.found()
    world.body = a_daemon_set("driver:2")
    await world.passes(10)
    world.body = a_daemon_set("driver:1")
    assert world.applier.differs(world.body, before)
    assert await world.applier.write("state-driver", world.body, before) is None
    assert await world.image() == "driver:1"
    assert await world.passes(10) == []


async def test_an_object_whose_definition_is_being_deleted_is_refused_without_a_word(world: World):
    """The answer of kube-apiserver 1.36 to a create meanwhile."""
    body = signed(
        {
            "apiVersion": SERVICE_MONITORS.api_version,
            "kind": SERVICE_MONITORS.kind,
            "metadata": {"name": "m", "namespace": NAMESPACE},
        }
    )
    text = 'servicemonitors.monitoring.coreos.com "m" is forbidden: {}'
    ending = "create not allowed while custom resource definition is terminating"
    world.admitting.refusal = Forbidden(403, "Forbidden", text.format(ending))
    assert await world.applier.write("telemetry", body, None) is None
    world.admitting.refusal = Forbidden(403, "Forbidden", text.format("exceeded quota"))
    refusal = await world.applier.write("telemetry", body, None)
    assert refusal is not None
    assert "exceeded quota" in refusal.text
