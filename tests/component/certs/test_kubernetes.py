"""Certificates at the API server: fields that are written, fields that stay, reports of failures."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from certs.bundle import Bundle
from certs.errors import InjectionError, SecretConflictError, StoreUnavailableError
from certs.kubernetes import RBAC, KubernetesCertificates, namespaced_rbac
from certs.rotation import CertificateRotation
from certs.tls import ServingContext
from certs.validity import StillGood, needs_renewal
from kube.client import KubeClient
from kube.errors import Cause, Invalid, StatusDetails
from kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from simulator.apiserver.server import InMemoryApiServer
from tests.component.certs.doubles import SettableClock
from tests.support.client_of_api import a_client
from tests.unit.certs.builders import NOW, REQUIRED, a_bundle

SECRET = ("default", "gpu-certificates")
SECRET_PATH = SECRETS.path(*SECRET)
MUTATING_PATH = MUTATING_WEBHOOK_CONFIGURATIONS.path(name="gpu")
BUNDLE = a_bundle()
FIRST, SECOND = a_bundle().as_secret(), a_bundle().as_secret()
REGISTRATIONS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
WEBHOOKS = ("pods.gpu.example", "pools.gpu.example")


class Cluster:
    """An API server and a client to it."""

    def __init__(self, server: InMemoryApiServer, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.store = KubernetesCertificates(client, mutating=["gpu"], validating=["gpu"])

    async def register(self, resource: Resource, *, ca_bundle: bytes | None = None) -> None:
        await self.client.create(resource, configuration(resource, ca_bundle))

    async def register_all(self) -> None:
        await self.register(MUTATING_WEBHOOK_CONFIGURATIONS)
        await self.register(VALIDATING_WEBHOOK_CONFIGURATIONS)

    async def read(self, resource: Resource, name: str, namespace: str | None = None) -> Any:
        return await self.client.get(resource, dict[str, Any], name, namespace=namespace)

    async def ca_bundles(self, resource: Resource) -> list[bytes]:
        found = await self.read(resource, "gpu")
        return [
            base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
            for webhook in found["webhooks"]
        ]


def configuration(resource: Resource, ca_bundle: bytes | None) -> dict[str, Any]:
    ca = {} if ca_bundle is None else {"caBundle": base64.b64encode(ca_bundle).decode()}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "gpu", "labels": {"mine": "yes"}},
        "webhooks": [
            {
                "name": name,
                "clientConfig": {"url": "https://127.0.0.1:9/" + name, **ca},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",
                "failurePolicy": "Ignore",
                "rules": [],
            }
            for name in WEBHOOKS
        ],
    }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    clock = SettableClock()
    async with (
        InMemoryApiServer(clock) as server,
        a_client(server, clock) as client,
    ):
        yield Cluster(server, client)


async def stored_version(cluster: Cluster) -> str:
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    return stored.resource_version


async def version_of(cluster: Cluster, resource: Resource) -> str:
    found = await cluster.read(resource, "gpu")
    version: str = found["metadata"]["resourceVersion"]
    return version


async def test_secret_that_is_not_there_is_none(cluster: Cluster):
    assert await cluster.store.read_secret(*SECRET) is None


async def test_what_is_created_is_read_back(cluster: Cluster):
    await cluster.store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=None)
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    assert Bundle.from_secret(stored.data) == BUNDLE
    assert (await cluster.read(SECRETS, SECRET[1], SECRET[0]))["type"] == "kubernetes.io/tls"


async def test_write_keeps_labels_type_and_foreign_keys(cluster: Cluster):
    await cluster.client.create(
        SECRETS,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": SECRET[0], "name": SECRET[1], "labels": {"mine": "yes"}},
            "type": "Opaque",
            "data": {"note": base64.b64encode(b"mine").decode()},
        },
    )
    version = await stored_version(cluster)
    await cluster.store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=version)
    found = await cluster.read(SECRETS, SECRET[1], SECRET[0])
    assert found["type"] == "Opaque"
    assert found["metadata"]["labels"] == {"mine": "yes"}
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    assert stored.data == {**BUNDLE.as_secret(), "note": b"mine"}


async def test_create_of_what_is_there_is_a_conflict_and_writes_nothing(cluster: Cluster):
    await cluster.store.write_secret(*SECRET, FIRST, resource_version=None)
    with pytest.raises(SecretConflictError, match="default/gpu-certificates has changed"):
        await cluster.store.write_secret(*SECRET, SECOND, resource_version=None)
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    assert stored.data == FIRST


@pytest.fixture
async def changed(cluster: Cluster) -> str:
    """A Secret that changed after it was read; the version that was read."""
    await cluster.store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=None)
    version = await stored_version(cluster)
    await cluster.store.write_secret(*SECRET, FIRST, resource_version=version)
    return version


async def test_write_on_a_stale_version_is_a_conflict_and_writes_nothing(
    cluster: Cluster, changed: str
):
    with pytest.raises(SecretConflictError):
        await cluster.store.write_secret(*SECRET, SECOND, resource_version=changed)
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    assert stored.data == FIRST


async def test_write_to_a_deleted_secret_is_a_conflict(cluster: Cluster, changed: str):
    version = await stored_version(cluster)
    await cluster.client.delete(SECRETS, SECRET[1], namespace=SECRET[0])
    with pytest.raises(SecretConflictError, match="is gone"):
        await cluster.store.write_secret(*SECRET, SECOND, resource_version=version)


async def test_create_in_a_missing_namespace_says_so(cluster: Cluster):
    with pytest.raises(StoreUnavailableError, match="there is no namespace nowhere"):
        await cluster.store.write_secret("nowhere", "x", {}, resource_version=None)


async def test_failed_read_is_unavailable_and_names_the_secret(cluster: Cluster):
    cluster.server.faults.fail("GET", SECRET_PATH, 503)
    with pytest.raises(StoreUnavailableError, match=r"Secret default/gpu-certificates .*503"):
        await cluster.store.read_secret(*SECRET)


async def test_lost_answer_to_a_write_is_unavailable_and_the_write_is_found(cluster: Cluster):
    cluster.server.faults.reset_after("POST", SECRETS.path(SECRET[0]))
    with pytest.raises(StoreUnavailableError):
        await cluster.store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=None)
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    assert Bundle.from_secret(stored.data) == BUNDLE


async def test_every_webhook_of_every_configuration_gets_the_ca(cluster: Cluster):
    await cluster.register_all()
    await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)
    for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
        assert await cluster.ca_bundles(resource) == [BUNDLE.trust_pem] * 2


async def test_injection_touches_no_other_field(cluster: Cluster):
    await cluster.register_all()
    before = await cluster.read(MUTATING_WEBHOOK_CONFIGURATIONS, "gpu")
    await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)
    after = await cluster.read(MUTATING_WEBHOOK_CONFIGURATIONS, "gpu")
    for webhook in after["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    assert after["webhooks"] == before["webhooks"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


async def test_second_injection_writes_nothing(cluster: Cluster):
    await cluster.register_all()
    await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)
    before = [await version_of(cluster, resource) for resource in REGISTRATIONS]
    await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)
    assert [await version_of(cluster, resource) for resource in REGISTRATIONS] == before


async def test_other_ca_is_replaced(cluster: Cluster):
    for resource in REGISTRATIONS:
        await cluster.register(resource, ca_bundle=a_bundle().trust_pem)
    await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)
    assert await cluster.ca_bundles(MUTATING_WEBHOOK_CONFIGURATIONS) == [BUNDLE.trust_pem] * 2


async def test_missing_configuration_is_named_and_the_others_are_injected(cluster: Cluster):
    await cluster.register(VALIDATING_WEBHOOK_CONFIGURATIONS)
    with pytest.raises(InjectionError, match=r"^MutatingWebhookConfiguration gpu: does not exist$"):
        await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)
    assert await cluster.ca_bundles(VALIDATING_WEBHOOK_CONFIGURATIONS) == [BUNDLE.trust_pem] * 2


async def test_every_configuration_that_failed_is_named(cluster: Cluster):
    with pytest.raises(InjectionError, match=r"Mutating.*; Validating"):
        await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)


async def test_webhooks_reordered_since_the_read_are_left_alone(cluster: Cluster):
    await cluster.register_all()
    reordering = Reordering(cluster.client)
    store = KubernetesCertificates(reordering, mutating=["gpu"])  # type: ignore[arg-type]  # a double
    with pytest.raises(InjectionError, match="MutatingWebhookConfiguration gpu: 422"):
        await store.inject_ca_bundle(BUNDLE.trust_pem)
    assert await cluster.ca_bundles(MUTATING_WEBHOOK_CONFIGURATIONS) == [b"", b""]
    await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)


class Reordering:
    """A client during whose read a user reorders the webhooks."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get(self, resource: Resource, type_: type[Any], name: str) -> Any:
        found = await self._client.get(resource, type_, name)
        raw = await self._client.get(resource, dict[str, Any], name)
        await self._client.merge_patch(resource, {"webhooks": raw["webhooks"][::-1]}, name=name)
        return found

    async def json_patch(self, resource: Resource, body: object, *, name: str) -> None:
        await self._client.json_patch(resource, body, name=name)


