"""Viewers of a console with tokens of real accounts, and the console's process with the rights that the chart gives it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from console.processes.rbac import CONSOLE_NAMESPACED_RBAC, CONSOLE_RBAC
from manifests.install.rbac import build_rbac
from tests.support.console_process import console_process

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

ACCOUNT = "console-of-a-test"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
OF_POOLS = {
    "apiGroups": ["gpu.deckhouse.io"],
    "resources": ["gpupools", "gpudevices"],
    "verbs": ["list"],
}
OF_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}


@asynccontextmanager
async def console_with_its_rights(
    api: "ApiClient",
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    namespace: str,
    *flags: str,
) -> AsyncIterator[str]:
    """Run the process under an account of its own; the value is its address."""
    account = build_rbac(
        CONSOLE_RBAC, name=ACCOUNT, namespaced_rules=CONSOLE_NAMESPACED_RBAC, namespace=namespace
    )
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": account})
    await kubectl("apply", "--server-side", "-f", "-", stdin=text)
    file = await control_plane.service_account_kubeconfig(namespace, ACCOUNT)
    try:
        async with console_process(file, f"--namespace={namespace}", *flags) as process:
            port = (await process.log("listening"))["port"]
            await process.log("ready")
            yield f"http://127.0.0.1:{port}"
    finally:
        for path in (f"{BINDINGS}/{ACCOUNT}", f"{ROLES}/{ACCOUNT}"):
            await api.delete(path)


async def token_of(api: "ApiClient", namespace: str, name: str) -> str:
    """Make an account, and return a token of it."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = (await api.create(f"{accounts}/{name}/token", request))["status"]["token"]
    return token


async def give(api: "ApiClient", namespace: str, name: str, *rules: dict[str, Any]) -> list[str]:
    """Give an account rights in the whole cluster; return the paths of what was made."""
    role = f"{name}-{namespace}"
    await api.create(ROLES, {"metadata": {"name": role}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
    await api.create(BINDINGS, body)
    return [f"{BINDINGS}/{role}", f"{ROLES}/{role}"]
