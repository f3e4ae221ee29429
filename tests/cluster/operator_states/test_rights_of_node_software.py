"""The server's account, under its roles and policies, writes what ClusterPolicies need, and nothing beside.

The requests are kubectl's in the account's name, so that RBAC and admission judge them as the server's own.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.driver_upgrade import UPGRADE_STATE_LABEL
from api.names import OPERAND_LABEL, OPERANDS_LABEL
from manifests import constants
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.yaml import render
from operands.operand_state import OPTIONAL_KINDS
from server.rbac import build_roles
from tests.cluster.environment import client, polling
from tests.cluster.environment.kubectl import Kubectl
from tests.unit.operands.nvidia.policy_cases import distinct_objects

Json = dict[str, Any]

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DRY_RUN = "--dry-run=server"
ROLES = frozenset({"ClusterRole", "Role"})
STATE = {OPERAND_LABEL: "state-driver"}


class ServerAccount:
    """kubectl in the name of the server's account."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self.namespace = namespace
        self._user = ("--as", constants.service_account_username(namespace))

    async def apply(self, *objects: Json, dry_run: bool = True) -> str:
        """Return the refusals."""
        flags = ("--server-side", *([DRY_RUN] if dry_run else []))
        done = await self._kubectl(
            *("apply", *flags, *self._user, "-f", "-"),
            stdin=render(list(objects)),
            check=False,
            timeout_s=120,
        )
        return str(done.stderr)

    async def patch(self, kind: str, name: str, body: Json) -> str:
        done = await self._kubectl(
            *("patch", kind, name, "--type=merge", "-p", json.dumps(body), DRY_RUN, *self._user),
            check=False,
        )
        return str(done.stderr)

    async def delete(self, kind: str, name: str) -> str:
        done = await self._kubectl(
            *("delete", kind, name, DRY_RUN, "--namespace", self.namespace, *self._user),
            check=False,
        )
        return str(done.stderr)


@pytest.fixture
async def account(kubectl: Kubectl, namespace: str) -> AsyncIterator[ServerAccount]:
    own = OwnObjects(namespace=namespace, images=("registry.test/ours:1",), runs_node_software=True)
    rights = [role for role in build_roles(own) if role["kind"] != "Namespace"]
    installed = render([*rights, *build_server_policies(own)])
    await kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=installed)
    found = ServerAccount(kubectl, namespace)

    async def is_enforced() -> bool:
        refused = await found.apply(
            an_object("ConfigMap", "probe", namespace), a_runtime_class("probe")
        )
        return refused.count("denied request") == 2

    await polling.eventually(is_enforced, what="the policies of the server")
    yield found
    kinds = "clusterroles,clusterrolebindings"
    await kubectl("delete", "--wait=false", "-l", OPERAND_LABEL, kinds)
    await kubectl("delete", "--wait=false", "-f", "-", stdin=installed)


def an_object(kind: str, name: str, namespace: str, **labels: str) -> Json:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def a_runtime_class(name: str, labels: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": labels or {}},
        "handler": "nvidia",
    }


def a_daemon_set(name: str, namespace: str, node: str) -> Json:
    pods = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "c", "image": "registry.test/driver:1"}],
    }
    return {
        **an_object("DaemonSet", name, namespace),
        "apiVersion": "apps/v1",
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pods},
        },
    }


def objects_in(namespace: str) -> list[Json]:
    """One object of each kind and name."""
    named = {
        (object_["kind"], object_["metadata"]["name"]): object_ for object_ in distinct_objects()
    }
    objects = copy.deepcopy([item for item in named.values() if item["kind"] not in OPTIONAL_KINDS])
    for object_ in objects:
        if "namespace" in object_["metadata"]:
            object_["metadata"]["namespace"] = namespace
        for subject in object_.get("subjects", ()):
            subject["namespace"] = namespace
    return objects


async def test_it_writes_every_object_of_the_states(account: ServerAccount):
    objects = objects_in(account.namespace)
    roles = [object_ for object_ in objects if object_["kind"] in ROLES]
    # Nobody may bind a role that does not exist.
    assert await account.apply(*roles, dry_run=False) == ""
    others = [object_ for object_ in objects if object_["kind"] not in ROLES]
    assert await account.apply(*others) == ""