async def test_failed_patch_is_told_with_its_configuration(cluster: Cluster):
    await cluster.register_all()
    cluster.server.faults.fail("PATCH", MUTATING_PATH, 500)
    with pytest.raises(InjectionError, match="MutatingWebhookConfiguration gpu: 500"):
        await cluster.store.inject_ca_bundle(BUNDLE.trust_pem)


async def test_nothing_to_inject_into_is_no_failure(cluster: Cluster):
    await KubernetesCertificates(cluster.client).inject_ca_bundle(BUNDLE.trust_pem)


async def test_rotation_on_an_api_server_settles_after_one_pass(cluster: Cluster):
    await cluster.register_all()
    serving = ServingContext()
    rotation = CertificateRotation(
        cluster.store,
        serving,
        SettableClock(),
        namespace=SECRET[0],
        secret_name=SECRET[1],
        required=REQUIRED,
    )
    await rotation.check()
    stored = await cluster.store.read_secret(*SECRET)
    assert stored is not None
    bundle = Bundle.from_secret(stored.data)
    assert isinstance(needs_renewal(bundle, REQUIRED, NOW), StillGood)
    assert serving.loaded == bundle.to_serve
    assert await cluster.ca_bundles(MUTATING_WEBHOOK_CONFIGURATIONS) == [bundle.trust_pem] * 2
    await rotation.check()
    assert await stored_version(cluster) == stored.resource_version


