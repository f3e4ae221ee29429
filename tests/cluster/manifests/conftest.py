"""Our manifests in the real control plane, installed for a module."""

import asyncio
import contextlib
import functools
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from api.names import DEVICES_ANNOTATION
from manifests import constants
from manifests.caches.crds import build_cache_crds
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.crds import build_crds
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.install.webhooks import (
    UrlClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)
from manifests.yaml import render
from server.configuration.config_definition import build_config_crd
from simulator.node.nfd import node_feature_crd
from tests.cluster.environment import client, definitions, polling
from tests.cluster.manifests.objects import ENGINE, a_pod, namespace_and_roles
from tests.cluster.manifests.stub import serve_stub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.manifests.stub import Stub

NAMESPACE = constants.DEFAULT_NAMESPACE
IMAGE = "registry.test/gpu-control-plane:1"


@dataclass(frozen=True, kw_only=True)
class Installed:
    namespace: str
    documents: list[dict[str, Any]]
    output: str
    """What kubectl said when it applied them."""


@pytest.fixture(scope="module")
def installed(control_plane: "ControlPlane", kubectl: "Kubectl") -> "Iterator[Installed]":
    """CRDs and roles, strictly validated, the latter for a namespace of their own.

    CRDs stay until the control plane goes: after a quick create and delete, the API server's
    finalizer can lose a race with its own storage and hang for more than a minute.
    """
    namespace = f"control-plane-{secrets.token_hex(3)}"
    crds = [*build_crds(), build_config_crd(), *build_cache_crds()]
    others = namespace_and_roles(namespace)
    text = render([*crds, *others])
    applied = asyncio.run(kubectl("apply", "--validate=strict", "-f", "-", stdin=text))
    asyncio.run(definitions.until_served(kubectl, crds))
    yield Installed(namespace=namespace, documents=[*crds, *others], output=applied.stdout)
    asyncio.run(kubectl("delete", "--wait=false", "-f", "-", stdin=render(others)))


@pytest.fixture
async def pools(api: client.ApiClient, installed: Installed) -> "AsyncIterator[str]":
    """The path of pools, of which none are left after the test."""
    path = "/apis/gpu.deckhouse.io/v1alpha1/gpupools"
    yield path
    await api.delete(path)


@pytest.fixture
async def stub(control_plane: "ControlPlane") -> "AsyncIterator[Stub]":
    async with serve_stub(control_plane) as stub:
        yield stub


@pytest.fixture
async def webhooks(
    api: client.ApiClient, control_plane: "ControlPlane", installed: Installed, stub: "Stub"
) -> "AsyncIterator[Stub]":
    """Both webhook configurations point at the stub, and are in effect."""
    settings = WebhookSettings(
        client=UrlClient(base_url=stub.url), ca_bundle=control_plane.ca_file.read_bytes()
    )
    async with contextlib.AsyncExitStack() as stack:
        for build in (build_mutating_configuration, build_validating_configuration):
            await stack.enter_async_context(created(api, build(settings)))
        probe = a_pod("default", pool="probe", name="probe")

        async def both_are_called() -> bool:
            if not await is_admitted(api, probe):
                return False
            return {constants.MUTATE_PODS_PATH, constants.VALIDATE_PODS_PATH} <= set(stub.paths())

        await polling.eventually(both_are_called, what="calls of the webhooks")
        stub.calls.clear()
        yield stub


@pytest.fixture
async def policy(api: client.ApiClient, webhooks: "Stub") -> "AsyncIterator[None]":
    """The policy is in effect, beside the webhooks."""
    async with contextlib.AsyncExitStack() as stack:
        for part in build_annotation_policy([ENGINE], server=ENGINE):
            await stack.enter_async_context(created(api, part))

        async def is_enforced() -> bool:
            return not await is_admitted(api, FORGED)

        await polling.eventually(is_enforced, what="refusal by the policy")
        yield
    await polling.eventually(functools.partial(is_admitted, api, FORGED), what="end of the policy")


FORGED = a_pod("default", name="probe", annotations={DEVICES_ANNOTATION: "{}"})
"""A pod that the annotation policy alone refuses."""


async def is_admitted(api: client.ApiClient, pod: "dict[str, Any]") -> bool:
    try:
        await api.create(
            f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod, dryRun="All"
        )
    except client.ApiRefusedError:
        return False
    return True


async def install_node_features(kubectl: "Kubectl") -> None:
    """Install NFD's kind, which stays, and wait until it is served."""
    await kubectl("apply", "-f", "-", stdin=render([node_feature_crd()]))
    await definitions.until_served(kubectl, [node_feature_crd()])


@contextlib.asynccontextmanager
async def created(api: client.ApiClient, document: "dict[str, Any]") -> "AsyncIterator[None]":
    plural = {
        "CustomResourceDefinition": "customresourcedefinitions",
        "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
        "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }[document["kind"]]
    path = f"/apis/{document['apiVersion']}/{plural}"
    await api.create(path, document, fieldValidation="Strict")
    try:
        yield
    finally:
        await api.delete(f"{path}/{document['metadata']['name']}")


@pytest.fixture
async def server(control_plane, api, namespace):
    """A client of the server's name with all rights, under its policies; our namespace is there."""
    with contextlib.suppress(client.ApiRefusedError):
        await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    kubeconfig = control_plane.kubeconfig(ENGINE, groups=("system:masters",))
    async with client.open_client(kubeconfig) as opened:
        async with contextlib.AsyncExitStack() as policies:
            for part in build_server_policies(OwnObjects(images=(IMAGE,))):
                await policies.enter_async_context(created(api, part))
            for probe in PROBES:
                enforced = functools.partial(is_refused_by_policy, opened, probe)
                await polling.eventually(enforced, what=probe.text)
            yield opened
        for probe in PROBES:
            lifted = functools.partial(is_not_refused_by_policy, opened, probe)
            await polling.eventually(lifted, what=f"end of: {probe.text}")


def an_eviction(name: str) -> client.JsonObject:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


class Probe(NamedTuple):
    """A request that one of the policies refuses, with a part of its message."""

    path: str
    body: client.JsonObject
    text: str


PROBES = (
    Probe(
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        {"metadata": {"name": "foreign"}},
        "of its own names only",
    ),
    Probe(
        "/api/v1/namespaces/kube-system/pods/none/eviction",
        an_eviction("none"),
        "evicts no pod of",
    ),
)


async def is_refused_by_policy(server: client.ApiClient, probe: Probe) -> bool:
    try:
        await server.create(probe.path, probe.body, dryRun="All")
    except client.ApiRefusedError as refused:
        return probe.text in refused.message
    return False


async def is_not_refused_by_policy(server: client.ApiClient, probe: Probe) -> bool:
    return not await is_refused_by_policy(server, probe)


@contextlib.contextmanager
def is_refused(text: str):
    with pytest.raises(client.ApiRefusedError) as refused:
        yield
    assert refused.value.status == 403
    assert text in refused.value.message


@pytest.fixture
async def pod(api, namespace):
    """The path of a pod of a pool."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await api.create(path, a_pod(namespace, pool="train"))
    return f"{path}/pod"


@pytest.fixture
async def node(api):
    """The path of a Node with a foreign label and taint."""
    name = f"own-{secrets.token_hex(3)}"
    path = "/api/v1/nodes"
    metadata = {"name": name, "labels": {"foreign": "yes"}, "annotations": {"foreign": "yes"}}
    foreign = {"key": "foreign", "effect": "NoSchedule"}
    await api.create(path, {"metadata": metadata, "spec": {"taints": [foreign]}})
    yield f"{path}/{name}"
    await api.delete(f"{path}/{name}")
