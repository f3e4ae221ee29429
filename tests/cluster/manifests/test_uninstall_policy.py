"""The account of the chart's hook deletes objects of ours, and cleans others, whatever its roles allow."""

import contextlib
from typing import Any

import pytest

from api.names import OPERAND_LABEL, POOL_TAINTS_ANNOTATION
from cli.uninstall.hook_rights import build_hook
from manifests import constants
from manifests.install.server_policy import OwnObjects
from manifests.install.uninstall_hook import NAME, HookPod
from manifests.yaml import render
from tests.cluster.environment import client, polling
from tests.cluster.manifests import objects
from tests.cluster.manifests.conftest import IMAGE, is_refused

NAMESPACE = constants.DEFAULT_NAMESPACE
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
KINDS: dict[str, dict[str, Any]] = {
    f"{RBAC}/clusterroles": {},
    f"{RBAC}/clusterrolebindings": {"roleRef": ROLE_REF},
    "/apis/node.k8s.io/v1/runtimeclasses": {"handler": "runc"},
    f"{RBAC}/namespaces/{NAMESPACE}/roles": {},
    f"{RBAC}/namespaces/{NAMESPACE}/rolebindings": {"roleRef": ROLE_REF},
    f"/api/v1/namespaces/{NAMESPACE}/configmaps": {},
    f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts": {},
    f"/api/v1/namespaces/{NAMESPACE}/services": {"spec": {"ports": [{"port": 80}]}},
}
"""Kinds of which RBAC lets the account delete every object, where there is node software."""
DELETES = "an uninstall deletes objects with the label"


@pytest.fixture
async def hook(control_plane, kubectl, api, installed):
    """A client with the account's token, its rights and its policy."""
    with contextlib.suppress(client.ApiRefusedError):
        await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    made = render(build_hook(OwnObjects(runs_node_software=True), HookPod(image=IMAGE))[:-1])
    await kubectl("apply", "-f", "-", stdin=made)
    probe = f"{RBAC}/clusterroles/{constants.NAME}-probe"
    await api.create(probe.rpartition("/")[0], {"metadata": {"name": probe.rpartition("/")[2]}})
    kubeconfig = await control_plane.service_account_kubeconfig(NAMESPACE, NAME)
    try:
        async with client.open_client(kubeconfig) as opened:

            async def is_enforced() -> bool:
                try:
                    await opened.delete(probe, dryRun="All")
                except client.ApiRefusedError as refused:
                    return DELETES in refused.message
                return False

            await polling.eventually(is_enforced, what="the policy of the hook")
            yield opened
    finally:
        await api.delete(probe)
        await kubectl("delete", "-f", "-", stdin=made)


@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.rpartition("/")[2])
async def test_it_deletes_what_has_a_label_of_ours(path, hook, api):
    labels = (
        constants.LABELS,
        {OPERAND_LABEL: "state-driver"},
    )
    for number, mark in enumerate(labels):
        metadata = {"name": f"ours-{number}", "labels": dict(mark)}
        await api.create(path, {"metadata": metadata, **KINDS[path]})
        await hook.delete(f"{path}/ours-{number}")
    foreign = {"app.kubernetes.io/part-of": "another"}
    await api.create(path, {"metadata": {"name": "foreign", "labels": foreign}, **KINDS[path]})
    try:
        with is_refused(DELETES):
            await hook.delete(f"{path}/foreign")
    finally:
        await api.delete(f"{path}/foreign")


async def test_it_deletes_no_pod_but_signals(hook, api):
    await api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", objects.a_pod(NAMESPACE))
    try:
        with is_refused(DELETES):
            await hook.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/pod")
    finally:
        await api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/pod")


async def test_it_takes_from_nodes_and_adds_nothing(hook, api, node):
    taints = (await api.get(node))["spec"]["taints"]
    ours = {"key": "example.test/gpu", "effect": "NoSchedule"}
    marks = {"annotations": {POOL_TAINTS_ANNOTATION: "example.test/gpu:NoSchedule"}}
    await api.patch(
        node, {"metadata": marks, "spec": {"taints": [*taints, ours], "unschedulable": True}}
    )
    unmarked = {"annotations": {POOL_TAINTS_ANNOTATION: None}, "labels": {"foreign": None}}
    await hook.patch(
        node, {"metadata": unmarked, "spec": {"taints": taints, "unschedulable": None}}
    )
    for change in (
        {"spec": {"taints": [{"key": "evil", "effect": "NoExecute"}]}},
        {"spec": {"unschedulable": True}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"annotations": {"foreign": "other"}}},
    ):
        with is_refused("removes labels, annotations, taints and cordons of Nodes, and adds none"):
            await hook.patch(node, change)


async def test_of_a_pool_it_removes_the_finalizer(hook, api, pools):
    pool = objects.a_pool("train")
    pool["metadata"]["finalizers"] = ["gpu.deckhouse.io/pool"]
    await api.create(pools, pool)
    with is_refused("an uninstall removes finalizers"):
        await hook.patch(f"{pools}/train", {"spec": {"scheduling": {"strategy": "Spread"}}})
    await hook.patch(f"{pools}/train", {"metadata": {"finalizers": None}})
