"""The chart's hook may do what an uninstall does, and nothing else."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from cli.uninstall.hook_rights import cluster_rules, namespaced_rules
from kube.client import KubeClient, WriteResponse
from kube.resources import NAMESPACES, SELF_SUBJECT_ACCESS_REVIEWS, Resource
from manifests.install.rbac import build_rbac
from manifests.install.server_policy import OwnObjects
from reconciler.node_software.built_in_rights import FORMER
from tests.component.uninstall.installed_cluster import (
    OWN,
    WITH_NODE_SOFTWARE,
    InstalledCluster,
    add_node_software,
)
from tests.support.rights import allows, asked_by, granted_by

pytestmark = pytest.mark.looptime

UNUSED = {
    ("gpu-scheduler", "update"),
    *((name, "delete") for names in FORMER.values() for name in names),
    *((name, "delete") for name in ("gpu-node-agent-metrics", "nvidia-dcgm-exporter")),
}
"""kube-scheduler's Lease is deleted only; one rule names both Leases. The cluster serves no ServiceMonitors and no
VerticalPodAutoscalers, and has one source of metrics."""


def granted(own: OwnObjects = OWN) -> set[tuple[str, str, str, str, str]]:
    documents = build_rbac(
        cluster_rules(own),
        name="x",
        namespaced_rules=namespaced_rules(own),
        namespace=own.namespace,
    )
    roles = [document for document in documents if document["kind"] in {"ClusterRole", "Role"}]
    return set().union(*map(granted_by, roles))


class ReviewingClient:
    """A client of which reviews of rights are answered by the roles of the hook, and all else by the API server."""

    def __init__(self, client: KubeClient, own: OwnObjects = OWN) -> None:
        self._client = client
        self._rights = granted(own)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return cast("Callable[..., Any]", getattr(self._client, name))

    async def create(self, resource: Resource, body: Any, **more: Any) -> WriteResponse:
        if resource != SELF_SUBJECT_ACCESS_REVIEWS:
            return await self._client.create(resource, body, **more)
        asked = body["spec"]["resourceAttributes"]
        plural = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        place, name = asked["namespace"] or "*", asked["name"] or "*"  # of all objects of the kind
        right = (place, asked["group"], plural, name, asked["verb"])
        is_allowed = any(allows(have, right) for have in self._rights)
        return WriteResponse(json.dumps({"status": {"allowed": is_allowed}}).encode(), resource)


async def test_rights_are_enough_where_there_is_node_software(cluster: InstalledCluster):
    await add_node_software(cluster)
    cluster.api.requests.clear()
    client = cast("KubeClient", ReviewingClient(cluster.client, WITH_NODE_SOFTWARE))
    await cluster.removal(client, own=WITH_NODE_SOFTWARE, with_applied=False).run()
    rights = granted(WITH_NODE_SOFTWARE)
    asked = {
        right
        for request in cluster.api.requests
        if "selfsubjectaccessreviews" not in request.path
        for right in asked_by(request)
        if right[4] != "watch"
    }
    assert {item for item in asked if not any(allows(have, item) for have in rights)} == set()
    further = rights - granted()
    assert {item[2] for item in further if item[4] == "patch"} == {
        "clusterpolicies",
        "nvidiadrivers",
    }
    assert not {item for item in further if item[4] in {"create", "update"}}


async def test_rights_are_those_that_are_used(cluster: InstalledCluster):
    # As in a namespace that Helm made, which the server labels.
    for client, level in ((cluster.client, None), (cluster.server_client, "privileged")):
        labels = {"pod-security.kubernetes.io/enforce": level}
        await client.merge_patch(NAMESPACES, {"metadata": {"labels": labels}}, name=OWN.namespace)
    cluster.api.requests.clear()
    client = cast("KubeClient", ReviewingClient(cluster.client))
    await cluster.removal(client, with_applied=False).run()
    asked = {
        right
        for request in cluster.api.requests
        if "selfsubjectaccessreviews" not in request.path  # any user may ask for their own
        for right in asked_by(request)
        if right[4] != "watch"
    }
    rights = granted()
    shortfall = {item for item in asked if not any(allows(have, item) for have in rights)}
    assert shortfall == set()
    idle = {have for have in rights if not any(allows(have, item) for item in asked)}
    assert {(name, verb) for _, _, _, name, verb in idle} == UNUSED


def test_no_right_lets_the_hook_run_an_image_or_raise_its_rights():
    writes = {have[2] for have in granted() if have[4] in {"create", "patch", "update"}}
    caches = {"gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes"}
    assert writes == {
        *caches,
        "deployments/scale",
        "gpupools",
        "leases",
        "namespaces",
        "nodes",
    }
