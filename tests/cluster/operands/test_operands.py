"""Operands on the real API server: every object is valid, written once, put back, and deleted where it is off."""

import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import Forbidden, Invalid
from kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS
from manifests.install.rbac import build_rbac
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.yaml import render
from operands.bootstrap_states import build_operands
from operands.operand_settings import BootstrapOperands
from operands.operand_state import ServedKinds
from reconciler.operands.controller import KEY, NodeOperands
from reconciler.operands.live_operands import read_operands
from reconciler.operands.rights import NAMESPACED_RBAC, RBAC
from server.system_clock import SystemClock
from tests.cluster.environment import definitions, polling
from tests.support.recorded_events import RecordedEvents
from tests.unit.operands.operand_cases import ALL_ON, CASES, NVML

CRDS = Path(__file__).parents[4] / "shared" / "data" / "crds"
MONITORS = "servicemonitors.monitoring.coreos.com"
MANAGER = "gpu-control-plane/operands"


@dataclass
class Operands:
    """The server's account in a namespace of its own, under its roles and policies."""

    client: KubeClient
    namespace: str
    events: RecordedEvents

    def of(self, settings: BootstrapOperands) -> BootstrapOperands:
        return replace(settings, namespace=self.namespace)

    def server(self, settings: BootstrapOperands) -> NodeOperands:
        return NodeOperands(self.client, self.of(settings), self.events)

    async def versions(self) -> dict[tuple[str, str], str]:
        live = await read_operands(self.client, self.namespace)
        return {
            name: f"{one['metadata']['uid']} {one['metadata'].get('generation')}"
            for name, one in live.objects.items()
        }

    def names(self, settings: BootstrapOperands, *kinds: str) -> set[tuple[str, str]]:
        objects = build_operands(self.of(settings), ServedKinds(kinds=frozenset(kinds)))
        return {(one["kind"], one["metadata"]["name"]) for one in objects}


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
        enforced = functools.partial(is_refused_by_policy, found)
        await polling.eventually(enforced, what="the policies of the server")
        yield found
        await found.server(CASES["external"]).reconcile(KEY)
        assert await found.versions() == {}
    await kubectl("delete", "--wait=false", "-f", "-", stdin=installed)


def every_image() -> set[str]:
    return {image for settings in CASES.values() for image in settings.images}


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


async def is_refused_by_policy(operands: Operands) -> bool:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "probe", "namespace": operands.namespace},
    }
    body = a_role("probe")
    # The roles are in effect: what refuses is the policy.
    by_policy = await refusal(operands.client, SERVICE_ACCOUNTS, account)
    in_cluster = await refusal(operands.client, CLUSTER_ROLES, body)
    return bool(by_policy) and bool(in_cluster)


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


@pytest.mark.parametrize("name", CASES)
async def test_any_settings_follow_upon_any_others(operands: Operands, name: str):
    await operands.server(ALL_ON).reconcile(KEY)
    for _ in range(2):
        await operands.server(CASES[name]).reconcile(KEY)
    assert operands.events.events == []
    assert (await operands.versions()).keys() == operands.names(CASES[name])


async def test_an_edit_is_put_back_once(operands: Operands, kubectl):
    server = operands.server(ALL_ON)
    await server.reconcile(KEY)
    patch = '{"spec":{"template":{"spec":{"hostPID":false}}}}'
    place = ("daemonset", "gpu-dcgm", "-n", operands.namespace)
    await kubectl("patch", *place, "--type=merge", "-p", patch)
    await server.reconcile(KEY)
    live = await read_operands(operands.client, operands.namespace)
    after = live.objects["DaemonSet", "gpu-dcgm"]
    assert after["spec"]["template"]["spec"]["hostPID"] is True
    before = await operands.versions()
    await server.reconcile(KEY)
    assert await operands.versions() == before


async def test_roles_other_than_those_of_operands_are_refused(operands: Operands):
    """Neither another name, nor another account, nor a right that the server lacks."""
    await operands.server(ALL_ON).reconcile(KEY)
    for verbs in (("get",), ("delete",)):
        assert await refusal(operands.client, CLUSTER_ROLES, a_role("other", *verbs))
    more = a_role("gpu-node-validator", "get", "delete")
    assert "attempting to grant" in await refusal(operands.client, CLUSTER_ROLES, more)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "gpu-node-validator"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "gpu-node-validator",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }

    async def is_refused() -> bool:
        # The probe of the fixture may have met RBAC, before this policy was in force.
        text = await refusal(operands.client, CLUSTER_ROLE_BINDINGS, binding)
        return "writes no ClusterRole but" in text

    await polling.eventually(is_refused, what="the policy of ClusterRoleBindings", within=60)


async def test_monitors_are_those_of_their_project_and_come_with_it(operands: Operands, kubectl):
    file = CRDS / f"{MONITORS}.yaml"
    if not file.exists():
        pytest.skip(f"{file} is needed: the definition of ServiceMonitor")
    server = operands.server(NVML)
    await server.reconcile(KEY)
    assert (await operands.versions()).keys() == operands.names(NVML)
    await kubectl("apply", "--server-side", "-f", str(file))
    try:
        await definitions.until_served(kubectl, [yaml.safe_load(file.read_text(encoding="utf-8"))])

        async def is_made() -> bool:
            await server.reconcile(KEY)
            return (await operands.versions()).keys() == operands.names(NVML, "ServiceMonitor")

        await polling.eventually(is_made, what="the ServiceMonitor")
        await operands.server(CASES["custom-exporter"]).reconcile(KEY)
        assert operands.events.events == []
    finally:
        await kubectl("delete", "crd", MONITORS)


async def test_a_namespace_without_rights_is_told_once_and_stops_nothing_else(
    operands: Operands, kubectl
):
    await kubectl("delete", "rolebinding", "workloads", "-n", operands.namespace)
    server = operands.server(ALL_ON)

    async def is_told() -> bool:
        await server.reconcile(KEY)
        return bool(operands.events.events)

    await polling.eventually(is_told, what="the Event")
    for _ in range(3):
        await server.reconcile(KEY)
    (event,) = operands.events.events
    assert event.reason == "GPUOperandNotApplied"
    names = (await operands.versions()).keys()
    assert ("ClusterRole", "gpu-node-validator") in names
    await kubectl("apply", "-f", "-", stdin=render(namespace_rights(operands.namespace)))

    async def is_applied() -> bool:
        await server.reconcile(KEY)
        return (await operands.versions()).keys() == operands.names(ALL_ON)

    await polling.eventually(is_applied, what="all operands")
