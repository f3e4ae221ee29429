"""Operands on the real API server: every object is valid, written once, put back, and deleted where it is off."""

import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import Forbidden, Invalid
from kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS
from manifests.install.rbac import build_rbac
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.yaml import render
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ServedKinds
from reconciler.node_software.built_in_rights import NAMESPACED_RBAC, RBAC
from reconciler.node_software.policy_controller import KEY, PolicyController
from tests.cluster.environment import definitions, polling
from tests.support.built_in_server import a_built_in_server, read_operands
from tests.support.recorded_events import RecordedEvents
from tests.support.vertical_pod_autoscaler import vertical_pod_autoscaler_crd
from tests.unit.operands.operand_cases import (
    ALL_ON,
    CASES,
    DIGEST,
    EXTERNAL,
    ON,
    OWN,
    a_built_in_policy,
    all_on,
)

MONITORS = "servicemonitors.monitoring.coreos.com"
MANAGER = "gpu-control-plane/operands"
NEW_IMAGE = "registry.example.com/gpu-control-plane:2.0"
NEWER = a_built_in_policy(all_on(), image=NEW_IMAGE)
"""As a server of the next version has them."""


@dataclass
class Operands:
    """The server's account in a namespace of its own, under its roles and policies."""

    client: KubeClient
    namespace: str
    events: RecordedEvents

    def of(self, settings: PolicyOperands) -> PolicyOperands:
        return replace(settings, namespace=self.namespace)

    def server(self, settings: PolicyOperands) -> PolicyController:
        return a_built_in_server(
            self.client, self.of(settings), self.events, now=SystemClock().instant
        )

    async def versions(self) -> dict[tuple[str, str], str]:
        live = await read_operands(self.client, self.namespace)
        return {
            name: f"{item['metadata']['uid']} {item['metadata'].get('generation')}"
            for name, item in live.objects.items()
        }

    def names(self, settings: PolicyOperands, *kinds: str) -> set[tuple[str, str]]:
        objects = build_operands(self.of(settings), ServedKinds(kinds=frozenset(kinds)))
        return {(object_["kind"], object_["metadata"]["name"]) for object_ in objects}


@pytest.fixture
async def operands(control_plane, kubectl, namespace) -> AsyncIterator[Operands]:
    own = OwnObjects(namespace=namespace, images=tuple(sorted({*every_image()})))
    roles = build_rbac(RBAC, namespaced_rules=NAMESPACED_RBAC, namespace=namespace)
    installed = render([*roles, *namespace_rights(namespace), *build_server_policies(own)])
    await kubectl("apply", "-f", "-", stdin=installed)
    clock = SystemClock()
    kubeconfig = str(control_plane.kubeconfig(own.username))
    configuration = await load_configuration(clock, kubeconfig=kubeconfig)
    async with KubeClient(configuration, clock) as client:
        found = Operands(client, namespace, RecordedEvents())
        enforced = functools.partial(is_refused_by_policies, found, kubectl)
        await polling.eventually(enforced, what="the policies of the server")
        yield found
        await found.server(EXTERNAL).reconcile(KEY)
        assert await found.versions() == {}
    await kubectl("delete", "--wait=false", "-f", "-", stdin=installed)


def every_image() -> set[str]:
    return {OWN, NEW_IMAGE, DIGEST, *(operand["image"] for operand in ON.values())}


def namespace_rights(namespace: str) -> list[dict[str, Any]]:
    """What `pool.workloads` brings: ConfigMaps and DaemonSets of any name."""
    rules = [
        {
            "apiGroups": [group],
            "resources": [plural],
            "verbs": ["create", "delete", "list", "patch"],
        }
        for group, plural in (("", "configmaps"), ("apps", "daemonsets"))
    ]
    metadata = {"name": "workloads", "namespace": namespace}
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "workloads",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "gpu-control-plane", "namespace": namespace}
            ],
        },
    ]


async def refusal(client: KubeClient, resource: Any, body: dict[str, Any]) -> str:
    try:
        await client.apply(resource, body, field_manager=MANAGER)
    except (Forbidden, Invalid) as refused:
        return str(refused)
    return ""


async def is_refused_by_policies(operands: Operands, kubectl: Any) -> bool:
    """Try what RBAC allows, so that a refusal is that of a policy; take back what was not refused."""
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": operands.namespace},
    }
    in_namespace = await refusal(operands.client, CONFIG_MAPS, config_map)
    name = "nvidia-gpu-feature-discovery"
    # Nobody may bind a role that does not exist.
    if await refusal(operands.client, CLUSTER_ROLES, a_role(name)):
        return False
    in_cluster = await refusal(operands.client, CLUSTER_ROLE_BINDINGS, a_binding(name))
    kinds = "clusterrole" if in_cluster else "clusterrole,clusterrolebinding"
    await kubectl("delete", kinds, name)
    return all("denied request" in item for item in (in_namespace, in_cluster))