async def test_refused_write_names_the_fields_but_tells_no_values(cluster: Cluster):
    refusal = Invalid(
        422,
        "Invalid",
        "data[tls.key]: Invalid value: hunter2",
        details=StatusDetails(causes=[Cause("FieldValueForbidden", "hunter2", "data")]),
    )
    store = KubernetesCertificates(Refusing(refusal))  # type: ignore[arg-type]  # a double
    with pytest.raises(StoreUnavailableError) as caught:
        await store.write_secret(*SECRET, FIRST, resource_version="1")
    assert str(caught.value).endswith("cannot be written: 422 Invalid data: FieldValueForbidden")


class Refusing:
    """A client whose patches are refused."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def merge_patch(self, *_: object, **__: object) -> None:
        raise self._error


async def test_error_of_a_refused_write_shows_nothing_of_the_secret(cluster: Cluster):
    cluster.server.faults.fail("POST", SECRETS.path(SECRET[0]), 422)
    with pytest.raises(StoreUnavailableError) as caught:
        await cluster.store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=None)
    assert "422" in str(caught.value)
    assert base64.b64encode(BUNDLE.serving.key_pem).decode()[:40] not in repr(caught.value)


class Recording:
    """A client that notes which right each of its calls needs."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.used: set[tuple[str, str, str]] = set()

    def __getattr__(self, method: str) -> Any:
        verb = {"merge_patch": "patch", "json_patch": "patch"}.get(method, method)

        async def call(resource: Resource, *arguments: Any, **named: Any) -> Any:
            self.used.add((resource.group, resource.plural, verb))
            return await getattr(self._client, method)(resource, *arguments, **named)

        return call


async def test_rights_are_those_that_are_used_and_no_others(cluster: Cluster):
    await cluster.register_all()
    recording = Recording(cluster.client)
    store = KubernetesCertificates(recording, mutating=["gpu"], validating=["gpu"])  # type: ignore[arg-type]  # a double
    await store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=None)
    version = await stored_version(cluster)
    await store.read_secret(*SECRET)
    await store.write_secret(*SECRET, BUNDLE.as_secret(), resource_version=version)
    await store.inject_ca_bundle(BUNDLE.trust_pem)
    assert recording.used == {
        (rule.group, resource, verb)
        for rule in (*RBAC, *namespaced_rbac("any"))
        for resource in rule.resources
        for verb in rule.verbs
    }


def test_rights_on_webhook_configurations_are_limited_to_ours():
    assert all(rule.names for rule in RBAC)


def test_rights_on_secrets_are_limited_to_ours_but_for_their_creation():
    create, remaining = namespaced_rbac("one", "other")
    assert (create.verbs, create.names) == (("create",), ())
    assert (remaining.verbs, remaining.names) == (("get", "patch"), ("one", "other"))
