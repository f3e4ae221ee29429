"""Our namespace admits our DaemonSets' pods, and a level that another client set stays and is reported."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.foreign.core import Namespace
from api.meta import ObjectMeta
from kube.client import KubeClient
from kube.errors import Forbidden
from kube.resources import NAMESPACES
from manifests.constants import POD_SECURITY_ENFORCE, POD_SECURITY_LABELS
from reconciler.installation.pod_security import CONFLICT_RETRY_S, SPEC, NamespacePodSecurity
from server.controllers.settings import controller_settings
from server.settings import Settings
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.controllers import Woken, a_context
from tests.support.recorded_events import RecordedEvents

NAME = "gpu-control-plane"
AUDIT = "pod-security.kubernetes.io/audit"


class Installation:
    """A namespace, and the controller that labels it."""

    def __init__(self, api: InMemoryApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.recorder = RecordedEvents()
        self.controller = NamespacePodSecurity(client, self.recorder)

    async def create(self, **labels: str) -> None:
        metadata = {"name": NAME, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await self.client.create(NAMESPACES, body)

    async def label(self, labels: dict[str, str | None]) -> None:
        await self.client.merge_patch(NAMESPACES, {"metadata": {"labels": labels}}, name=NAME)

    async def reconciled(self) -> dict[str, str]:
        """Reconcile twice, and return the labels of pod security."""
        for _ in range(2):
            assert await self.controller.reconcile(NAME) is None
        namespace = await self.client.get(NAMESPACES, dict[str, Any], NAME)
        labels = namespace["metadata"].get("labels", {})
        return {key: value for key, value in labels.items() if key in POD_SECURITY_LABELS}

    def writes(self) -> int:
        found = len(self.api.requests.writes())
        self.api.requests.clear()
        return found


@pytest.fixture
async def ours() -> AsyncIterator[Installation]:
    async with an_api_with_client() as (api, client):
        yield Installation(api, client)


async def test_a_namespace_without_labels_gets_them_in_one_write(ours: Installation):
    await ours.create()
    ours.writes()
    assert await ours.reconciled() == POD_SECURITY_LABELS
    assert ours.writes() == 1
    await ours.reconciled()
    assert ours.writes() == 0
    assert ours.recorder.taken() == []


async def test_what_the_chart_labelled_is_not_written(ours: Installation):
    await ours.create(**POD_SECURITY_LABELS)
    ours.writes()
    assert await ours.reconciled() == POD_SECURITY_LABELS
    assert ours.writes() == 0


async def test_a_label_that_was_taken_away_comes_back(ours: Installation):
    await ours.create()
    await ours.reconciled()
    await ours.label({POD_SECURITY_ENFORCE: None})
    assert await ours.reconciled() == POD_SECURITY_LABELS


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_a_level_that_another_client_enforces_stays_and_is_reported_once(
    ours: Installation, level: str
):
    await ours.create(**{POD_SECURITY_ENFORCE: level})
    found = await ours.reconciled()
    assert found == {**POD_SECURITY_LABELS, POD_SECURITY_ENFORCE: level}
    await ours.reconciled()
    (event,) = ours.recorder.taken()
    assert (event.type, event.reason) == ("Warning", "GPUNamespaceRestricted")
    assert event.regarding.uid
    assert f"{POD_SECURITY_ENFORCE} is {level}" in event.note
    assert f"kubectl label namespace {NAME} --overwrite" in event.note


async def test_an_administrator_may_take_a_label_over(ours: Installation):
    await ours.create()
    await ours.reconciled()
    await ours.label({POD_SECURITY_ENFORCE: "baseline"})
    assert (await ours.reconciled())[POD_SECURITY_ENFORCE] == "baseline"
    assert len(ours.recorder.taken()) == 1
    await ours.label({POD_SECURITY_ENFORCE: "privileged"})
    await ours.reconciled()
    await ours.label({POD_SECURITY_ENFORCE: "restricted"})
    await ours.reconciled()
    assert len(ours.recorder.taken()) == 1


async def test_a_stricter_audit_is_no_trouble(ours: Installation):
    await ours.create(**{AUDIT: "restricted"})
    assert await ours.reconciled() == {**POD_SECURITY_LABELS, AUDIT: "restricted"}
    assert ours.recorder.taken() == []


async def test_a_conflict_is_looked_at_again(ours: Installation):
    await ours.create()
    ours.api.faults.fail("PATCH", f"/namespaces/{NAME}$", 409)
    assert await ours.controller.reconcile(NAME) == CONFLICT_RETRY_S
    assert await ours.reconciled() == POD_SECURITY_LABELS


async def test_a_refusal_is_tried_again(ours: Installation):
    await ours.create()
    ours.api.faults.fail("PATCH", f"/namespaces/{NAME}$", 403)
    with pytest.raises(Forbidden):
        await ours.controller.reconcile(NAME)
    assert await ours.reconciled() == POD_SECURITY_LABELS


async def test_a_namespace_that_is_gone_is_not_made(ours: Installation):
    assert await ours.controller.reconcile(NAME) is None
    assert ours.writes() == 0


async def test_our_namespace_wakes_it_and_no_other():
    context = a_context()
    woken = Woken()
    async with context.ending:
        SPEC.connect(context, woken)
        assert woken.taken() == [NAME]
        for name in ("default", NAME):
            context.stores.namespace_sink.upsert(Namespace(metadata=ObjectMeta(name=name)))
        assert woken.taken() == [NAME]


@pytest.mark.parametrize(
    ("given", "is_on"),
    [
        ({}, True),
        ({"pod_security": {"label_namespace": False}}, False),
        ({"device_plugin": {"mode": "None"}, "node_agent": {"enabled": False}}, False),
        ({"device_plugin": {"mode": "None"}}, True),
    ],
)
def test_it_labels_where_daemonsets_need_it(given: dict[str, Any], is_on: bool):
    assert SPEC.is_enabled(controller_settings(Settings.model_validate(given))) is is_on