def a_binding(name: str) -> dict[str, Any]:
    """A ClusterRoleBinding of an operand to another account."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }


def a_role(name: str, *verbs: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": list(verbs or ["get"])}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule],
    }


@pytest.mark.parametrize("name", CASES)
async def test_the_api_server_takes_every_object_strictly(kubectl, namespace, name: str):
    objects = build_operands(replace(CASES[name], namespace=namespace), ServedKinds())
    if objects:
        text = render(objects)
        options = ("--server-side", "--dry-run=server", "--validate=strict")
        await kubectl("apply", *options, "-f", "-", stdin=text)


async def test_every_object_is_written_once_with_the_rights_of_the_server(operands: Operands):
    server = operands.server(ALL_ON)
    await server.reconcile(KEY)
    assert operands.events.events == []
    before = await operands.versions()
    assert before.keys() == operands.names(ALL_ON)
    await server.reconcile(KEY)
    # A new leader remembers nothing.
    await operands.server(ALL_ON).reconcile(KEY)
    assert await operands.versions() == before


async def test_roles_other_than_those_of_operands_are_refused(operands: Operands):
    """Neither another name, nor another account, nor a right that the server lacks."""
    await operands.server(ALL_ON).reconcile(KEY)
    for verbs in (("get",), ("delete",)):
        assert await refusal(operands.client, CLUSTER_ROLES, a_role("other", *verbs))
    more = a_role("gpu-node-validator", "get", "delete")
    assert "attempting to grant" in await refusal(operands.client, CLUSTER_ROLES, more)
    others = await refusal(operands.client, CLUSTER_ROLE_BINDINGS, a_binding("gpu-node-validator"))
    assert "denied request" in others


async def test_a_binding_of_another_installation_is_told_with_its_cure(operands: Operands, kubectl):
    """An installation in another namespace was removed with its namespace, which keeps the binding."""
    name = "gpu-node-validator"
    left = next(
        operand
        for operand in build_operands(replace(ALL_ON, namespace="former"), ServedKinds())
        if (operand["kind"], operand["metadata"]["name"]) == ("ClusterRoleBinding", name)
    )
    await kubectl("apply", "-f", "-", stdin=render([left]))
    server = operands.server(ALL_ON)
    for _ in range(3):
        await server.reconcile(KEY)
    (event,) = operands.events.taken()
    assert (event.regarding.kind, event.regarding.name) == ("ClusterRoleBinding", name)
    assert f"it binds ServiceAccount former/{name}" in event.note
    assert f"run: kubectl delete clusterrolebinding {name}" in event.note
    assert (await operands.versions()).keys() == operands.names(ALL_ON)
    # Nor is it deleted for those who have it.
    await operands.server(EXTERNAL).reconcile(KEY)
    assert (await operands.versions()).keys() == {("ClusterRoleBinding", name)}
    operands.events.taken()
    await kubectl("delete", "clusterrolebinding", name)
    await operands.server(ALL_ON).reconcile(KEY)
    assert operands.events.events == []
    assert (await operands.versions()).keys() == operands.names(ALL_ON)


async def test_autoscalers_come_and_go_with_their_definition(operands: Operands, kubectl):
    """VerticalPodAutoscaler of gpu-feature-discovery; strictly, as its project has the fields."""
    server, definition = operands.server(ALL_ON), vertical_pod_autoscaler_crd()
    await server.reconcile(KEY)
    assert (await operands.versions()).keys() == operands.names(ALL_ON)
    await kubectl("apply", "--server-side", "-f", "-", stdin=render([definition]))

    async def has(*kinds: str) -> bool:
        await server.reconcile(KEY)
        return (await operands.versions()).keys() == operands.names(ALL_ON, *kinds)

    try:
        await definitions.until_served(kubectl, [definition])
        is_made = functools.partial(has, "VerticalPodAutoscaler")
        await polling.eventually(is_made, what="the VerticalPodAutoscaler")
        objects = build_operands(
            operands.of(ALL_ON), ServedKinds(kinds=frozenset({"VerticalPodAutoscaler"}))
        )
        made = render(object_ for object_ in objects if object_["kind"] == "VerticalPodAutoscaler")
        options = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
        await kubectl("apply", *options, "-f", "-", stdin=made)
        before = await operands.versions()
        await server.reconcile(KEY)
        assert await operands.versions() == before
        # An operand that is off takes it away, and the definition stays.
        await operands.server(CASES["gfd-off"]).reconcile(KEY)
        assert (await operands.versions()).keys() == operands.names(CASES["gfd-off"])
        # A new leader brings it back.
        server = operands.server(ALL_ON)
        assert await has("VerticalPodAutoscaler")
    finally:
        await kubectl("delete", "--wait=false", "crd", definition["metadata"]["name"])
    await polling.eventually(has, what="operands without the VerticalPodAutoscaler")
    assert operands.events.events == []


async def test_an_invalid_field_is_told_with_its_section_and_stops_nothing_else(operands: Operands):
    assert ALL_ON.own is not None
    bad = replace(ALL_ON, own=replace(ALL_ON.own, service_labels={"team": "no label value!"}))
    server = operands.server(bad)
    for _ in range(3):
        await server.reconcile(KEY)
    (event,) = operands.events.taken()
    assert (event.regarding.kind, event.regarding.name) == ("Service", "nvidia-dcgm-exporter")
    assert "422 Invalid: metadata.labels: Invalid value" in event.note
    assert "Correct bootstrap.dcgm_exporter in the settings" in event.note
    missing = operands.names(bad) - (await operands.versions()).keys()
    assert missing == {("Service", "nvidia-dcgm-exporter")}