async def test_it_writes_no_object_of_another(account: ServerAccount, kubectl: Kubectl):
    namespace = account.namespace
    daemon_set = next(
        object_ for object_ in objects_in(namespace) if object_["kind"] == "DaemonSet"
    )
    as_server = copy.deepcopy(daemon_set)
    as_server["spec"]["template"]["spec"]["serviceAccountName"] = constants.SERVICE_ACCOUNT
    unlabelled = copy.deepcopy(daemon_set)
    del unlabelled["metadata"]["labels"][OPERAND_LABEL]
    binding = next(
        object_ for object_ in objects_in("elsewhere") if object_["kind"] == "ClusterRoleBinding"
    )
    roles = [object_ for object_ in objects_in(namespace) if object_["kind"] == "ClusterRole"]
    # Nobody may bind a role that does not exist.
    assert await account.apply(*roles, dry_run=False) == ""
    mine = a_runtime_class(f"mine-{namespace}")
    await kubectl("apply", "-f", "-", stdin=render([mine]))
    refusals = await asyncio.gather(
        account.apply(an_object("ConfigMap", "gpu-control-plane-settings", namespace, **STATE)),
        account.apply(as_server),
        account.apply(unlabelled),
        account.apply(binding),
        account.apply(a_runtime_class(f"mine-{namespace}", STATE)),
    )
    await kubectl("delete", "runtimeclass", mine["metadata"]["name"])
    for refusal, text in zip(
        refusals,
        (
            "writes objects of its own names only",
            "run as accounts of its agents and operands",
            "writes objects of its own names only",
            "writes no ClusterRole but those of its operands",
            "writes no RuntimeClass but those of a ClusterPolicy",
        ),
        strict=True,
    ):
        assert text in refusal


async def test_of_nodes_and_pods_it_changes_what_an_upgrade_needs(
    account: ServerAccount, api: client.ApiClient
):
    node, namespace = f"node-{account.namespace}", account.namespace
    labels = {"kubernetes.io/hostname": node}
    await api.create("/api/v1/nodes", {"metadata": {"name": node, "labels": labels}})
    for name in ("nvidia-driver-daemonset-x", "other"):
        path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
        owner = await api.create(path, a_daemon_set(name, namespace, node))
        pod = an_object("Pod", name, namespace, app=name)
        pod["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "controller": True,
                **{key: owner["metadata"][key] for key in ("name", "uid")},
            }
        ]
        pod["spec"] = {"containers": [{"name": "c", "image": "registry.test/driver:1"}]}
        await api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    allowed = {
        "metadata": {
            "labels": {UPGRADE_STATE_LABEL: "cordon-required", "nvidia.com/gpu.deploy.dcgm": "x"},
            "annotations": {"gpu.deckhouse.io/driver-upgrade": "x"},
        },
        "spec": {"unschedulable": True},
    }
    assert await account.patch("node", node, allowed) == ""
    for foreign in (OPERANDS_LABEL, "nvidia.com/gpu.workload.config", "foreign"):
        body = {"metadata": {"labels": {foreign: "false"}}}
        assert "and nothing else" in await account.patch("node", node, body)
    assert await account.delete("pod", "nvidia-driver-daemonset-x") == ""
    assert "deletes no pod of its namespace but" in await account.delete("pod", "other")
    await api.delete(f"/api/v1/nodes/{node}")


async def test_the_api_server_finds_no_fault_with_the_expressions(
    account: ServerAccount, api: client.ApiClient
):
    del account
    for name in (constants.SERVER_POLICY, constants.SERVER_OBJECTS_POLICY):

        async def checked(name: str = name) -> Json | None:
            found: Json = await api.get(f"{POLICIES}/{name}")
            status = found.get("status", {})
            return found if status.get("observedGeneration") else None

        found = await polling.eventually(checked, what="type check of the policy")
        assert found["status"]["typeChecking"].get("expressionWarnings", []) == []
