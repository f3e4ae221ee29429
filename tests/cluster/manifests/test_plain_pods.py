"""Nothing of ours stands between other pods and their nodes, whatever is there of it and whatever is not.

No server runs here: each of these moments is one at which none can, or in which it has not started yet.
"""

import argparse
import contextlib

import pytest

from api.names import FENCED, FENCED_LABEL, LEADER_ANNOTATION
from cli.render import RenderTarget, render_target
from manifests import constants
from manifests.install.crds import build_crds
from manifests.yaml import render
from tests.cluster.environment import client, definitions, polling
from tests.cluster.manifests.objects import a_pod
from tests.cluster.manifests.plain_pods import bound_all_the_time
from tests.cluster.system import installation

OPTIONS = argparse.Namespace(settings=None, namespace=None, user=None, url=None, ca_file=None)
TARGETS = (RenderTarget.CRDS, RenderTarget.RBAC, RenderTarget.POLICY, RenderTarget.WEBHOOKS)
"""In README's order."""
TERMS = "/apis/gpu.deckhouse.io/v1alpha1/gpucontrolplaneterms"
TERM = {
    "apiVersion": "gpu.deckhouse.io/v1alpha1",
    "kind": "GPUControlPlaneTerm",
    "metadata": {"name": constants.LEASE_NAME},
    "spec": {"holder": "first", "number": 1},
}
CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpucontrolplaneterms.gpu.deckhouse.io"
)


@pytest.fixture
async def remove(control_plane, kubectl):
    """Whatever a test leaves of an installation is removed."""
    yield
    everything = "".join(render_target(target, OPTIONS) for target in TARGETS)
    await kubectl("apply", "-f", "-", stdin=render(build_crds()))
    await definitions.until_served(kubectl, build_crds())
    await installation.remove(control_plane, kubectl, everything)


async def bind_ours(api, namespace) -> str:
    """Send our own Binding of the first term; return by which words it is refused."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "ours",
            "namespace": namespace,
            "annotations": {LEADER_ANNOTATION: "first/1"},
            "labels": {FENCED_LABEL: FENCED},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"},
    }
    try:
        await api.create(f"/api/v1/namespaces/{namespace}/bindings", body, dryRun="All")
    except client.ApiRefusedError as refused:
        return refused.message
    return ""


async def until_ours(api, namespace, words: str) -> None:
    """Wait until our own Binding is refused in these words; without any, until it passes."""

    async def is_so() -> bool:
        said = await bind_ours(api, namespace)
        assert words in said if words else not said, said
        return True

    await polling.eventually(is_so, what=f"our Binding: {words or 'passes'}")


@pytest.fixture
async def ours(control_plane, api, namespace):
    """A client of our service account's name; a pod to bind."""
    await api.create(f"/api/v1/namespaces/{namespace}/pods", a_pod(namespace, name="ours"))
    user = constants.service_account_username(constants.DEFAULT_NAMESPACE)
    kubeconfig = control_plane.kubeconfig(user, groups=("system:masters",))
    async with client.open_client(kubeconfig) as opened:
        yield opened


async def test_plain_pods_are_bound_at_every_moment_of_an_installations_life(
    remove, api, ours, kubectl, namespace
):
    async with bound_all_the_time(api, namespace, "kube-system") as plain:
        for target in TARGETS:
            text = render_target(target, OPTIONS)
            await kubectl("apply", "-f", "-", stdin=text)
            await plain.pass_now(f"{target.value} applied")
        await until_ours(ours, namespace, "no params found")
        await plain.pass_now("no term yet")

        own = f"/api/v1/namespaces/{constants.DEFAULT_NAMESPACE}"
        async with bound_all_the_time(api, constants.DEFAULT_NAMESPACE) as server:
            await server.pass_now("no term yet")

        await api.create(TERMS, TERM)
        await until_ours(ours, namespace, "")
        for target in TARGETS:
            await kubectl("apply", "-f", "-", stdin=render_target(target, OPTIONS))
        await plain.pass_now("applied again")

        await api.delete(f"{TERMS}/{constants.LEASE_NAME}")
        await until_ours(ours, namespace, "no params found")
        await api.delete(own)
        await plain.pass_now("term and namespace deleted")
        await api.delete(CRD)
        await installation.until_gone(api, CRD)
        await plain.pass_now("nothing left but policies and webhooks")
        # A policy that comes while its kind is not there never hears of it: it fails in other ways.
        policies = render_target(RenderTarget.POLICY, OPTIONS)
        await kubectl("delete", "-f", "-", stdin=policies)
        await until_ours(ours, namespace, "")
        await kubectl("apply", "-f", "-", stdin=policies)
        await until_ours(ours, namespace, "paramKind")
        await plain.pass_now("policies before their kind")

        await kubectl("apply", "-f", "-", stdin=render_target(RenderTarget.CRDS, OPTIONS))
        await definitions.until_served(kubectl, build_crds())
        await plain.pass_now("kind applied again")
        await polling.eventually(lambda: has_created(api), what="a term")
        await until_ours(ours, namespace, "")
        await plain.pass_now("healed")

        for target in (RenderTarget.WEBHOOKS, RenderTarget.POLICY):
            text = render_target(target, OPTIONS)
            await kubectl("delete", "--wait=false", "-f", "-", stdin=text)
            await plain.pass_now(f"{target.value} deleted")


async def has_created(api) -> bool:
    with contextlib.suppress(client.ApiRefusedError):
        await api.create(TERMS, TERM)
        return True
    return False
