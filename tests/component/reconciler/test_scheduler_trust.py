"""kube-scheduler is restarted once for each set of CAs, never without one, and not in a row."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.names import TRUST_HASH_ANNOTATION
from kube.client import KubeClient
from kube.errors import Forbidden
from kube.resources import DEPLOYMENTS, SECRETS
from manifests.constants import SCHEDULER_SECRET
from reconciler.installation.scheduler_trust import (
    CHECK_EVERY_S,
    CONFLICT_RETRY_S,
    RESTART_INTERVAL_S,
    SchedulerTrust,
    hash_of,
)
from server.controllers.settings import controller_settings
from server.settings import Settings
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.recorded_events import RecordedEvents
from tests.support.scheduling import Time

NAMESPACE = "gpu-control-plane"
NAME = "gpu-scheduler"


class Installation:
    """The Secret and the Deployment of a kube-scheduler, and the controller between them."""

    def __init__(self, api: InMemoryApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.time = Time()
        self.recorder = RecordedEvents()
        self.begin()

    def begin(self, authorities: Path | None = None) -> None:
        """Begin a term: nothing is remembered."""
        self.controller = SchedulerTrust(
            self.client,
            self.recorder,
            namespace=NAMESPACE,
            authorities=authorities,
            now=self.time.now,
        )

    async def add_secret(self, authorities: bytes) -> None:
        metadata = {"name": SCHEDULER_SECRET, "namespace": NAMESPACE}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        await self.client.create(SECRETS, {**body, "data": {"ca.crt": authorities}})

    async def replace_authorities(self, authorities: bytes) -> None:
        await self.client.merge_patch(
            SECRETS,
            {"data": {"ca.crt": authorities}},
            name=SCHEDULER_SECRET,
            namespace=NAMESPACE,
        )

    async def add_deployment(self) -> None:
        template = {
            "metadata": {"labels": {"app": "s"}, "annotations": {"checksum/config": "1"}},
            "spec": {"containers": [{"name": "kube-scheduler", "image": "s:1"}]},
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"replicas": 2, "template": template},
        }
        await self.client.create(DEPLOYMENTS, body)

    async def deployment(self) -> dict[str, Any]:
        return await self.client.get(DEPLOYMENTS, dict[str, Any], NAME, namespace=NAMESPACE)

    async def annotation(self) -> str | None:
        """Reconcile twice, and return what the pods are told."""
        for _ in range(2):
            await self.controller.reconcile(NAME)
        template = (await self.deployment())["spec"]["template"]
        assert template["metadata"]["annotations"]["checksum/config"] == "1"
        found: str | None = template["metadata"]["annotations"].get(TRUST_HASH_ANNOTATION)
        return found

    def writes(self) -> int:
        found = len(self.api.requests.writes())
        self.api.requests.clear()
        return found


@pytest.fixture
async def ours() -> AsyncIterator[Installation]:
    async with an_api_with_client(namespace=NAMESPACE) as (api, client):
        yield Installation(api, client)


async def test_other_authorities_restart_it_once(ours: Installation):
    await ours.add_secret(b"one")
    await ours.add_deployment()
    assert await ours.annotation() == hash_of(b"one")
    ours.recorder.taken()
    ours.writes()
    await ours.replace_authorities(b"two, one")
    ours.writes()
    assert await ours.annotation() == hash_of(b"two, one")
    assert ours.writes() == 1
    ours.begin()
    assert await ours.annotation() == hash_of(b"two, one")
    assert ours.writes() == 0
    (event,) = ours.recorder.taken()
    assert (event.type, event.reason) == ("Normal", "GPUSchedulerRestarted")
    assert (event.regarding.kind, event.regarding.name) == ("Deployment", NAME)


async def test_only_its_pods_annotations_are_changed(ours: Installation):
    await ours.add_secret(b"one")
    await ours.add_deployment()
    before = (await ours.deployment())["spec"]
    await ours.annotation()
    after = (await ours.deployment())["spec"]
    del after["template"]["metadata"]["annotations"][TRUST_HASH_ANNOTATION]
    assert after == before


async def test_white_space_is_no_other_authority(ours: Installation):
    await ours.add_secret(b"one")
    await ours.add_deployment()
    await ours.annotation()
    await ours.replace_authorities(b"one\n")
    ours.writes()
    await ours.annotation()
    assert ours.writes() == 0


async def test_restarts_do_not_follow_one_another(ours: Installation):
    await ours.add_secret(b"0")
    await ours.add_deployment()
    await ours.annotation()
    await ours.replace_authorities(b"1")
    assert await ours.annotation() == hash_of(b"1"), "the first one is not held up"
    await ours.replace_authorities(b"2")
    assert await ours.controller.reconcile(NAME) == RESTART_INTERVAL_S
    ours.time.seconds += RESTART_INTERVAL_S - 1
    assert await ours.controller.reconcile(NAME) == 1
    assert await ours.annotation() == hash_of(b"1")
    ours.time.seconds += 1
    assert await ours.annotation() == hash_of(b"2")


async def test_an_annotation_that_is_taken_away_again_and_again_is_no_restart_each_time(
    ours: Installation,
):
    await ours.add_secret(b"1")
    await ours.add_deployment()
    gone = {"spec": {"template": {"metadata": {"annotations": {TRUST_HASH_ANNOTATION: None}}}}}
    for _ in range(2):
        assert await ours.annotation() == hash_of(b"1")
        await ours.client.merge_patch(DEPLOYMENTS, gone, name=NAME, namespace=NAMESPACE)
    assert await ours.controller.reconcile(NAME) == RESTART_INTERVAL_S
    await ours.client.delete(DEPLOYMENTS, NAME, namespace=NAMESPACE)
    await ours.add_deployment()
    assert await ours.annotation() == hash_of(b"1"), "another Deployment is not held up"


async def test_without_a_secret_or_authorities_nothing_is_done(ours: Installation):
    await ours.add_deployment()
    ours.writes()
    assert await ours.controller.reconcile(NAME) == CHECK_EVERY_S
    await ours.add_secret(b"")
    ours.writes()
    assert await ours.controller.reconcile(NAME) == CHECK_EVERY_S
    assert ours.writes() == 0


async def test_without_a_deployment_one_line_says_so(
    ours: Installation, capsys: pytest.CaptureFixture[str]
):
    await ours.add_secret(b"one")
    ours.writes()
    for _ in range(3):
        assert await ours.controller.reconcile(NAME) == CHECK_EVERY_S
    assert ours.writes() == 0
    assert capsys.readouterr().out.count("no Deployment of kube-scheduler") == 1
    await ours.add_deployment()
    assert await ours.annotation() == hash_of(b"one")


async def test_mounted_authorities_of_another_issuer_count(ours: Installation, tmp_path: Path):
    file = tmp_path / "ca.crt"
    ours.begin(file)
    await ours.add_secret(b"not these")
    await ours.add_deployment()
    assert await ours.annotation() is None
    file.write_bytes(b"theirs")
    assert await ours.annotation() == hash_of(b"theirs")


async def test_a_deployment_that_changed_meanwhile_is_looked_at_again(ours: Installation):
    await ours.add_secret(b"one")
    await ours.add_deployment()
    ours.api.faults.fail("PATCH", f"/deployments/{NAME}$", 409)
    assert await ours.controller.reconcile(NAME) == CONFLICT_RETRY_S
    assert await ours.annotation() == hash_of(b"one")


async def test_a_refusal_is_tried_again(ours: Installation):
    await ours.add_secret(b"one")
    await ours.add_deployment()
    ours.api.faults.fail("PATCH", f"/deployments/{NAME}$", 403)
    with pytest.raises(Forbidden):
        await ours.controller.reconcile(NAME)
    assert await ours.annotation() == hash_of(b"one")


def test_the_settings_say_whose_authorities():
    assert controller_settings(Settings()).scheduler_authorities is None
    mounted = Settings.model_validate({"tls": {"source": "Files", "directory": "/certs"}})
    assert controller_settings(mounted).scheduler_authorities == Path("/certs/ca.crt")
