"""Pods of GKM's later generation, which mount a claim named like their cache: the API server warns, and refuses nothing."""

import contextlib
import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE
from manifests.caches.claim_policies import build_claim_policies
from tests.cluster.environment import client, polling
from tests.cluster.manifests.conftest import created
from tests.cluster.manifests.objects import a_pod

if TYPE_CHECKING:
    from tests.cluster.environment.kubectl import Kubectl

GKM = "/apis/gkm.io/v1alpha1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def a_cache(kind: str, name: str) -> client.JsonObject:
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"image": "registry.test/cache:1"},
    }


def mounting(namespace: str, claim: str) -> client.JsonObject:
    pod = a_pod(namespace)
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": claim}}
    return {**pod, "spec": {**pod["spec"], "volumes": [volume]}}


def a_deployment(pod: client.JsonObject) -> client.JsonObject:
    labels = {"app": "server"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pod["metadata"],
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }


async def warning_of(kubectl: "Kubectl", document: client.JsonObject) -> str:
    """Return what kubectl warns of."""
    applied = await kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
    return applied.stderr


@pytest.fixture
async def caches(api, kubectl, namespace, installed):
    """A cache of the namespace, `own`, and one of the cluster, under the policies."""
    of_cluster = f"of-{namespace}"
    await api.create(f"{GKM}/namespaces/{namespace}/gkmcaches", a_cache("GKMCache", "own"))
    await api.create(f"{GKM}/clustergkmcaches", a_cache("ClusterGKMCache", of_cluster))
    async with contextlib.AsyncExitStack() as stack:
        for part in build_claim_policies():
            await stack.enter_async_context(created(api, part))

        async def both_warn() -> bool:
            return all(
                [
                    await warning_of(kubectl, mounting(namespace, name))
                    for name in ("own", of_cluster)
                ]
            )

        await polling.eventually(both_warn, what="warnings of claims")
        yield "own", of_cluster
    await api.delete(f"{GKM}/clustergkmcaches/{of_cluster}")


async def test_a_claim_named_like_a_cache_is_warned_of_with_the_volume_in_its_place(
    api, kubectl, namespace, caches
):
    own, of_cluster = caches
    attributes = {
        own: {CACHE_ATTRIBUTE: own, NAMESPACE_ATTRIBUTE: namespace},
        of_cluster: {CACHE_ATTRIBUTE: of_cluster},
    }
    for name, expected in attributes.items():
        pod = mounting(namespace, name)
        for document in (pod, a_deployment(pod)):
            warning = await warning_of(kubectl, document)
            (line,) = re.findall(r"by the volume (\{.*\})", warning)
            csi = {"driver": DRIVER_NAME, "volumeAttributes": expected}
            assert yaml.safe_load(line) == {"name": "models", "csi": csi}
    for policy in build_claim_policies()[::2]:
        found = await api.get(f"{POLICIES}/{policy['metadata']['name']}")
        assert found.get("status", {}).get("typeChecking", {}).get("expressionWarnings", []) == []


async def test_a_claim_that_is_named_like_no_cache_is_no_matter_of_caches(
    kubectl, namespace, caches
):
    assert not await warning_of(kubectl, mounting(namespace, "data"))
    assert not await warning_of(kubectl, mounting("default", "own"))
    assert not await warning_of(kubectl, a_pod(namespace))
